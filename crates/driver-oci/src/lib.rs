//! Isolation backends by an OCI runtime: `runc`, `crun` and `youki`, or gVisor's `runsc`.
//!
//! On the host a sandbox is a directory with its disk, a directory with its bundle and socket, cgroups, and the
//! processes in them. Nothing is mounted in the host's namespace, and no link, rule or device outlives the processes.
#![expect(
    unsafe_code,
    reason = "id maps, loop devices and what happens between fork and exec have no safe interface"
)]

mod bundle;
mod cgroup;
mod disk;
mod driver_impl;
mod idmap;
mod launch;
mod link;
mod loopdev;
mod names;
mod netns;
mod paths;
mod placement;
mod priority;
mod reap;
mod rootfs;
mod runtime;
mod settings;
mod sysfs;
mod trial;

pub use driver_impl::OciDriver;
pub use settings::{DiskRates, Flavour, Settings};
pub use trial::try_file_systems;
