//! What whole-service tests and benchmarks stand on: a real engine with directories, cgroups and user ids of its own.

mod rig;

pub use rig::{Rig, RigOptions, command, config, rootfs};
