//! The sandbox's cgroups as the host sees them: limits, freezer, and who is inside.
//!
//! The runtime makes them; this module finds them on cgroup v1, v2 and hybrid hosts. What is in a cgroup is the truth about
//! what lives in a sandbox: it needs no process ids remembered and cannot be left by anyone inside.

mod disk;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use driver::Limits;

use crate::loopdev::DeviceNumber;
use crate::settings::DiskRates;

pub const CPU_PERIOD_US: u64 = 100_000;
const ROOT: &str = "/sys/fs/cgroup";

/// How this host arranges its cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One hierarchy with all controllers.
    V2,
    /// A hierarchy a controller; a v2 hierarchy beside them has none of the controllers we need.
    V1,
}

/// Reads and writes the cgroups of one driver.
#[derive(Debug, Clone)]
pub struct Cgroups {
    pub layout: Layout,
    parent: String,
}

/// What of a sandbox's processes there is.
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
        Self { layout, parent: parent.to_owned() }
    }

    /// The path a runtime is told, the same in every hierarchy.
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

    /// The directory in the hierarchy that freezes, which also says who is inside.
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

    /// The host's numbers of the processes inside.
    pub fn processes(&self, name: &str) -> io::Result<Vec<i32>> {
        let list = fs::read_to_string(self.freezer(name).join("cgroup.procs"))?;
        Ok(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Stops every process; returns when all stand still.
    pub fn freeze(&self, name: &str, patience: Duration) -> io::Result<()> {
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
            if begin.elapsed() > patience {
                self.thaw(name)?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its processes did not come to a stop"));
            }
            // The kernel gives no sign on v1; most freezes are done on the first look.
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

    /// Sends SIGKILL to every process inside. They may take a moment to be gone.
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

    /// Sets the memory that all sandboxes together may have.
    pub fn limit_all(&self, megabytes: u64) -> io::Result<()> {
        let bytes = megabytes << 20;
        match self.layout {
            Layout::V2 => v2::limit_parent(Path::new(ROOT), &self.parent, bytes),
            Layout::V1 => {
                let dir = self.dir("memory", "");
                fs::create_dir_all(&dir)?;
                v1::limit_memory(&dir, bytes)
            }
        }
    }

    /// Sets what a sandbox may use.
    pub fn limit(&self, name: &str, limits: Limits, cpus: &str) -> io::Result<()> {
        match self.layout {
            Layout::V2 => v2::limit(&self.dir("", name), limits, cpus),
            Layout::V1 => v1::limit(|controller| self.dir(controller, name), limits, cpus),
        }
    }

    /// Sets the rate limits of a sandbox's disk.
    pub fn limit_disk(&self, name: &str, device: DeviceNumber, rates: DiskRates) -> io::Result<()> {
        let dir = self.dir("blkio", name);
        match self.layout {
            Layout::V2 => disk::limit_v2(&dir, device, rates),
            Layout::V1 => disk::limit_v1(&Path::new(ROOT).join("blkio"), &dir, device, rates),
        }
    }

    /// Removes those rate limits that would outlive the sandbox.
    pub fn unlimit_disk(&self, device: DeviceNumber) -> io::Result<()> {
        match self.layout {
            Layout::V2 => Ok(()),
            Layout::V1 => disk::unlimit_v1(&Path::new(ROOT).join("blkio"), device),
        }
    }

    /// Makes the cgroups with limits, for a runtime that does not. The caller then adds a process to [`Self::entry_files`].
    pub fn make(&self, name: &str, limits: Limits, cpus: &str, pids_max: u32) -> io::Result<()> {
        match self.layout {
            Layout::V2 => v2::make(Path::new(ROOT), &self.parent, name, pids_max)?,
            Layout::V1 => v1::make(|controller| self.dir(controller, name), pids_max)?,
        }
        self.limit(name, limits, cpus)
    }

    /// The files into which a process writes its id to be in the sandbox's cgroups.
    pub fn entry_files(&self, name: &str) -> Vec<PathBuf> {
        match self.layout {
            Layout::V2 => vec![self.dir("", name).join("cgroup.procs")],
            Layout::V1 => v1::CONTROLLERS
                .iter()
                .map(|controller| self.dir(controller, name).join("cgroup.procs"))
                .collect(),
        }
    }

    /// Removes what is empty. Whether anything is left is the answer.
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

    /// The names that have a cgroup in any hierarchy.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = std::collections::BTreeSet::new();
        for dir in self.every_dir("") {
            match fs::read_dir(&dir) {
                Ok(entries) => {
                    for entry in entries {
                        let entry = entry?;
                        if entry.file_type()?.is_dir() {
                            names.extend(entry.file_name().into_string());
                        }
                    }
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names.into_iter().collect())
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

/// Whether something could not be removed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    None,
    Some,
}

/// cgroup directories below come first; their files cannot be removed and need not be.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

/// A cgroup may go between a look and a touch: then the file is not found, or its open handle has no device any more.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// Shares follow the number of processors, so that a loaded host divides itself fairly.
pub fn shares(cpu: u32) -> u64 {
    u64::from(cpu) * 1024
}
