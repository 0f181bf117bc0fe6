//! Sandboxes as this host sees them: a disk, cgroups, user ids, a link to the agent, and a description of the inside. A
//! [`Backend`] for each isolation starts the agent in there; everything else is the same for all and is done by [`HostDriver`].
//!
//! On the host a sandbox is a directory with its disk, a directory with its socket and the backend's files, cgroups, and the
//! processes in them. Nothing is mounted in the host's namespace, and no link, rule or device outlives the processes.
#![expect(
    unsafe_code,
    reason = "id maps, loop devices, perf events and scheduling parameters have no safe interface"
)]

mod agent;
mod backend;
mod cgroup;
mod description;
mod disk;
mod hoarders;
mod host_driver;
mod kernel_tables;
mod loopdev;
mod paths;
mod processes;
mod removal;
mod settings;
mod snapshot;
mod stored_processes;
mod trial;

pub use agent::link::{TOKEN_BYTES, listen, prepare_token};
pub use agent::{control_link, raise_priority};
pub use backend::{Backend, Hibernation, ProcessCopy, Standstill, Start, Started};
pub use cgroup::{CgroupEntry, Cgroups};
pub use description::{AGENT_INSIDE, SysView, describe, seccomp};
pub use disk::ext4::mount_disk;
pub use disk::{Assembled, Mounts, OpenLayer, SnapshotMounts, assemble};
pub use host_driver::{Backends, HostDriver};
pub use kernel_tables::{HostSize, KernelTable, SizeBound, TableState, kernel_tables, tracked_connections};
pub use loopdev::DeviceNumber;
pub use paths::{Paths, disk_bytes_in, disks_in, first_process, mount_place, runtime_root};
pub use processes::{collect, state_of_child};
pub use settings::{DiskRates, Settings};
pub use trial::try_file_systems;
