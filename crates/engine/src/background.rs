//! The tasks that run as long as the engine: they look after the host, delete what has expired, and record what they see.

pub mod hoarders;
pub mod memory_kills;
pub mod network_refusals;
pub mod pressure;
pub mod purge;
pub mod resource_samples;
