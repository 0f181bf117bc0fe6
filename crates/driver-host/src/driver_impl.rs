//! Implements the trait [`Driver`] for all backends: each call runs on a thread that may block.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{Isolation, SandboxId};
use async_trait::async_trait;
use driver::{ByteStream, DiskUse, Driver, DriverError, NetworkHook, Presence, ResourceUse, SandboxSpec};

use crate::backend::{Backend, Mounts, Start, Started};
use crate::cgroup::{Cgroups, Leftover, Population};
use crate::description;
use crate::disk;
use crate::first_process::kill_first_process;
use crate::link;
use crate::loopdev;
use crate::names;
use crate::paths::{
    self, Paths, bundles_dir, ids_below, isolation_of, mount_place, runtime_root, sandboxes_dir,
    templates_dir,
};
use crate::placement;
use crate::reap::{become_subreaper, reap};
use crate::settings::Settings;

const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// A killed process ends only when its system call does, for example a write to a slow disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The sandboxes on this host.
#[derive(Debug, Clone)]
pub struct HostDriver {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    cgroups: Cgroups,
    backends: Backends,
    /// The mounts of sandboxes that this process has started. Without an entry a disk is unmounted when the last process ends.
    mounts: Mutex<HashMap<SandboxId, Mounts>>,
}

/// What starts sandboxes, by their isolation.
pub type Backends = BTreeMap<Isolation, Box<dyn Backend>>;

