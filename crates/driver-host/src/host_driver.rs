//! The driver, for all backends: each call runs on a thread that may block.
//!
//! ```text
//! sandboxes        creates, freezes, limits and removes sandboxes
//! start            starts a sandbox, or continues its stored processes
//! disks            the disks of sandboxes, and snapshots
//! snapshot_copy    copies a disk for a snapshot while it is in use
//! hibernation      stores processes
//! ```

mod disks;
mod hibernation;
mod sandboxes;
mod snapshot_copy;
mod start;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use api::{Isolation, SandboxId, SnapshotId};
use driver::{AtStep, DriverError, DriverStep, Presence, SandboxSpec};

use crate::agent::copies;
use crate::backend::Backend;
use crate::cgroup::{Cgroups, Population};
use crate::description::write_resolv_conf;
use crate::disk::{self, MountedDisks, SnapshotMounts};
use crate::hoarders::Hoarders;
use crate::kernel_tables::shared_limits;
use crate::paths::{
    Paths, bundles_dir, isolation_of, mount_place, runtime_root, sandboxes_dir, snapshots_dir, templates_dir,
};
use crate::processes::{self, become_subreaper};
use crate::settings::Settings;
use crate::snapshot::SnapshotDir;
use crate::stored_processes::{self, StoredState};

const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);

/// What starts sandboxes, by their isolation.
pub type Backends = BTreeMap<Isolation, Box<dyn Backend>>;

/// The sandboxes on this host.
#[derive(Debug, Clone)]
pub struct HostDriver {
    host: Arc<HostState>,
}

/// What the calls share.
#[derive(Debug)]
struct HostState {
    settings: Settings,
    cgroups: Cgroups,
    backends: Backends,
    disks: MountedDisks,
    snapshots: SnapshotMounts,
    hoarders: Hoarders,
    /// Bytes of memory that are being written to the disk.
    memory_writes: AtomicU64,
    /// The name of the copy of the agent for sandboxes whose processes can be stored. Empty if no backend can.
    agent_name: String,
}

impl HostDriver {
    /// Creates the shared directories.
    pub fn new(settings: Settings, backends: Backends) -> Result<Self, DriverError> {
        let host = prepare(settings, backends).at(DriverStep::PrepareDirectories)?;
        Ok(Self { host: Arc::new(host) })
    }

    /// Removes the shared directories and cgroups if no sandbox is left. The driver must not be used afterwards.
    pub async fn retire(&self) -> Result<(), DriverError> {
        self.blocking(|host| host.retire().at(DriverStep::RemoveDirectories)).await
    }

    /// Runs blocking work on the runtime's pool of blocking threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&HostState) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, DriverError> {
        let host = Arc::clone(&self.host);
        base::blocking(move || work(&host)).await
    }

    /// Runs blocking work on one sandbox or snapshot.
    async fn run<S: Clone + Send + 'static, T: Send + 'static>(
        &self,
        subject: &S,
        work: impl FnOnce(&HostState, &S) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, DriverError> {
        let subject = subject.clone();
        self.blocking(move |host| work(host, &subject)).await
    }
}

fn prepare(settings: Settings, backends: Backends) -> io::Result<HostState> {
    for (dir, mode) in [
        // The containers' root users need to traverse these directories, but not to list them.
        (settings.run_dir.clone(), 0o711),
        (bundles_dir(&settings), 0o711),
        (runtime_root(&settings), 0o700),
        (mount_place(&settings), 0o711),
        (sandboxes_dir(&settings), 0o700),
        (snapshots_dir(&settings), 0o700),
        (templates_dir(&settings), 0o700),
    ] {
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode))?;
    }
    disk::clear_unfinished(&settings)?;
    write_resolv_conf(&settings)?;
    become_subreaper()?;
    let cgroups = Cgroups::of_host(&settings.cgroup_parent);
    if let Some(megabytes) = settings.memory_max_mb {
        cgroups.limit_all(shared_limits(megabytes))?;
    }
    if let Err(error) = cgroups.unlimit_free_disks() {
        tracing::warn!(%error, "cannot remove the rate limits of an earlier daemon");
    }
    let can_store = backends.values().any(|backend| backend.release().is_some());
    Ok(HostState {
        agent_name: if can_store { copies::install_copy(&settings)? } else { String::new() },
        disks: MountedDisks::new(&settings, &cgroups),
        hoarders: Hoarders::new(&settings, &cgroups)?,
        snapshots: SnapshotMounts::default(),
        memory_writes: AtomicU64::new(0),
        settings,
        cgroups,
        backends,
    })
}

