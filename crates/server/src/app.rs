//! Builds engine, driver, network, store and images from the configuration. The only module that names a driver.

pub mod isolation;
pub mod lxcfs;
pub mod network;
mod new_database;
pub mod oom_score;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::{CreateBody, Isolation, IsolationChoice};
use archive::Archive;
use base::lock_file;
use driver_host::{DiskRates, HostDriver, HostSize, Settings, TableState, kernel_tables};
use engine::{
    Clock, DetachedSettings, Engine, EngineSettings, HostSample, HostWatch, Parts, PoolKey, PoolTarget,
    SnapshotCopies,
};
use image::{Catalogue, Images, RegistryOptions};
use net::{Network, Pool as AddressPool};
use rules::{ConfigRules, Host, IsolationPolicy, IsolationRules, Overcommit, Ranges, sandbox_config};
use service::images::template;
use store::SqliteStore;

use crate::app::isolation::{Isolations, MissingIsolation};
use crate::app::new_database::check_new_database;
use crate::config::Config;

/// The part of the host's memory that all sandboxes together can use, so that they run out of memory before the daemon does.
const MEMORY_PERCENT: u64 = 90;
const STORE: &str = "store.db";
const IMAGES: &str = "images";
const EXECUTIONS: &str = "executions";
const STORED: &str = "stored";
const DAY_MS: u64 = 24 * 3600 * 1000;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// The resources of this host that belong to one engine.
#[derive(Debug, Clone)]
pub struct Scope {
    pub data_dir: PathBuf,
    pub run_dir: PathBuf,
    pub cgroup_parent: String,
    pub uid_base: u32,
    pub slots: u32,
    pub lxcfs: LxcfsUse,
}

/// Which lxcfs the sandboxes of an engine may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LxcfsUse {
    /// The host's, or that of this process's supervisor.
    Supervised,
    HostOnly,
}

/// The scope of the server.
pub fn server_scope(config: &Config) -> Scope {
    Scope {
        data_dir: config.data_dir.clone(),
        run_dir: config.run_dir.clone(),
        cgroup_parent: config.runtime.cgroup_parent.clone(),
        uid_base: config.runtime.uid_base,
        slots: config.runtime.uid_slots,
        lxcfs: LxcfsUse::Supervised,
    }
}

/// An engine and its parts.
pub struct Opened {
    pub engine: Engine,
    pub driver: HostDriver,
    pub store: Arc<SqliteStore>,
    pub network: Arc<dyn Network>,
    /// Which isolation sandboxes get.
    pub isolation: Arc<IsolationPolicy>,
    /// The isolations that they cannot have.
    pub missing_isolations: Vec<MissingIsolation>,
}

/// Whether there is a warm pool. Only a server uses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    AsConfigured,
    None,
}

/// Opens an engine on this host.
pub async fn open_engine(config: &Config, images: &Images, scope: &Scope, pool: Pool) -> Result<Opened> {
    make_private_dir(&scope.data_dir)?;
    let mut settings = driver_settings(config, scope)?;
    let Isolations { backends, policy, missing } = Isolations::of(config)?;
    let connected = network::connect(config, scope).await?;
    set_kernel_tables(host_size(config, scope)?);
    settings.resolver = connected.resolver;
    let driver = HostDriver::new(settings, backends)?;
    let store = Arc::new(SqliteStore::open_with_quotas(scope.data_dir.join(STORE), config.quotas.table())?);
    let found = images.clone();
    let find = Arc::new(move |name: &str| found.get(name).map(|image| template(&image)));
    let settings = EngineSettings {
        capacity: capacity(config)?,
        quotas: config.quotas.table(),
        host: Some(host_watch(config, &scope.data_dir)?),
        pool: if pool == Pool::AsConfigured { pool_targets(config, &policy)? } else { BTreeMap::new() },
        concurrent_executions: config.limits.concurrent_executions,
        detached_executions: config.limits.detached_executions,
        execution_queue: config.limits.execution_queue,
        paused_retention_ms: config.retention.paused_days.saturating_mul(DAY_MS),
        hibernate_after_ms: config.hibernate.after_seconds.saturating_mul(1000),
        terminated_retention_ms: config.retention.terminated_days.saturating_mul(DAY_MS),
        terminated_bytes: config.retention.records_mb << 20,
        snapshot_retention_ms: config.retention.snapshot_days.saturating_mul(DAY_MS),
        slots: scope.slots,
        prices: config.prices.of_an_hour(),
        detached: DetachedSettings::in_dir(scope.data_dir.join(EXECUTIONS)),
        sample_interval: Some(SAMPLE_INTERVAL),
    };
    let network = connected.network;
    let copies = snapshot_copies(config, images, &scope.data_dir)?;
    let parts = Parts {
        driver: Arc::new(driver.clone()),
        store: Arc::clone(&store) as _,
        network: Arc::clone(&network),
        refusals: connected.refusals,
        find_image: find,
        clock: Clock::System,
        copies,
    };
    let (engine, recovered) = Engine::open(parts, settings).await?;
    tracing::info!(
        running = recovered.running,
        paused = recovered.paused,
        hibernated = recovered.hibernated,
        stopped = recovered.stopped,
        orphans = recovered.orphans,
        "the engine is ready"
    );
    Ok(Opened { engine, driver, store, network, isolation: policy, missing_isolations: missing })
}

