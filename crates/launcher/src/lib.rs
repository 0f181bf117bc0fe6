//! The interface of `sandbox-launcher`, the small program that builds one container and starts the agent in it.
//!
//! The daemon starts one launcher for each start of a sandbox, with a socket as its standard input, and sends a [`ContainerPlan`] with
//! open files. The launcher answers with [`Report`]s and ends; the agent goes on. It is a program of its own because building
//! a container means to fork into new namespaces, which a process with many threads and open files cannot do safely.

mod plan;
mod wire;

pub use plan::{CgroupEntry, ContainerPlan, FileSystem, Layer, Mount, MountFlags, MountSource, Node, Report};
pub use wire::{MAX_FILES, MAX_SNAPSHOTS, receive, send};
