//! What sandboxd is measured against.

pub mod bash;
pub mod bwrap;
pub mod docker;
pub mod hello;
pub mod runc;