/// Where copies of snapshots are stored, if that is configured.
fn snapshot_copies(config: &Config, images: &Images, data_dir: &Path) -> Result<Option<SnapshotCopies>> {
    let Some(location) = config.snapshots.location()? else {
        archive::require_nothing_stored(&data_dir.join(STORED)).context("snapshots.store")?;
        return Ok(None);
    };
    let secrets = config.snapshots.secrets(data_dir)?;
    if config.snapshots.accept_unauthenticated {
        tracing::warn!(
            "snapshots.accept_unauthenticated is set: whoever can write to the object store chooses file systems that this host mounts"
        );
    }
    let archive = Archive::open(&location, &config.snapshots.options(), &data_dir.join(STORED), secrets);
    let images = images.clone();
    let find_digest = move |digest: &str| {
        let all = images.names().into_iter().filter_map(|name| images.get(&name));
        all.into_iter().find(|image| image.digest == digest).map(|image| template(&image))
    };
    Ok(Some(SnapshotCopies {
        archive: archive.context("snapshots.store")?,
        local_for_ms: config.snapshots.local_ms(),
        find_digest: Arc::new(find_digest),
    }))
}

/// Pooled sandboxes have the default resources, so they serve only creates with these.
fn pool_targets(config: &Config, policy: &Arc<IsolationPolicy>) -> Result<BTreeMap<PoolKey, PoolTarget>> {
    let rules = ConfigRules { isolation: IsolationRules::new(policy, ""), ..ConfigRules::default() };
    let own = &config.isolation;
    let named = [(Isolation::Container, &own.container.pool), (Isolation::Gvisor, &own.gvisor.pool)];
    let automatic = config.pool.iter().map(|(image, count)| (IsolationChoice::Auto, image, *count));
    let named = named.into_iter().filter(|(isolation, _)| policy.available.contains(isolation));
    let named = named.flat_map(|(isolation, pool)| {
        pool.iter().map(move |(image, count)| (isolation.into(), image, *count))
    });
    let mut targets = BTreeMap::new();
    for (isolation, image, count) in automatic.chain(named).filter(|(.., count)| *count > 0) {
        let body = CreateBody { image: image.clone(), isolation: Some(isolation), ..CreateBody::default() };
        let wanted = sandbox_config(body, &rules).with_context(|| format!("the pool of \"{image}\""))?;
        let key = PoolKey { image: wanted.image, isolation: wanted.isolation };
        let target = targets.entry(key).or_insert(PoolTarget { count, resources: wanted.resources });
        target.count = target.count.max(count);
    }
    Ok(targets)
}

/// The database of a data directory.
pub fn database(data_dir: &Path) -> PathBuf {
    data_dir.join(STORE)
}

/// Fails if a start would make a new database beside sandboxes or snapshots, and so delete these.
pub fn require_records(config: &Config) -> Result<()> {
    check_new_database(&config.data_dir, STORE)
}

/// Opens the store of this host's server, which may be running. Creates the data directory and the database if they are
/// missing, unless the data directory has sandboxes or snapshots.
pub fn open_store(config: &Config) -> Result<SqliteStore> {
    make_private_dir(&config.data_dir)?;
    // Otherwise the new database would hide from the next start that the old one is missing.
    require_records(config)?;
    Ok(SqliteStore::open_beside(config.data_dir.join(STORE))?)
}