impl HostDriver {
    /// Creates the shared directories.
    pub fn new(settings: Settings, backends: Backends) -> Result<Self, DriverError> {
        let failed = |error: io::Error| DriverError::failed("prepare the driver's directories", error);
        for (dir, mode) in [
            // The containers' root users need to traverse these directories, but not to list them.
            (settings.run_dir.clone(), 0o711),
            (bundles_dir(&settings), 0o711),
            (runtime_root(&settings), 0o700),
            (mount_place(&settings), 0o711),
            (sandboxes_dir(&settings), 0o700),
            (templates_dir(&settings), 0o700),
        ] {
            fs::create_dir_all(&dir).map_err(failed)?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).map_err(failed)?;
        }
        disk::clear_unfinished(&settings).map_err(failed)?;
        names::write(&settings).map_err(failed)?;
        become_subreaper().map_err(failed)?;
        let cgroups = Cgroups::of_host(&settings.cgroup_parent);
        if let Some(megabytes) = settings.memory_max_mb {
            cgroups.limit_all(megabytes).map_err(failed)?;
        }
        if let Err(error) = cgroups.unlimit_free_disks() {
            tracing::warn!(%error, "cannot remove the rate limits of an earlier daemon");
        }
        Ok(Self { inner: Arc::new(Inner { settings, cgroups, backends, mounts: Mutex::default() }) })
    }

    /// Removes the shared directories and cgroups if no sandbox is left. The driver must not be used afterwards.
    pub async fn retire(&self) -> Result<(), DriverError> {
        self.blocking(|inner| {
            let failed = |error: io::Error| DriverError::failed("remove the driver's directories", error);
            // The empty name stands for the parent cgroup.
            inner.cgroups.remove("").map_err(failed)?;
            for dir in [
                bundles_dir(&inner.settings),
                runtime_root(&inner.settings),
                mount_place(&inner.settings),
                inner.settings.run_dir.clone(),
            ] {
                // A directory that is not empty is in use.
                match fs::remove_dir(&dir) {
                    Err(error)
                        if !matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                        ) =>
                    {
                        return Err(failed(error));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }

    /// Runs blocking work on the runtime's pool of blocking threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, DriverError> {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(result) => result,
            Err(error) => Err(DriverError::failed("run a step of the driver", error)),
        }
    }
}

#[async_trait]
impl Driver for HostDriver {
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let spec = spec.clone();
        self.blocking(move |inner| {
            let paths = Paths::of(&inner.settings, &spec.id);
            fs::create_dir_all(&paths.data)
                .map_err(|error| DriverError::failed("make the disk's directory", error))?;
            disk::ensure(&inner.settings, &paths, spec.disk_mb)
        })
        .await
    }

    async fn start(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        let spec = spec.clone();
        let inner = Arc::clone(&self.inner);
        let (done, wait) = tokio::sync::oneshot::channel();
        // Not on a pooled thread: it cannot return to the host's namespaces.
        std::thread::Builder::new()
            .name("launch".to_owned())
            .spawn(move || {
                let (result, helper) = match inner.start(&spec, network.as_ref()) {
                    Ok(Started { mounts, helper }) => {
                        inner.mounts().insert(spec.id, mounts);
                        (Ok(()), helper)
                    }
                    Err(error) => (Err(error), None),
                };
                // Fails if the create was cancelled; its caller then destroys the sandbox.
                let _ = done.send(result);
                drop(helper);
            })
            .map_err(|source| DriverError::Exhausted { what: "threads", source })?;
        wait.await.unwrap_or_else(|_| {
            Err(DriverError::failed("start the sandbox", "the launching thread panicked"))
        })
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.require(&id, Population::Running, "pause")?;
            let frozen = inner.cgroups.freeze(id.as_str(), FREEZE_TIMEOUT);
            frozen.map_err(|error| DriverError::failed("freeze the sandbox", error))
        })
        .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.require(&id, Population::Frozen, "resume")?;
            inner.cgroups.thaw(id.as_str()).map_err(|error| DriverError::failed("thaw the sandbox", error))
        })
        .await
    }

    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let spec = spec.clone();
        self.blocking(move |inner| {
            let limited = inner.cgroups.limit(spec.id.as_str(), spec.limits, &placement::cpus_of(&spec));
            limited.map_err(|error| DriverError::failed("set the sandbox's limits", error))
        })
        .await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.kill(&id)).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.stop(&id)).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            // Deleting the disk first saves its last writes to the host's disk.
            let data = Paths::of(&inner.settings, &id).data;
            let removed = remove_tree(&data).map_err(|error| DriverError::failed("remove the disk", error));
            // Ends the processes even if the disk cannot be removed.
            inner.stop(&id)?;
            removed
        })
        .await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError> {
        let paths = Paths::of(&self.inner.settings, id);
        let is_empty = || matches!(self.inner.cgroups.population(id.as_str()), Ok(Population::Empty));
        match link::connect(isolation_of(&paths), &paths, is_empty).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(DriverError::failed("connect to the agent", error)),
        }
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.presence(&id)).await
    }

    async fn last_seen_running_ms(&self, id: &SandboxId) -> Result<Option<u64>, DriverError> {
        // Asked after a restart of the daemon: what it held open is closed, and the disk was not written after the last process ended.
        let disk = Paths::of(&self.inner.settings, id).disk();
        self.blocking(move |_| {
            let written = fs::metadata(&disk).and_then(|metadata| metadata.modified()).ok();
            let since_epoch = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            Ok(since_epoch.and_then(|duration| u64::try_from(duration.as_millis()).ok()))
        })
        .await
    }

    async fn isolation(&self, id: &SandboxId) -> Option<Isolation> {
        let paths = Paths::of(&self.inner.settings, id);
        paths.run.exists().then(|| isolation_of(&paths))
    }

    async fn disk_use(&self, id: &SandboxId) -> Result<DiskUse, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let disk = Paths::of(&inner.settings, &id).disk();
            let allocated = fs::metadata(disk).map_or(0, |metadata| metadata.blocks().saturating_mul(512));
            Ok(DiskUse { allocated, dirty: inner.cgroups.dirty_bytes(id.as_str()) })
        })
        .await
    }

    async fn resource_use(&self, id: &SandboxId) -> Result<Option<ResourceUse>, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let Some((cpu_us, memory, memory_cache)) = inner.cgroups.usage(id.as_str()) else {
                return Ok(None);
            };
            let disk = Paths::of(&inner.settings, &id).disk();
            let disk = fs::metadata(disk).map_or(0, |metadata| metadata.blocks().saturating_mul(512));
            Ok(Some(ResourceUse { cpu_us, memory, memory_cache, disk }))
        })
        .await
    }

    async fn list(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(|inner| {
            let failed = |error: io::Error| DriverError::failed("list sandboxes", error);
            let mut ids = BTreeSet::new();
            for dir in
                [sandboxes_dir(&inner.settings), bundles_dir(&inner.settings), runtime_root(&inner.settings)]
            {
                ids.extend(ids_below(&dir).map_err(failed)?);
            }
            let names = inner.cgroups.names().map_err(failed)?;
            ids.extend(names.iter().filter_map(|name| name.parse().ok()));
            Ok(ids.into_iter().collect())
        })
        .await
    }
}

impl Inner {
    fn mounts(&self) -> MutexGuard<'_, HashMap<SandboxId, Mounts>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unmounts the disk of a sandbox without processes. Returns when everything is written.
    fn unmount_disk(&self, id: &SandboxId) {
        // A statement of its own, so that the map is not locked meanwhile.
        let mounts = self.mounts().remove(id);
        drop(mounts);
    }

