//! The paths of a sandbox: one directory that survives a reboot, and one that does not.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use api::{Isolation, SandboxId, SnapshotId};

use crate::removal::remove_if_exists;
use crate::settings::Settings;

/// The disk, in the directory of a sandbox.
const DISK: &str = "disk.img";
/// Directories of the data directory.
const SANDBOXES: &str = "sandboxes";
const SNAPSHOTS: &str = "snapshots";

/// The paths of one sandbox.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Survives a reboot.
    pub data: PathBuf,
    /// Does not survive a reboot.
    pub run: PathBuf,
}

impl Paths {
    pub fn of(settings: &Settings, id: &SandboxId) -> Self {
        Self { data: sandboxes_dir(settings).join(id.as_str()), run: bundles_dir(settings).join(id.as_str()) }
    }

    pub fn disk(&self) -> PathBuf {
        self.data.join(DISK)
    }

    /// The disk is made under this name and renamed when complete.
    pub fn unfinished_disk(&self) -> PathBuf {
        self.data.join("disk.img.new")
    }

    /// The disk that replaces the current one when it is adopted.
    pub fn prepared_disk(&self) -> PathBuf {
        self.data.join("disk.img.next")
    }

    /// Directory with the stored processes of a hibernated sandbox.
    pub fn memory(&self) -> PathBuf {
        self.data.join("memory")
    }

    /// The processes are stored here, and the directory is renamed when that is complete.
    pub fn unfinished_memory(&self) -> PathBuf {
        self.data.join("memory.new")
    }

    /// The stored processes that replace the current ones when the prepared disk is adopted.
    pub fn prepared_memory(&self) -> PathBuf {
        self.data.join("memory.next")
    }

    /// The stored processes of a sandbox that was woken, until its record says so.
    pub fn used_memory(&self) -> PathBuf {
        self.data.join("memory.used")
    }

    /// Locked as long as a process stores the sandbox's processes.
    pub fn hibernation_lock(&self) -> PathBuf {
        self.run.join("hibernation.lock")
    }

    /// The name of the copy of the agent that it runs.
    pub fn agent_name(&self) -> PathBuf {
        self.run.join("agent.name")
    }

    pub fn socket(&self) -> PathBuf {
        self.run.join("agent.sock")
    }

    /// Directory with the socket that the agent of a gVisor sandbox connects to if an earlier version has started it.
    pub fn link_dir(&self) -> PathBuf {
        self.run.join("link")
    }

    pub fn token(&self) -> PathBuf {
        self.run.join("token")
    }

    /// The name of the isolation with which it was started.
    pub fn isolation(&self) -> PathBuf {
        self.run.join("isolation")
    }

    pub fn runtime_log(&self) -> PathBuf {
        self.run.join("runtime.log")
    }

    pub fn agent_log(&self) -> PathBuf {
        self.run.join("agent.log")
    }

    pub fn first_process(&self) -> PathBuf {
        self.run.join("first.pid")
    }

    /// The number of the loop device under the disk.
    pub fn disk_device(&self) -> PathBuf {
        self.run.join("disk.device")
    }
}

pub fn sandboxes_dir(settings: &Settings) -> PathBuf {
    settings.data_dir.join(SANDBOXES)
}

/// Has a directory for each snapshot.
pub fn snapshots_dir(settings: &Settings) -> PathBuf {
    settings.data_dir.join(SNAPSHOTS)
}

/// Copies of the agent that sandboxes run whose processes can be stored: a program must not change while it is stored.
pub fn agents_dir(settings: &Settings) -> PathBuf {
    settings.data_dir.join("agents")
}

pub fn templates_dir(settings: &Settings) -> PathBuf {
    settings.data_dir.join("templates")
}

pub fn bundles_dir(settings: &Settings) -> PathBuf {
    settings.run_dir.join("sandboxes")
}

/// State of OCI runtimes.
pub fn runtime_root(settings: &Settings) -> PathBuf {
    settings.run_dir.join("runtime")
}

/// An empty directory over which each start mounts its file systems, in a mount namespace of its own.
pub fn mount_place(settings: &Settings) -> PathBuf {
    settings.run_dir.join("mounts")
}

/// The `/etc/resolv.conf` of sandboxes.
pub fn resolv_conf(settings: &Settings) -> PathBuf {
    settings.run_dir.join("resolv.conf")
}

/// The host's pid of the first process of a sandbox, from the file that its backend wrote; the process may have ended.
pub fn first_process(paths: &Paths) -> Option<i32> {
    std::fs::read_to_string(paths.first_process()).ok()?.trim().parse().ok()
}

/// Records the isolation of a sandbox that starts. No file means a container, which saves one for most sandboxes.
pub fn record_isolation(paths: &Paths, isolation: Isolation) -> io::Result<()> {
    match isolation {
        Isolation::Container => {
            remove_if_exists(&paths.isolation())?;
            remove_if_exists(&paths.token())
        }
        Isolation::Gvisor => fs::write(paths.isolation(), isolation.name()),
    }
}

/// The isolation of a started sandbox. Sandboxes of the first versions have no file for it, but those under gVisor have a token.
pub fn isolation_of(paths: &Paths) -> Isolation {
    match std::fs::read_to_string(paths.isolation()) {
        Ok(name) if name == Isolation::Gvisor.name() => Isolation::Gvisor,
        Err(_) if paths.token().exists() => Isolation::Gvisor,
        _ => Isolation::Container,
    }
}

/// The sandboxes and snapshots that have a disk in a data directory, whether or not anything records them. Reads names only, for a caller
/// that must know before there is a driver.
pub fn disks_in(data_dir: &Path) -> io::Result<(Vec<SandboxId>, Vec<SnapshotId>)> {
    Ok((ids_below(&data_dir.join(SANDBOXES))?, ids_below(&data_dir.join(SNAPSHOTS))?))
}

/// Bytes that the disk of a sandbox in a data directory occupies; 0 if there is none.
pub fn disk_bytes_in(data_dir: &Path, id: &SandboxId) -> u64 {
    let disk = data_dir.join(SANDBOXES).join(id.as_str()).join(DISK);
    fs::metadata(disk).map_or(0, |metadata| metadata.blocks().saturating_mul(512))
}

/// The ids that have a directory below `dir`.
pub fn ids_below<T: FromStr>(dir: &Path) -> io::Result<Vec<T>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut ids = Vec::new();
    for entry in entries {
        if let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            ids.push(id);
        }
    }
    Ok(ids)
}