/// As [`open_store`], for commands that only read or change existing records: fails if there is no database.
pub fn open_existing_store(config: &Config) -> Result<SqliteStore> {
    require_any(&config.data_dir, &[STORE])?;
    open_store(config)
}

/// The store for a command that lists what is in it. `None` before the first start and the first key: then the list is empty, and a
/// line on standard error says why, because the directory may be mistyped. Creates nothing.
pub fn open_store_of_list(config: &Config) -> Result<Option<SqliteStore>> {
    let path = config.data_dir.join(STORE);
    if path.try_exists().with_context(|| format!("cannot read {}", path.display()))? {
        return open_store(config).map(Some);
    }
    require_records(config)?;
    eprintln!(
        "sandboxd: no data of sandboxd in '{}' yet: the first start or 'sandboxd key create' creates it; another directory is set with \
         --data-dir, SANDBOXD_DATA_DIR or data_dir in the configuration file",
        config.data_dir.display()
    );
    Ok(None)
}

/// Fails if the data directory has none of these files. Otherwise a mistyped directory would be created, and its empty
/// result would look like a loss of data.
fn require_any(data_dir: &Path, files: &[&str]) -> Result<()> {
    for file in files {
        let path = data_dir.join(file);
        if path.try_exists().with_context(|| format!("cannot read {}", path.display()))? {
            return Ok(());
        }
    }
    bail!(
        "no data of sandboxd in '{}': there is no {}; start the service first, which creates it, or set the right directory with \
         --data-dir, SANDBOXD_DATA_DIR or data_dir in the configuration file",
        data_dir.display(),
        files.join(" or ")
    )
}

/// The default catalogue with the sources from the configuration.
pub fn catalogue(config: &Config) -> Result<Catalogue> {
    let mut catalogue = Catalogue::default_set();
    for (name, sources) in &config.images.named {
        catalogue.set(name, sources).with_context(|| format!("images.\"{name}\""))?;
    }
    Ok(catalogue)
}

/// Opens the images of this host. Creates the data directory if it is missing.
pub fn open_images(config: &Config) -> Result<Images> {
    make_private_dir(&config.data_dir)?;
    let pool = match config.egress.pool()? {
        AddressPool::Block(pool) => Some(pool),
        // Chosen from private ranges, which are closed.
        AddressPool::Auto => None,
    };
    let registry = RegistryOptions {
        closed: Ranges::new(pool, Vec::new()).closing(config.egress.closed()?),
        private_registries: config.images.private_registries.clone(),
        ..RegistryOptions::default()
    };
    let own = &config.images.credentials;
    let registry = match own.as_os_str().is_empty() {
        true => registry,
        false => RegistryOptions { docker_config: Some(own.clone()), ..registry },
    };
    let options = image::Options { registry, ..image::Options::default() };
    Ok(Images::open(&images_dir(config), catalogue(config)?, options)?)
}

/// The directory of the images of this host.
pub fn images_dir(config: &Config) -> PathBuf {
    config.data_dir.join(IMAGES)
}

/// As [`open_images`], for commands that only read or remove images: fails if there is neither a database nor an image.
pub fn open_existing_images(config: &Config) -> Result<Images> {
    require_any(&config.data_dir, &[STORE, IMAGES])?;
    open_images(config)
}

/// Shared for processes that create sandboxes, as long as they may start to use a layer; exclusive for the removal of layers.
pub fn images_lock(config: &Config) -> Result<File> {
    Ok(lock_file(&config.data_dir.join("images.lock"))?)
}

pub fn driver_settings(config: &Config, scope: &Scope) -> Result<Settings> {
    Ok(Settings {
        agent: agent(config)?,
        data_dir: scope.data_dir.clone(),
        run_dir: scope.run_dir.clone(),
        cgroup_parent: scope.cgroup_parent.clone(),
        uid_base: scope.uid_base,
        pids_max: config.runtime.pids_max,
        disk_rates: DiskRates {
            read_mb_per_s: config.runtime.disk_read_mb_per_s,
            write_mb_per_s: config.runtime.disk_write_mb_per_s,
            iops: config.runtime.disk_iops,
        },
        memory_max_mb: Some(total_memory_mb()? / 100 * MEMORY_PERCENT),
        lxcfs: match (lxcfs::LxcfsSource::of(config, &scope.run_dir)?, scope.lxcfs) {
            (lxcfs::LxcfsSource::Own(_), LxcfsUse::HostOnly) => None,
            (source, _) => source.dir(),
        },
        minimum_isolation: config.isolation.minimum,
        resolver: None,
    })
}

