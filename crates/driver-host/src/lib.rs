//! Sandboxes as this host sees them: a disk, cgroups, user ids, a link to the agent, and a description of the inside. A
//! [`Backend`] for each isolation starts the agent in there; everything else is the same for all and is done by [`HostDriver`].
//!
//! On the host a sandbox is a directory with its disk, a directory with its socket and the backend's files, cgroups, and the
//! processes in them. Nothing is mounted in the host's namespace, and no link, rule or device outlives the processes.
#![expect(
    unsafe_code,
    reason = "id maps, loop devices, perf events and scheduling parameters have no safe interface"
)]

mod agents;
mod backend;
mod cgroup;
mod changes;
pub mod control_link;
mod copy;
mod description;
mod disk;
mod driver_impl;
mod ext4;
mod first_process;
mod growth;
mod hibernation;
mod hoarders;
mod inner;
mod kernel_tables;
mod layers;
mod link;
mod loopdev;
mod lxcfs_watch;
mod mounts;
mod names;
mod paths;
mod placement;
mod priority;
mod read_only_disks;
mod reap;
mod removal;
mod replaced_disks;
mod settings;
mod slab_watch;
mod snapshot;
mod stored_processes;
mod transfer;
mod trial;

pub use backend::{Backend, Hibernation, ProcessCopy, Standstill, Start, Started};
pub use cgroup::{CgroupEntry, Cgroups};
pub use description::{AGENT_INSIDE, SysView, describe, seccomp};
pub use driver_impl::HostDriver;
pub use ext4::mount_disk;
pub use inner::Backends;
pub use kernel_tables::{HostSize, KernelTable, SizeBound, TableState, kernel_tables, tracked_connections};
pub use layers::{OpenLayer, SnapshotMounts};
pub use link::{TOKEN_BYTES, listen, prepare_token};
pub use loopdev::DeviceNumber;
pub use mounts::{Assembled, Mounts, assemble};
pub use paths::{Paths, disk_bytes_in, disks_in, first_process, mount_place, runtime_root};
pub use priority::raise_priority;
pub use reap::{collect, state_of_child};
pub use settings::{DiskRates, Settings};
pub use trial::try_file_systems;