    fn start(&self, spec: &SandboxSpec, network: Option<&NetworkHook>) -> Result<Started, DriverError> {
        self.unmount_disk(&spec.id);
        let settings = &self.settings;
        let paths = Paths::of(settings, &spec.id);
        let uid_base = description::uid_base(settings, spec.slot)?;
        make_traversable(&paths.run)
            .map_err(|error| DriverError::failed("make the sandbox's directory", error))?;
        // After a power failure the disk of a sandbox that did not sync may be missing. A new disk loses no synced data.
        fs::create_dir_all(&paths.data)
            .map_err(|error| DriverError::failed("make the disk's directory", error))?;
        disk::ensure(settings, &paths, spec.disk_mb)?;
        let isolation = spec.isolation.max(settings.minimum_isolation);
        let backend = self.backends.get(&isolation).ok_or_else(|| {
            DriverError::failed("start the sandbox", format!("this host has no isolation '{isolation}'"))
        })?;
        paths::record_isolation(&paths, isolation)
            .map_err(|error| DriverError::failed("record the sandbox's isolation", error))?;
        let cpus = placement::cpus_of(spec);
        let cgroups = &self.cgroups;
        let start = Start { settings, cgroups, spec, isolation, paths: &paths, uid_base, cpus: &cpus };
        backend.start(&start, network)
    }

    fn presence(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        let population = self.cgroups.population(id.as_str());
        Ok(match population.map_err(|error| DriverError::failed("read the sandbox's cgroup", error))? {
            Population::Running => Presence::Running,
            Population::Frozen => Presence::Paused,
            Population::Empty if Paths::of(&self.settings, id).data.exists() => Presence::Stopped,
            Population::Empty => Presence::Absent,
        })
    }

    fn require(&self, id: &SandboxId, wanted: Population, action: &'static str) -> Result<(), DriverError> {
        let population = self.cgroups.population(id.as_str());
        if population.map_err(|error| DriverError::failed("read the sandbox's cgroup", error))? == wanted {
            return Ok(());
        }
        Err(DriverError::InvalidState { id: id.clone(), presence: self.presence(id)?, action })
    }

    fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let failed = |error: io::Error| DriverError::failed("kill the sandbox's processes", error);
        let name = id.as_str();
        let paths = Paths::of(&self.settings, id);
        let first = paths::first_process(&paths);
        // The kernel ends all processes of a namespace with its first one.
        if isolation_of(&paths) == Isolation::Container
            && let Some(pid) = first
            && kill_first_process(&self.cgroups, name, pid).map_err(failed)?
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
        empty.map_err(failed)?;
        seen.extend(first);
        reap(&seen);
        // Another process may get the pid now. If the file stays, the next kill checks that the process is in the cgroup.
        let _ = fs::remove_file(paths.first_process());
        Ok(())
    }

    fn unlimit_disk(&self, id: &SandboxId, paths: &Paths) {
        let device = fs::read_to_string(paths.disk_device()).ok().and_then(|text| text.parse().ok());
        if let Some(device) = device
            && loopdev::is_free_or_of(device, id.as_str())
            && let Err(error) = self.cgroups.unlimit_disk(id.as_str(), device)
        {
            tracing::warn!(%id, %error, "cannot remove a rate limit of a loop device");
        }
    }

    fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let paths = Paths::of(&self.settings, id);
        // Before the kill: once the processes have ended, another sandbox may get the device.
        self.unlimit_disk(id, &paths);
        self.kill(id)?;
        self.unmount_disk(id);
        if let Some(backend) = self.backends.get(&isolation_of(&paths)) {
            backend.clear(&self.settings, id)?;
        }
        // Also of a runtime that an earlier daemon used.
        remove_tree(&runtime_root(&self.settings).join(id.as_str()))
            .map_err(|error| DriverError::failed("remove the runtime's state", error))?;
        let removed = poll(REMOVE_TIMEOUT, || Ok(self.cgroups.remove(id.as_str())? == Leftover::None));
        removed.map_err(|error| DriverError::failed("remove the sandbox's cgroups", error))?;
        remove_tree(&paths.run).map_err(|error| DriverError::failed("remove the sandbox's directory", error))
    }
}

/// Polls with growing pauses, because cgroup v1 has no events for this.
fn poll(timeout: Duration, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let begin = Instant::now();
    let mut pause = Duration::from_micros(100);
    while !done()? {
        if begin.elapsed() > timeout {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not done after {} s", timeout.as_secs()),
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(Duration::from_millis(20));
    }
    Ok(())
}

/// Creates a directory that the container's root, an unprivileged user on the host, can traverse.
fn make_traversable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
