//! What an operator may choose about the walls.

use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Which family a runtime belongs to. They share the bundle and differ in how the agent's stream gets out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// `runc`, `crun`, `youki`: the agent inherits a listening socket.
    Native,
    /// gVisor's `runsc`: the agent connects outwards to a socket in a mounted directory.
    Gvisor,
}

/// Rate limits of one sandbox's disk; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskRates {
    pub read_mb_per_s: u32,
    pub write_mb_per_s: u32,
    /// Requests a second, of reads and of writes each.
    pub iops: u32,
}

/// Settings of an [`crate::OciDriver`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The runtime's program.
    pub runtime: PathBuf,
    pub flavour: Flavour,
    /// Further arguments for the runtime, before its verb (`--platform=systrap`, say).
    pub runtime_args: Vec<String>,
    /// The static agent, to be PID 1 of every sandbox.
    pub agent: PathBuf,
    /// Disks, kept over a reboot.
    pub data_dir: PathBuf,
    /// Sockets, bundles and runtime state, gone with a reboot.
    pub run_dir: PathBuf,
    /// Name of the parent cgroup, below the root of every hierarchy.
    pub cgroup_parent: String,
    /// First host user id of slot 0; a slot is 65,536 ids wide.
    pub uid_base: u32,
    /// Processes and threads of one sandbox.
    pub pids_max: u32,
    pub disk_rates: DiskRates,
    /// Memory that all sandboxes together may have, so that they run out of it before the host does.
    pub memory_max_mb: Option<u64>,
    /// Directory of a running lxcfs, whose files then stand over some of `/proc`.
    pub lxcfs: Option<PathBuf>,
    /// Who answers the sandboxes' questions for names. None: `/etc/resolv.conf` is as the image has it.
    pub resolver: Option<Ipv4Addr>,
}

impl Settings {
    /// The flavour that a runtime's file name tells.
    pub fn flavour_of(runtime: &std::path::Path) -> Flavour {
        let name = runtime.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
        if name.starts_with("runsc") { Flavour::Gvisor } else { Flavour::Native }
    }
}
