//! The sandboxes on this host, as all calls of the driver use them. Everything here blocks.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once};
use std::time::Duration;

use api::{Isolation, SandboxId};
use base::IgnorePoison;
use driver::{AtStep, DriverError, DriverStep, Hoard, NetworkHook, Presence, SandboxSpec, snapshot_of_layer};

use crate::agents;
use crate::backend::{Backend, Start, Started};
use crate::cgroup::{Cgroups, Leftover, Population};
use crate::description;
use crate::disk::{self, Content};
use crate::ext4::mount_again;
use crate::first_process::kill_first_process;
use crate::growth::Pace;
use crate::layers::SnapshotMounts;
use crate::loopdev::{self, DeviceNumber};
use crate::lxcfs_watch::LxcfsWatch;
use crate::mounts::Mounts;
use crate::paths::{self, Paths, isolation_of, runtime_root};
use crate::placement;
use crate::reap::reap;
use crate::removal::{poll, remove_tree};
use crate::settings::Settings;
use crate::slab_watch::SlabWatch;
use crate::stored_processes::{self, StoredState};

pub const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// A killed process ends only when its system call does, for example a write to a slow disk.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(20);
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The processes of a sandbox that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    New,
    Stored,
}

/// What starts sandboxes, by their isolation.
pub type Backends = BTreeMap<Isolation, Box<dyn Backend>>;

#[derive(Debug)]
pub struct Inner {
    pub settings: Settings,
    pub cgroups: Cgroups,
    pub backends: Backends,
    /// The mounts of sandboxes that this process has started. Without an entry a disk is unmounted when the last process ends.
    mounts: Mutex<HashMap<SandboxId, StartedMounts>>,
    starts: AtomicU64,
    pub snapshots: SnapshotMounts,
    /// Bytes of memory that are being written to the disk.
    pub memory_writes: AtomicU64,
    pub lxcfs: LxcfsWatch,
    pub slabs: SlabWatch,
    pub connection_looks: Mutex<Pace>,
    /// What is not reported yet.
    pub ended_before_pauses: Mutex<Vec<(SandboxId, Hoard)>>,
    /// The first look for hoarders ends what an earlier daemon has begun.
    pub first_look: Once,
    /// The name of the copy of the agent for sandboxes whose processes can be stored. Empty if no backend can.
    agent_name: String,
}

/// The mounts of a sandbox that this process has started.
#[derive(Debug)]
struct StartedMounts {
    /// Differs for each start.
    start: u64,
    mounts: Mounts,
}

/// Tells a mounted disk from those of other starts of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId {
    pub device: DeviceNumber,
    /// The start that mounted it; 0 if an earlier daemon did.
    pub start: u64,
}

/// The disk of a sandbox that is mounted.
#[derive(Debug)]
pub struct MountedDisk {
    pub id: MountId,
    pub mount: OwnedFd,
}

impl Inner {
    pub fn new(settings: Settings, cgroups: Cgroups, backends: Backends) -> io::Result<Self> {
        let can_store = backends.values().any(|backend| backend.release().is_some());
        let agent_name = if can_store { agents::install_copy(&settings)? } else { String::new() };
        let (mounts, starts) = (Mutex::default(), AtomicU64::new(1));
        Ok(Self {
            settings,
            cgroups,
            backends,
            mounts,
            starts,
            snapshots: SnapshotMounts::default(),
            memory_writes: AtomicU64::new(0),
            lxcfs: LxcfsWatch::default(),
            slabs: SlabWatch::of_host()?,
            connection_looks: Mutex::default(),
            ended_before_pauses: Mutex::default(),
            first_look: Once::new(),
            agent_name,
        })
    }