impl HostState {
    fn retire(&self) -> io::Result<()> {
        // The empty name stands for the parent cgroup.
        self.cgroups.remove("")?;
        let settings = &self.settings;
        for dir in
            [bundles_dir(settings), runtime_root(settings), mount_place(settings), settings.run_dir.clone()]
        {
            match base::allow_missing(fs::remove_dir(&dir)) {
                // It is in use.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    fn paths(&self, id: &SandboxId) -> Paths {
        Paths::of(&self.settings, id)
    }

    fn snapshot(&self, id: &SnapshotId) -> SnapshotDir {
        SnapshotDir::of(&self.settings, id)
    }

    /// What starts a sandbox, and its isolation: the operator may require a stronger one than the sandbox has.
    fn backend_for(&self, spec: &SandboxSpec) -> Result<(Isolation, &dyn Backend), DriverError> {
        let isolation = spec.isolation.max(self.settings.minimum_isolation);
        let backend = self.backends.get(&isolation).ok_or_else(|| {
            DriverError::failed(DriverStep::StartSandbox, format!("this host has no isolation '{isolation}'"))
        })?;
        Ok((isolation, backend.as_ref()))
    }

    /// What has started a sandbox.
    fn backend_of(&self, paths: &Paths) -> Option<&dyn Backend> {
        self.backends.get(&isolation_of(paths)).map(AsRef::as_ref)
    }

    fn presence(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        let paths = self.paths(id);
        // Before the processes: what is stored is complete, and processes beside it are about to end or have not begun to continue.
        match stored_processes::state(&paths).at(DriverStep::ReadStoredProcesses)? {
            StoredState::Complete => return Ok(Presence::Hibernated),
            StoredState::Interrupted(_lock) => self.release_standstill(id, &paths),
            StoredState::None => {}
        }
        Ok(match self.population(id)? {
            Population::Running => Presence::Running,
            Population::Frozen => Presence::Paused,
            Population::Empty if paths.data.exists() => Presence::Stopped,
            Population::Empty => Presence::Absent,
        })
    }

    fn population(&self, id: &SandboxId) -> Result<Population, DriverError> {
        self.cgroups.population(id.as_str()).at(DriverStep::ReadCgroup)
    }

    /// Lets processes go on that may stand still because the program that was storing them was killed.
    fn release_standstill(&self, id: &SandboxId, paths: &Paths) {
        if let Some(backend) = self.backend_of(paths) {
            backend.release_standstill(&self.settings, id, paths);
        }
        // Only a hint: the next look repeats this.
        let _ = fs::remove_file(paths.hibernation_lock());
    }

    /// Fails if the processes of a sandbox are not as `action` needs them.
    fn require(&self, id: &SandboxId, wanted: Population, action: &'static str) -> Result<(), DriverError> {
        if self.population(id)? == wanted { Ok(()) } else { Err(self.refusal(id, action)) }
    }

    /// The refusal of an action that the state of a sandbox does not allow.
    fn refusal(&self, id: &SandboxId, action: &'static str) -> DriverError {
        match self.presence(id) {
            Ok(presence) => DriverError::InvalidState { id: id.clone(), presence, action },
            Err(error) => error,
        }
    }

    fn freeze(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.cgroups.freeze(id.as_str(), FREEZE_TIMEOUT).at(DriverStep::Freeze)
    }

    fn thaw(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.cgroups.thaw(id.as_str()).at(DriverStep::Thaw)
    }

    fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        processes::kill(&self.cgroups, id.as_str(), &self.paths(id)).at(DriverStep::KillProcesses)
    }

    /// Kills the processes of a sandbox and unmounts its disk.
    fn end_processes(&self, id: &SandboxId, paths: &Paths) -> Result<(), DriverError> {
        // Before the kill: once the processes have ended, another sandbox may get the device.
        self.disks.unlimit(id, paths);
        self.kill(id)?;
        self.disks.unmount(id);
        Ok(())
    }
}