/// Finds a program by its path, or by its name in `PATH` and the system directories.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|path| path.is_file())
}

pub fn agent(config: &Config) -> Result<PathBuf> {
    let path = match config.runtime.agent.as_str() {
        "auto" => {
            let program = std::env::current_exe().context("cannot find the path of this program")?;
            program.parent().unwrap_or(Path::new("/")).join("sandbox-agent")
        }
        path => PathBuf::from(path),
    };
    path.canonicalize().with_context(|| {
        format!(
            "there is no agent at {}; build it with './dev build', or set runtime.agent to its path",
            path.display()
        )
    })
}

/// The capacity: the configured or the host's resources times the overcommit factors. The host watcher determines that of the
/// disk.
fn capacity(config: &Config) -> Result<rules::Capacity> {
    let own = &config.capacity;
    let or_host = |configured: u64, host: u64| if configured == 0 { host } else { configured };
    let host = Host {
        cpu: or_host(own.cpu, std::thread::available_parallelism()?.get() as u64),
        memory_mb: or_host(own.memory_mb, total_memory_mb()?),
        disk_mb: 0,
    };
    let overcommit =
        Overcommit { cpu: own.overcommit_cpu, memory: own.overcommit_memory, disk: own.overcommit_disk };
    Ok(rules::Capacity::new(host, overcommit))
}

/// What the sizes of the kernel's tables depend on.
pub fn host_size(config: &Config, scope: &Scope) -> Result<HostSize> {
    let overcommit_memory = config.capacity.overcommit_memory;
    Ok(HostSize { memory_mb: total_memory_mb()?, overcommit_memory, slots: scope.slots })
}

/// Sets the sizes of tables that all sandboxes share. A host whose settings are read-only keeps its own.
fn set_kernel_tables(host: HostSize) {
    for table in kernel_tables(host) {
        if let Err(error) = table.apply() {
            let wanted = match table.state() {
                Ok(TableState::Other { sizes }) => table.setting(&sizes),
                _ => table.name.to_owned(),
            };
            tracing::warn!(%wanted, %error, "cannot change a setting of the kernel that all sandboxes share: with many sandboxes they may disturb each other");
        }
    }
}

/// Watches the file system of the data directory and the host's memory.
fn host_watch(config: &Config, data_dir: &Path) -> Result<HostWatch> {
    let own = &config.capacity;
    let statvfs = rustix::fs::statvfs(data_dir).context("cannot read the size of the disk")?;
    let disk_mb = statvfs.f_blocks.saturating_mul(statvfs.f_frsize) >> 20;
    let reserve_disk_mb = rules::disk_reserve_mb(disk_mb, own.reserve_disk_mb);
    let reserve_memory_mb = rules::memory_reserve_mb(total_memory_mb()?, own.reserve_memory_mb);
    let dir = data_dir.to_owned();
    let watch = HostWatch::new(move || sample_host(&dir), reserve_disk_mb, reserve_memory_mb);
    Ok(watch.promise(own.disk_mb, own.overcommit_disk))
}

fn sample_host(data_dir: &Path) -> std::io::Result<HostSample> {
    let statvfs = rustix::fs::statvfs(data_dir)?;
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let bytes = |name: &str| meminfo_kilobytes(&text, name).unwrap_or(0).saturating_mul(1024);
    Ok(HostSample {
        disk_free_bytes: statvfs.f_bavail.saturating_mul(statvfs.f_frsize),
        unwritten_bytes: bytes("Dirty:").saturating_add(bytes("Writeback:")),
        memory_available_bytes: bytes("MemAvailable:"),
    })
}

pub fn total_memory_mb() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let total = meminfo_kilobytes(&text, "MemTotal:").context("/proc/meminfo has no line MemTotal")?;
    Ok(total / 1024)
}

fn meminfo_kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

pub fn make_private_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    // Not 0700: the root users of sandboxes must be able to traverse it.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(dir)
        .with_context(|| format!("cannot create {}; run this as root", dir.display()))
}
