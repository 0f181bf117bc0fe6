//! Options of rigs, and constants that all rigs share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use driver_oci::DiskRates;
use engine::Clock;
use rules::Capacity;

/// Ranges of user ids per rig. Rigs use different ranges, far above those of a real service.
pub const SLOTS: u32 = 1024;

/// Options of a rig.
#[derive(Debug, Clone)]
pub struct RigOptions {
    pub runtime: PathBuf,
    pub runtime_args: Vec<String>,
    pub pool: u32,
    pub capacity: Capacity,
    pub concurrent_executions: u32,
    pub execution_queue: u32,
    pub paused_retention_ms: u64,
    /// At most [`SLOTS`].
    pub slots: u32,
    pub clock: Clock,
    pub disk_rates: DiskRates,
    /// Directory of a running lxcfs.
    pub lxcfs: Option<PathBuf>,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self {
            runtime: "/usr/sbin/runc".into(),
            runtime_args: Vec::new(),
            pool: 0,
            capacity: Capacity { cpu: 100_000, memory_mb: 100_000_000, disk_mb: 100_000_000 },
            concurrent_executions: 3,
            execution_queue: 0,
            paused_retention_ms: 0,
            slots: SLOTS,
            clock: Clock::System,
            disk_rates: DiskRates::default(),
            lxcfs: None,
        }
    }
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The agent built by `./dev build`.
pub fn agent() -> Result<PathBuf> {
    let path = std::env::var_os("SANDBOXD_AGENT")
        .map_or_else(|| workspace().join("target/bin/sandbox-agent"), PathBuf::from);
    path.canonicalize().with_context(|| format!("no agent at {}: run './dev build' first", path.display()))
}
