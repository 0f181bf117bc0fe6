//! The test harness of end-to-end tests and benchmarks: a real engine with its own directories, cgroups and user ids.

mod census;
pub mod code_image;
mod daemon;
mod guard;
pub mod internet;
mod layout;
mod options;
pub mod process;
pub mod registry;
mod rig;
pub mod s3;
pub mod service;
pub mod shared_image;
pub mod small_registry;
mod wait;

pub use census::{Expected, strays, wait_for_resources};
pub use daemon::{CallOutcome, Daemon, RecoverySummary, escape, unescape};
pub use guard::with_rig;
pub use layout::{CleanupGuard, RigLayout};
pub use options::{RigOptions, agent, gvisor, isolation, launcher, sbx, workspace};
pub use rig::{HaltedRig, Rig, command, config, rootfs};
pub use wait::{PATIENCE, wait_until};
