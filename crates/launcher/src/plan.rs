//! What the daemon asks of a launcher, and what it answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A container to build. The files that come with it are, in this order: the disk as a detached mount, the listening socket of
/// the agent, the disks of snapshots among the layers as detached mounts, and the directory of the cgroup under cgroup v2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPlan {
    /// The daemon's pid. The launcher ends if this is not its parent.
    pub daemon: i32,
    /// An empty directory. The launcher mounts over it in a mount namespace of its own.
    pub place: PathBuf,
    /// The layers below the disk, topmost first.
    pub layers: Vec<Layer>,
    /// The host id of user 0 inside.
    pub uid_base: u32,
    pub host_name: String,
    pub cgroups: Vec<CgroupEntry>,
    /// Mounts below the root, in order.
    pub mounts: Vec<Mount>,
    /// Symbolic links, as path and target. An existing file at the path stays.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Paths that look empty inside. Those that do not exist are skipped.
    pub masked: Vec<PathBuf>,
    /// Files of the kernel that have another text inside, as path and text. The host's root may change the text. Those that do not
    /// exist are skipped.
    pub replaced: Vec<(PathBuf, String)>,
    /// Paths that are read-only inside. Those that do not exist are skipped.
    pub read_only: Vec<PathBuf>,
    /// Resource limits, soft and hard alike, by the kernel's numbers.
    pub limits: Vec<(u32, u64)>,
    /// Files below `/proc/sys/net`, as the network namespace of the container has them, and what to write.
    pub network_settings: Vec<(PathBuf, String)>,
    /// The capabilities of the agent, and the most that any process inside can get, as a bit set.
    pub capabilities: u64,
    /// The filter of system calls, as the kernel's `struct sock_filter`s.
    pub filter: Vec<(u16, u8, u8, u32)>,
    /// The path of the agent inside, and its arguments.
    pub command: Vec<String>,
}

/// A layer below the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layer {
    Directory(PathBuf),
    /// The disk of a snapshot. Its mount comes with the plan.
    Snapshot,
}

/// A cgroup of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupEntry {
    /// The file into which the first process writes its pid. None if it is created in the cgroup.
    pub tasks: Option<PathBuf>,
    /// The cgroup's directory and its mount point inside, if it is visible there.
    pub visible: Option<(PathBuf, PathBuf)>,
}

/// A mount inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub source: MountSource,
    pub target: PathBuf,
    pub flags: MountFlags,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountSource {
    /// A new file system with these parameters.
    New { kind: FileSystem, name: String, parameters: Vec<(String, Option<String>)> },
    /// A file or directory of the host.
    Bind(PathBuf),
    /// A file system in memory with these character devices. The launcher chooses its mode.
    Devices { parameters: Vec<(String, Option<String>)>, nodes: Vec<Node> },
    /// The sandbox's `/sys`: a small file system with parts of a sysfs.
    Sys,
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub major: u32,
    pub minor: u32,
}

/// The file systems that a container gets new ones of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileSystem {
    Proc,
    Tmpfs,
    Devpts,
    Mqueue,
}

/// Restrictions of a mount; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "mount flags are independent")]
pub struct MountFlags {
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
    pub strict_atime: bool,
}

/// What a launcher reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The first process exists, with this pid on the host. Its network namespace comes with the report.
    Forked { pid: i32 },
    /// The agent runs. The root comes with the report, as a mount of its own.
    Done,
    /// A step failed.
    Failed { step: String, error: i32 },
}
