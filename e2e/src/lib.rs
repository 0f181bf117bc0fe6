//! The test harness of end-to-end tests and benchmarks: a real engine with its own directories, cgroups and user ids.

mod census;
mod daemon;
mod guard;
pub mod internet;
mod options;
mod place;
pub mod registry;
mod rig;
pub mod service;

pub use census::{Expected, settled, strays};
pub use daemon::{Answer, Daemon, Found, escape, unescape};
pub use guard::with_rig;
pub use options::RigOptions;
pub use place::{Place, Sweeper};
pub use rig::{Halted, Rig, command, config, rootfs};
