//! Options of rigs, and constants that all rigs share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::Isolation;
use driver_host::DiskRates;
use engine::Clock;
use rules::Capacity;

/// Ranges of user ids per rig. Rigs use different ranges, far above those of a real service.
pub const SLOTS: u32 = 1024;

/// Options of a rig.
#[derive(Debug, Clone)]
pub struct RigOptions {
    /// That of all its sandboxes.
    pub isolation: Isolation,
    /// An OCI runtime that builds containers. None: the service's own launcher.
    pub runtime: Option<PathBuf>,
    pub pool: u32,
    pub capacity: Capacity,
    pub concurrent_executions: u32,
    pub execution_queue: u32,
    pub paused_retention_ms: u64,
    pub hibernate_after_ms: u64,
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
            isolation: isolation(),
            runtime: runtime(),
            pool: 0,
            capacity: Capacity { cpu: 100_000, memory_mb: 100_000_000, disk_mb: 100_000_000 },
            concurrent_executions: 3,
            execution_queue: 0,
            paused_retention_ms: 0,
            hibernate_after_ms: 0,
            slots: SLOTS,
            clock: Clock::System,
            disk_rates: DiskRates::default(),
            lxcfs: None,
        }
    }
}

impl RigOptions {
    /// With sandboxes under gVisor, whatever is under test.
    pub fn gvisor() -> Self {
        Self { isolation: Isolation::Gvisor, ..Self::default() }
    }
}

/// The OCI runtime under test, for runs of the suites on one.
pub fn runtime() -> Option<PathBuf> {
    std::env::var_os("SANDBOXD_TEST_RUNTIME").map(PathBuf::from)
}

/// The isolation under test, for runs of the suites on another one.
pub fn isolation() -> Isolation {
    match std::env::var("SANDBOXD_TEST_ISOLATION") {
        Ok(name) if name == Isolation::Gvisor.name() => Isolation::Gvisor,
        _ => Isolation::Container,
    }
}

/// The root of the repository.
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap_or(root)
}

/// The launcher, which is beside the agent.
pub fn launcher() -> Result<PathBuf> {
    Ok(agent()?.with_file_name("sandbox-launcher"))
}

/// gVisor, which './dev setup' installs beside the agent if the machine has no recent one.
pub fn gvisor() -> Result<PathBuf> {
    let places = [agent()?.with_file_name("runsc"), "/usr/local/bin/runsc".into(), "/usr/bin/runsc".into()];
    places.into_iter().find(|path| path.exists()).context("there is no runsc: run './dev setup' first")
}

/// `sbx`, built by `./dev build`.
pub fn sbx() -> Result<PathBuf> {
    let path = workspace().join("target/bin/sbx");
    path.canonicalize().with_context(|| format!("no {}: run './dev build' first", path.display()))
}

/// The agent built by `./dev build`.
pub fn agent() -> Result<PathBuf> {
    let path = std::env::var_os("SANDBOXD_AGENT")
        .map_or_else(|| workspace().join("target/bin/sandbox-agent"), PathBuf::from);
    path.canonicalize().with_context(|| format!("no agent at {}: run './dev build' first", path.display()))
}
