//! The settings of an engine, and its view of an image.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::{Isolation, Resources, SnapshotId};
use archive::Archive;
use rules::{Capacity, Prices, QuotaTable};

use crate::host_watch::HostWatch;
use crate::snapshot_hold::SnapshotHold;

/// Settings of an [`crate::Engine`].
#[derive(Debug, Clone)]
pub struct EngineSettings {
    pub capacity: Capacity,
    pub quotas: QuotaTable,
    /// The host watcher's configuration; if `None`, only reserved capacity limits what is admitted.
    pub host: Option<HostWatch>,
    pub pool: BTreeMap<PoolKey, PoolTarget>,
    /// Attached commands that may run at a time in one sandbox, and detached commands and terminals.
    pub concurrent_executions: u32,
    pub detached_executions: u32,
    /// Commands of each kind that may wait.
    pub execution_queue: u32,
    /// Paused sandboxes are terminated after this time; 0 for never.
    pub paused_retention_ms: u64,
    /// The processes of sandboxes that stay paused this long are stored on the disk; 0 for never.
    pub hibernate_after_ms: u64,
    /// Terminated sandboxes and their events are deleted after this time; 0 for never.
    pub terminated_retention_ms: u64,
    /// The oldest terminated sandboxes of an account whose records have more bytes than this are deleted earlier; 0 for never.
    pub terminated_bytes: u64,
    /// Snapshots are deleted after this time; 0 for never.
    pub snapshot_retention_ms: u64,
    /// The number of ranges of host user ids.
    pub slots: u32,
    /// Prices of running time. No cost events are recorded if everything is free.
    pub prices: Prices,
    pub detached: DetachedSettings,
    /// The interval of the resource samples; `None` takes none.
    pub sample_interval: Option<Duration>,
}

/// Where detached executions are stored, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedSettings {
    /// A directory that only the engine uses, with a directory for each sandbox and below it one for each execution.
    pub dir: PathBuf,
    /// The maximum size of the log of one execution, at least 1 MiB. Beyond it the oldest output is dropped, or the command waits for
    /// its readers.
    pub log_bytes: u64,
    /// The maximum number and total size of the finished executions of one sandbox. The oldest are dropped first.
    pub max_ended: u32,
    pub total_bytes: u64,
}

impl DetachedSettings {
    /// The defaults.
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { dir, log_bytes: 16 << 20, max_ended: 100, total_bytes: 64 << 20 }
    }
}

/// Where copies of snapshots are stored.
pub struct SnapshotCopies {
    pub archive: Archive,
    /// Snapshots that nothing has used for this time leave this host; 0 for never.
    pub local_for_ms: u64,
    /// Finds an image on this host by its digest.
    pub find_digest: FindImage,
}

/// Which creates a warm sandbox serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    pub image: String,
    pub isolation: Isolation,
}

/// The number and size of the warm sandboxes of an image and an isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolTarget {
    pub count: u32,
    pub resources: Resources,
}

/// An unpacked image on this host, or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub name: String,
    pub digest: String,
    /// Topmost first.
    pub layers: Vec<PathBuf>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// The disk of a snapshot that is copied as the first content of the sandbox's disk.
    pub disk_from: Option<PathBuf>,
    /// The snapshot whose processes continue.
    pub processes_from: Option<SnapshotId>,
    /// The snapshots that it needs.
    pub hold: SnapshotHold,
    /// The image that it needs.
    pub image: ImageHold,
}

impl Template {
    pub fn of_image(name: String, digest: String, layers: Vec<PathBuf>, env: Vec<String>) -> Self {
        Self {
            name,
            digest,
            layers,
            env,
            disk_from: None,
            processes_from: None,
            hold: SnapshotHold::default(),
            image: ImageHold::default(),
        }
    }

    /// Keeps the image on this host until the sandbox that it is for is recorded: whoever removes images asks who has them.
    #[must_use]
    pub fn holding(self, image: Arc<dyn Any + Send + Sync>) -> Self {
        Self { image: ImageHold { _held: Some(image) }, ..self }
    }

    /// Whether it is of a snapshot instead of an image.
    pub fn is_snapshot(&self) -> bool {
        self.hold.holds_any()
    }
}

/// Keeps an image on this host. Clones hold the same one. The default holds none.
#[derive(Debug, Clone, Default)]
pub struct ImageHold {
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

impl PartialEq for ImageHold {
    /// What is held is part of the layers, which are compared as well.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ImageHold {}

/// Finds an image on this host by its name.
pub type FindImage = Arc<dyn Fn(&str) -> Option<Template> + Send + Sync>;
