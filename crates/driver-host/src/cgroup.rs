//! The cgroups of sandboxes: limits, freezer, and the processes inside.
//!
//! Usually the runtime creates them; this module finds them on cgroup v1, v2 and hybrid hosts. The processes of a
//! sandbox are those in its cgroup: no pids have to be stored, and no process of the sandbox can leave it.

mod devices;
mod disk;
mod processors;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::{Isolation, SandboxId};
use driver::{Limits, MemoryKills};

use crate::loopdev::DeviceNumber;
use crate::paths::ids_below;
use crate::settings::DiskRates;

use devices::DeviceProgram;
use disk::RootDiskLimits;

pub use processors::{CPU_PERIOD_US, cpu_quota_us, cpus_of, shares};

const ROOT: &str = "/sys/fs/cgroup";
/// Under v1, the root cgroup in the hierarchy that limits disks.
const ROOT_DISKS: &str = "/sys/fs/cgroup/blkio";

/// The cgroup version of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One hierarchy with all controllers.
    V2,
    /// One hierarchy per controller; a v2 hierarchy beside them has none of the needed controllers.
    V1,
}

/// Reads and writes the cgroups of one driver.
#[derive(Debug, Clone)]
pub struct Cgroups {
    pub layout: Layout,
    parent: String,
    /// Under v2.
    device_program: DeviceProgram,
    /// Under v1.
    disk_limits: RootDiskLimits,
}

/// One cgroup of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupEntry {
    /// The file into which the sandbox's first process, while it is single-threaded, writes its pid. `None` if it is created in
    /// the cgroup.
    pub tasks: Option<PathBuf>,
    /// The directory on the host, and where it is mounted inside.
    pub visible: Option<(PathBuf, PathBuf)>,
}

/// The memory of network connections of one sandbox, of any size: under v1 they get slower beyond it. Enough for two thousand busy ones.
pub const CONNECTION_BYTES: u64 = 128 << 20;
/// The limit of processes of a sandbox that must not fork.
const NO_FORKS: &str = "0";

/// Limits of all sandboxes together. What is left is the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedLimits {
    pub memory_bytes: u64,
    /// Processes and threads.
    pub tasks: u64,
    /// Memory of network connections, which cgroup v1 counts beside the other memory and v2 as a part of it.
    pub tcp_bytes: u64,
}

/// State of a sandbox's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Population {
    Empty,
    Running,
    Frozen,
}

impl Cgroups {
    pub fn of_host(parent: &str) -> Self {
        let layout =
            if Path::new(ROOT).join("cgroup.controllers").exists() { Layout::V2 } else { Layout::V1 };
        Self {
            layout,
            parent: parent.to_owned(),
            device_program: DeviceProgram::default(),
            disk_limits: RootDiskLimits::new(Path::new(ROOT_DISKS)),
        }
    }

    /// The cgroup path for the runtime, the same in every hierarchy.
    pub fn path_for_runtime(&self, name: &str) -> PathBuf {
        Path::new("/").join(&self.parent).join(name)
    }

    fn dir(&self, controller: &str, name: &str) -> PathBuf {
        let base = match self.layout {
            Layout::V2 => PathBuf::from(ROOT),
            Layout::V1 => Path::new(ROOT).join(controller),
        };
        base.join(&self.parent).join(name)
    }

    /// The directory in the freezer's hierarchy, which also lists the processes.
    fn freezer(&self, name: &str) -> PathBuf {
        self.dir("freezer", name)
    }

    pub fn population(&self, name: &str) -> io::Result<Population> {
        let dir = self.freezer(name);
        let procs = match fs::read_to_string(dir.join("cgroup.procs")) {
            Ok(procs) => procs,
            Err(error) if is_gone(&error) => return Ok(Population::Empty),
            Err(error) => return Err(error),
        };
        if procs.trim().is_empty() {
            return Ok(Population::Empty);
        }
        let frozen = match self.layout {
            Layout::V2 => v2::is_freezing(&dir)?,
            Layout::V1 => v1::is_freezing(&dir)?,
        };
        Ok(if frozen { Population::Frozen } else { Population::Running })
    }

