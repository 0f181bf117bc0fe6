//! What all doors share besides admission: the engine and its neighbours, their errors as errors of the API, images that accounts name,
//! one response per idempotency key, buffered output, and the addresses of ports.
//!
//! The doors (`native`, `e2b`, `relay`) are above; they share one [`Service`], which the program assembles.

pub mod bases;
pub mod error;
pub mod idempotency;
pub mod image_access;
pub mod images;
pub mod origins;
pub mod output;
pub mod ports;
mod service;
pub mod snapshot_names;

pub use service::Service;
