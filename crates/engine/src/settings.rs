//! What an operator chooses about the engine, and what it is told of an image.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::Resources;
use rules::{Capacity, Prices};

/// Settings of an [`crate::Engine`].
#[derive(Debug, Clone)]
pub struct EngineSettings {
    pub capacity: Capacity,
    /// Sandboxes kept ready, by image.
    pub pool: BTreeMap<String, PoolTarget>,
    /// Commands of one sandbox at once, and how many more may wait.
    pub concurrent_executions: u32,
    pub execution_queue: u32,
    /// How long a paused sandbox is kept; 0 for ever.
    pub paused_retention_ms: u64,
    /// How long a terminated sandbox is listed, with its events; 0 for ever.
    pub terminated_retention_ms: u64,
    /// Ranges of host user ids to give out.
    pub slots: u32,
    /// Of running time; where all is free nothing is said of costs.
    pub prices: Prices,
    pub detached: DetachedSettings,
}

/// Where the records and the output of detached executions are, and how much is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedSettings {
    /// The engine's own directory: one below it a sandbox, one below that an execution.
    pub dir: PathBuf,
    /// Output of one execution; past that the oldest goes.
    pub log_bytes: u64,
    /// Finished executions of one sandbox, and the output of all of them together; the oldest go first.
    pub kept: u32,
    pub total_bytes: u64,
}

impl DetachedSettings {
    /// The defaults.
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { dir, log_bytes: 16 << 20, kept: 100, total_bytes: 64 << 20 }
    }
}

/// How many sandboxes of an image are kept ready, and of what size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolTarget {
    pub count: u32,
    pub resources: Resources,
}

/// An image as the engine needs it: unpacked, on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub name: String,
    pub digest: String,
    /// Topmost first.
    pub layers: Vec<PathBuf>,
    /// `NAME=value`.
    pub env: Vec<String>,
}