    /// The pids of the processes inside, as seen on the host.
    pub fn processes(&self, name: &str) -> io::Result<Vec<i32>> {
        let list = fs::read_to_string(self.freezer(name).join("cgroup.procs"))?;
        Ok(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Freezes every process; returns when all are frozen.
    pub fn freeze(&self, name: &str, timeout: Duration) -> io::Result<()> {
        let dir = self.freezer(name);
        let begin = Instant::now();
        loop {
            let frozen = match self.layout {
                Layout::V2 => v2::freeze(&dir)?,
                Layout::V1 => v1::freeze(&dir)?,
            };
            if frozen {
                return Ok(());
            }
            if begin.elapsed() > timeout {
                self.thaw(name)?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its processes did not freeze in time"));
            }
            // v1 has no event for this.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn thaw(&self, name: &str) -> io::Result<()> {
        let dir = self.freezer(name);
        match self.layout {
            Layout::V2 => v2::thaw(&dir),
            Layout::V1 => v1::thaw(&dir),
        }
    }

    /// Sends SIGKILL to every process inside, without waiting for their end.
    pub fn kill(&self, name: &str) -> io::Result<()> {
        let dir = self.freezer(name);
        let done = match self.layout {
            Layout::V2 => v2::kill(&dir),
            Layout::V1 => v1::kill(&dir),
        };
        match done {
            Err(error) if is_gone(&error) => Ok(()),
            done => done,
        }
    }

    /// Sets the limits of all sandboxes together.
    pub fn limit_all(&self, limits: SharedLimits) -> io::Result<()> {
        match self.layout {
            Layout::V2 => v2::limit_parent(Path::new(ROOT), &self.parent, limits),
            Layout::V1 => v1::limit_parent(|controller| self.dir(controller, ""), limits),
        }
    }

    /// Dirty bytes of the sandbox's files in the page cache; 0 if the kernel does not report them.
    pub fn dirty_bytes(&self, name: &str) -> u64 {
        let (controller, fields) = match self.layout {
            Layout::V2 => ("", ["file_dirty ", "file_writeback "]),
            Layout::V1 => ("memory", ["total_dirty ", "total_writeback "]),
        };
        let text = fs::read_to_string(self.dir(controller, name).join("memory.stat")).unwrap_or_default();
        let value =
            |line: &str| fields.iter().find_map(|field| line.strip_prefix(field)?.parse::<u64>().ok());
        text.lines().filter_map(value).sum()
    }

    /// CPU time in µs, memory with page cache, and page cache, in bytes; `None` if the cgroup is gone.
    pub fn usage(&self, name: &str) -> Option<(u64, u64, u64)> {
        let read =
            |controller: &str, file: &str| fs::read_to_string(self.dir(controller, name).join(file)).ok();
        let number = |text: String| text.trim().parse::<u64>().ok();
        let field = |text: String, field: &str| {
            text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' ')?.parse::<u64>().ok())
        };
        match self.layout {
            Layout::V2 => Some((
                field(read("", "cpu.stat")?, "usage_usec")?,
                number(read("", "memory.current")?)?,
                field(read("", "memory.stat")?, "file")?,
            )),
            Layout::V1 => Some((
                number(read("cpuacct", "cpuacct.usage")?)? / 1000,
                number(read("memory", "memory.usage_in_bytes")?)?,
                field(read("memory", "memory.stat")?, "total_cache")?,
            )),
        }
    }

    /// The processes inside that the kernel killed for lack of memory; `None` if the cgroup is gone, or the kernel does not count.
    pub fn memory_kills(&self, name: &str) -> Option<MemoryKills> {
        match self.layout {
            Layout::V2 => v2::memory_kills(&self.dir("", name)),
            Layout::V1 => v1::memory_kills(&self.dir("memory", name)),
        }
    }

    /// Moves up to `bytes` of the memory of a frozen sandbox to the host's swap space.
    pub fn page_out(&self, name: &str, bytes: u64) -> io::Result<()> {
        match self.layout {
            Layout::V2 => v2::page_out(&self.dir("", name), bytes),
            Layout::V1 => v1::page_out(&self.dir("memory", name)),
        }
    }

    /// Sets the limits of a sandbox.
    pub fn limit(&self, name: &str, limits: Limits, cpus: &str) -> io::Result<()> {
        match self.layout {
            Layout::V2 => v2::limit(&self.dir("", name), limits, cpus),
            Layout::V1 => v1::limit(|controller| self.dir(controller, name), limits, cpus),
        }
    }

    /// What the connections of a sandbox hold that are charged to it.
    pub fn connection_bytes(&self, name: &str) -> io::Result<u64> {
        match self.layout {
            Layout::V2 => v2::connection_bytes(&self.dir("", name)),
            Layout::V1 => v1::connection_bytes(&self.dir("memory", name)),
        }
    }

    /// Limits the memory of a sandbox's connections, for a backend whose runtime creates the cgroups. Under v2 it is part of the other
    /// memory.
    pub fn limit_connections(&self, name: &str) -> io::Result<()> {
        match self.layout {
            Layout::V2 => Ok(()),
            Layout::V1 => v1::limit_connections(&self.dir("memory", name)),
        }
    }

    /// Sets the rate limits of a sandbox's disk.
    pub fn limit_disk(&self, name: &str, device: DeviceNumber, rates: DiskRates) -> io::Result<()> {
        let dir = self.dir("blkio", name);
        match self.layout {
            Layout::V2 => disk::limit_v2(&dir, device, rates),
            Layout::V1 => self.disk_limits.set(&dir, device, rates),
        }
    }

    /// Removes the rate limits that would outlive the sandbox.
    pub fn unlimit_disk(&self, name: &str, device: DeviceNumber) -> io::Result<()> {
        match self.layout {
            Layout::V2 => Ok(()),
            Layout::V1 => self.disk_limits.remove(&self.dir("blkio", name), device),
        }
    }

    /// Removes the rate limits of sandboxes whose daemon was killed: at once, or when their device is used next.
    pub fn unlimit_free_disks(&self) -> io::Result<()> {
        match self.layout {
            Layout::V2 => Ok(()),
            Layout::V1 => self.disk_limits.remove_stale(),
        }
    }

    /// Creates the cgroups with limits, for a backend whose runtime does not. Processes enter them by [`Self::entry_files`],
    /// or by [`Self::entries`] and [`Self::open_for_fork`], which are called when the disk has its limits.
    ///
    /// The devices of a container are limited, but not those of gVisor's kernel, which may need that of KVM.
    pub fn create(
        &self,
        name: &str,
        isolation: Isolation,
        limits: Limits,
        cpus: &str,
        pids_max: u32,
    ) -> io::Result<()> {
        match self.layout {
            Layout::V2 => {
                v2::create(Path::new(ROOT), &self.parent, name, pids_max)?;
                if isolation == Isolation::Container {
                    self.device_program.limit(&self.dir("", name))?;
                }
            }
            Layout::V1 => v1::create(|controller, name| self.dir(controller, name), name, pids_max)?,
        }
        self.limit(name, limits, cpus)
    }

    /// Keeps the processes of a sandbox from starting others. Returns what [`Self::allow_forks`] takes.
    pub fn forbid_forks(&self, name: &str) -> io::Result<String> {
        let file = self.dir("pids", name).join("pids.max");
        let before = fs::read_to_string(&file)?;
        fs::write(&file, NO_FORKS)?;
        Ok(before)
    }

    /// `before` is the earlier limit; if forks were forbidden then, too, the limit is `otherwise`.
    pub fn allow_forks(&self, name: &str, before: &str, otherwise: u32) -> io::Result<()> {
        let most = match before.trim() {
            NO_FORKS => otherwise.to_string(),
            before => before.to_owned(),
        };
        fs::write(self.dir("pids", name).join("pids.max"), most)
    }

    /// Allows forks again that a daemon has forbidden before it crashed.
    pub fn restore_forks(&self, name: &str, most: u32) -> io::Result<()> {
        match fs::read_to_string(self.dir("pids", name).join("pids.max"))?.trim() {
            NO_FORKS => self.allow_forks(name, NO_FORKS, most),
            _ => Ok(()),
        }
    }

    /// The files into which a process writes its pid to join the sandbox's cgroups, except the one that limits devices.
    pub fn entry_files(&self, name: &str) -> Vec<PathBuf> {
        match self.layout {
            Layout::V2 => vec![self.dir("", name).join("cgroup.procs")],
            Layout::V1 => v1::entry_files(|controller, name| self.dir(controller, name), name),
        }
    }

    /// The cgroups of a sandbox as its first process enters and sees them.
    pub fn entries(&self, name: &str) -> Vec<CgroupEntry> {
        let inside = PathBuf::from(ROOT);
        match self.layout {
            Layout::V2 => vec![CgroupEntry { tasks: None, visible: Some((self.dir("", name), inside)) }],
            Layout::V1 => v1::entries(|controller, name| self.dir(controller, name), name, &inside),
        }
    }

    /// The files inside that may have the quota of processor time, and what they show: the whole time of the processors. Many programs
    /// divide the quota by the period and round down to find how many threads to start.
    pub fn shown_quota(&self, cpu: u32) -> (Vec<PathBuf>, String) {
        let whole = u64::from(cpu) * CPU_PERIOD_US;
        match self.layout {
            Layout::V2 => (vec![Path::new(ROOT).join("cpu.max")], format!("{whole} {CPU_PERIOD_US}\n")),
            Layout::V1 => (v1::quota_files(Path::new(ROOT)).to_vec(), format!("{whole}\n")),
        }
    }

    /// The cgroup in which a process can be created. `None` under v1, where a process enters its cgroups afterwards.
    pub fn open_for_fork(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        match self.layout {
            Layout::V2 => Ok(Some(fs::File::open(self.dir("", name))?.into())),
            Layout::V1 => Ok(None),
        }
    }

    /// Removes empty cgroups. Returns whether any is left.
    pub fn remove(&self, name: &str) -> io::Result<Leftover> {
        let mut leftover = Leftover::None;
        for dir in self.every_dir(name) {
            match remove_tree(&dir) {
                Ok(()) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => leftover = Leftover::Some,
                Err(error) => return Err(error),
            }
        }
        Ok(leftover)
    }

    /// The sandboxes that have a cgroup in any hierarchy.
    pub fn sandboxes(&self) -> io::Result<BTreeSet<SandboxId>> {
        let mut ids = BTreeSet::new();
        for dir in self.every_dir("") {
            match ids_below::<SandboxId>(&dir) {
                Ok(found) => ids.extend(found),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ids)
    }

    /// The sandbox's directory in every hierarchy, also in those that only the runtime uses.
    fn every_dir(&self, name: &str) -> Vec<PathBuf> {
        if self.layout == Layout::V2 {
            return vec![self.dir("", name)];
        }
        let Ok(hierarchies) = fs::read_dir(ROOT) else { return Vec::new() };
        hierarchies.flatten().map(|entry| entry.path().join(&self.parent).join(name)).collect()
    }
}

/// Whether a cgroup could not be removed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    None,
    Some,
}

/// Removes a cgroup after its subdirectories. The files of a cgroup need not be removed.
fn remove_tree(dir: &Path) -> io::Result<()> {
    // Most have no subdirectories. With some, or with processes, the kernel answers EBUSY or ENOTEMPTY.
    match fs::remove_dir(dir) {
        Err(error) if !is_gone(&error) => {}
        done => return done,
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

/// The kernel reports memory that it could not move to swap.
fn as_far_as_possible(moved: io::Result<()>) -> io::Result<()> {
    match moved {
        Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock) => {
            Ok(())
        }
        moved => moved,
    }
}

/// Whether the cgroup was removed: its files are not found, or open ones give ENODEV.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