    fn mounts(&self) -> MutexGuard<'_, HashMap<SandboxId, StartedMounts>> {
        self.mounts.lock().ignore_poison()
    }

    pub fn keep_mounts(&self, id: SandboxId, mounts: Mounts) {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        self.mounts().insert(id, StartedMounts { start, mounts });
    }

    /// The disk of a sandbox, if it is mounted.
    pub fn mounted_disk(&self, id: &SandboxId) -> io::Result<Option<MountedDisk>> {
        let own = match self.mounts().get(id) {
            Some(StartedMounts { start, mounts }) => Some((*start, mounts.disk.try_clone()?)),
            None => None,
        };
        if let Some((start, mount)) = own {
            let device = DeviceNumber::of(rustix::fs::fstat(&mount)?.st_dev);
            return Ok(Some(MountedDisk { id: MountId { device, start }, mount }));
        }
        // An earlier daemon started the sandbox, if it runs.
        if self.cgroups.population(id.as_str())? == Population::Empty {
            return Ok(None);
        }
        let disk = Paths::of(&self.settings, id).disk();
        let found = loopdev::find(&disk)?;
        // Its processes use the disk, so it is mounted.
        let device =
            found.ok_or_else(|| io::Error::other("no loop device has the disk of a running sandbox"))?;
        let mount = mount_again(&device.loop_path())?;
        // The device may have got another file before it was mounted.
        if loopdev::find(&disk)? != Some(device) {
            return Err(io::Error::other("the disk of a running sandbox was detached"));
        }
        Ok(Some(MountedDisk { id: MountId { device, start: 0 }, mount }))
    }

    /// The loop device of the disk of a sandbox, if it is mounted. Unlike [`Self::mounted_disk`], this mounts nothing: the kernel refuses
    /// another mount of a file system that has become read-only.
    pub fn disk_device(&self, id: &SandboxId) -> io::Result<Option<DeviceNumber>> {
        if let Some(StartedMounts { mounts, .. }) = self.mounts().get(id) {
            return Ok(Some(DeviceNumber::of(rustix::fs::fstat(&mounts.disk)?.st_dev)));
        }
        // An earlier daemon started the sandbox, if it runs.
        if self.cgroups.population(id.as_str())? == Population::Empty {
            return Ok(None);
        }
        loopdev::find(&Paths::of(&self.settings, id).disk())
    }

    /// Unmounts the disk of a sandbox without processes. Returns when everything is written.
    pub fn unmount_disk(&self, id: &SandboxId) {
        // A statement of its own, so that the map is not locked meanwhile.
        let mounts = self.mounts().remove(id);
        drop(mounts);
    }

    pub fn start(
        &self,
        spec: &SandboxSpec,
        network: Option<&NetworkHook>,
        processes: Processes,
    ) -> Result<Started, DriverError> {
        self.unmount_disk(&spec.id);
        let settings = &self.settings;
        let paths = Paths::of(settings, &spec.id);
        let uid_base = description::uid_base(settings, spec.slot)?;
        make_traversable(&paths.run).at(DriverStep::MakeSandboxDirectory)?;
        // After a power failure the disk of a sandbox that did not sync may be missing. A new disk loses no synced data.
        fs::create_dir_all(&paths.data).at(DriverStep::MakeDiskDirectory)?;
        match processes {
            Processes::New => {
                // They would be older than the disk.
                self.discard_memory(&spec.id)?;
                disk::ensure(settings, &paths, spec.disk_mb, empty_disk(spec))?;
            }
            Processes::Stored if paths.disk().exists() => {}
            Processes::Stored => {
                return Err(DriverError::failed(
                    DriverStep::ContinueProcesses,
                    "the disk of the sandbox is missing",
                ));
            }
        }
        let (isolation, backend) = self.backend_of(spec)?;
        paths::record_isolation(&paths, isolation).at(DriverStep::RecordIsolation)?;
        let cpus = placement::cpus_of(spec);
        let (agent, memory) = match processes {
            Processes::Stored => {
                let memory = stored_processes::find(&paths)?;
                self.check_release(&memory, backend)?;
                (self.restore_agent(&memory, &paths)?, Some(memory))
            }
            Processes::New if backend.release().is_some() => {
                (self.own_agent(&paths, &self.agent_name)?, None)
            }
            Processes::New => (settings.agent.clone(), None),
        };
        let Self { cgroups, snapshots, .. } = self;
        let (cpus, agent, memory) = (cpus.as_str(), agent.as_path(), memory.as_deref());
        let paths = &paths;
        let start =
            Start { settings, cgroups, snapshots, spec, isolation, paths, uid_base, cpus, agent, memory };
        let started = backend.start(&start, network)?;
        if processes == Processes::Stored {
            stored_processes::mark_used(paths).at(DriverStep::MarkUsed)?;
        }
        Ok(started)
    }

    /// What starts a sandbox, and its isolation: the operator may require a stronger one than the sandbox has.
    pub fn backend_of(&self, spec: &SandboxSpec) -> Result<(Isolation, &dyn Backend), DriverError> {
        let isolation = spec.isolation.max(self.settings.minimum_isolation);
        let backend = self.backends.get(&isolation).ok_or_else(|| {
            DriverError::failed(DriverStep::StartSandbox, format!("this host has no isolation '{isolation}'"))
        })?;
        Ok((isolation, backend.as_ref()))
    }

    /// The agent of stored processes. Its token is restored too.
    fn restore_agent(&self, memory: &Path, paths: &Paths) -> Result<PathBuf, DriverError> {
        let name = stored_processes::restore_token(memory, paths)
            .and_then(|()| stored_processes::agent_name(memory));
        let name = name.at(DriverStep::FindStoredAgent)?;
        self.own_agent(paths, &name)
    }

    /// Records which copy of the agent a sandbox runs.
    fn own_agent(&self, paths: &Paths, name: &str) -> Result<PathBuf, DriverError> {
        fs::write(paths.agent_name(), name).at(DriverStep::RecordAgent)?;
        Ok(agents::path(&self.settings, name))
    }

    pub fn presence(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        let paths = Paths::of(&self.settings, id);
        // Before the processes: what is stored is complete, and processes beside it are about to end or have not begun to continue.
        let stored = stored_processes::state(&paths).at(DriverStep::FindStoredProcesses)?;
        match stored {
            StoredState::Complete => return Ok(Presence::Hibernated),
            StoredState::Interrupted(_lock) => self.release_standstill(id, &paths),
            StoredState::None => {}
        }
        let population = self.cgroups.population(id.as_str());
        Ok(match population.at(DriverStep::ReadCgroup)? {
            Population::Running => Presence::Running,
            Population::Frozen => Presence::Paused,
            Population::Empty if paths.data.exists() => Presence::Stopped,
            Population::Empty => Presence::Absent,
        })
    }

    /// Lets processes go on that may stand still because the program that was storing them was killed.
    fn release_standstill(&self, id: &SandboxId, paths: &Paths) {
        if let Some(backend) = self.backends.get(&isolation_of(paths)) {
            backend.release_standstill(&self.settings, id, paths);
        }
        // Only a hint: the next look repeats this.
        let _ = fs::remove_file(paths.hibernation_lock());
    }

    pub fn require(
        &self,
        id: &SandboxId,
        wanted: Population,
        action: &'static str,
    ) -> Result<(), DriverError> {
        let population = self.cgroups.population(id.as_str());
        if population.at(DriverStep::ReadCgroup)? == wanted {
            return Ok(());
        }
        Err(DriverError::InvalidState { id: id.clone(), presence: self.presence(id)?, action })
    }

    pub fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let name = id.as_str();
        let paths = Paths::of(&self.settings, id);
        let first = paths::first_process(&paths);
        // The kernel ends all processes of a namespace with its first one.
        if isolation_of(&paths) == Isolation::Container
            && let Some(pid) = first
            && kill_first_process(&self.cgroups, name, pid).at(DriverStep::KillProcesses)?
        {
            reap(&[pid]);
        }
        let mut seen = Vec::new();
        let empty = poll(KILL_TIMEOUT, || {
            if self.cgroups.population(name)? == Population::Empty {
                return Ok(true);
            }
            seen.extend(self.cgroups.processes(name)?);
            self.cgroups.kill(name)?;
            Ok(self.cgroups.population(name)? == Population::Empty)
        });
        empty.at(DriverStep::KillProcesses)?;
        seen.extend(first);
        reap(&seen);
        // Another process may get the pid now. If the file stays, the next kill checks that the process is in the cgroup.
        let _ = fs::remove_file(paths.first_process());
        Ok(())
    }

    pub fn unlimit_disk(&self, id: &SandboxId, paths: &Paths) {
        let device = fs::read_to_string(paths.disk_device()).ok().and_then(|text| text.parse().ok());
        if let Some(device) = device
            && loopdev::is_free_or_of(device, id.as_str())
            && let Err(error) = self.cgroups.unlimit_disk(id.as_str(), device)
        {
            tracing::warn!(%id, %error, "cannot remove a rate limit of a loop device");
        }
    }

    pub fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let paths = Paths::of(&self.settings, id);
        // Before the kill: once the processes have ended, another sandbox may get the device.
        self.unlimit_disk(id, &paths);
        self.kill(id)?;
        self.unmount_disk(id);
        if let Some(backend) = self.backends.get(&isolation_of(&paths)) {
            backend.clear(&self.settings, id)?;
        }
        // Also of a runtime that an earlier daemon used.
        remove_tree(&runtime_root(&self.settings).join(id.as_str())).at(DriverStep::RemoveRuntimeState)?;
        let removed = poll(REMOVE_TIMEOUT, || Ok(self.cgroups.remove(id.as_str())? == Leftover::None));
        removed.at(DriverStep::RemoveCgroups)?;
        remove_tree(&paths.run).at(DriverStep::RemoveSandboxDirectory)
    }
}

/// What a new disk of a sandbox contains if it is not a copy.
fn empty_disk(spec: &SandboxSpec) -> Content<'_> {
    if spec.layers.iter().any(|layer| snapshot_of_layer(layer).is_some()) {
        Content::Empty
    } else {
        Content::Directories
    }
}

/// What a new disk of a sandbox contains.
pub fn new_disk(spec: &SandboxSpec) -> Content<'_> {
    spec.disk_from.as_deref().map_or_else(|| empty_disk(spec), Content::CopyOf)
}

/// Creates a directory that the container's root, an unprivileged user on the host, can traverse.
fn make_traversable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
}
