//! The subjects that sandboxd is compared with.

pub mod bash;
pub mod bwrap;
pub mod docker;
pub mod hello;
pub mod runc;
