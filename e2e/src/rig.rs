//! An engine on this host that shares nothing with another: tests run side by side, and one that dies leaves only things
//! that carry its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{ExecuteRequest, Resources, SandboxConfig};
use driver::Driver;
use driver_oci::{OciDriver, Settings};
use engine::{Clock, Engine, EngineSettings, Recovered, Template};
use rand::Rng;
use rules::{Capacity, CreateInput, ConfigRules, sandbox_config};
use store::{SqliteStore, Store};

/// Image name under which the test root file system goes.
pub const IMAGE: &str = "ubuntu:24.04";
/// Ranges of user ids a rig has; rigs take different ones, far above those of a real service.
const SLOTS: u32 = 1024;

/// What a rig may be told to do otherwise.
#[derive(Debug, Clone)]
pub struct RigOptions {
    pub runtime: PathBuf,
    pub runtime_args: Vec<String>,
    pub pool: u32,
    pub capacity: Capacity,
    pub concurrent_executions: u32,
    pub clock: Clock,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self {
            runtime: "/usr/sbin/runc".into(),
            runtime_args: Vec::new(),
            pool: 0,
            capacity: Capacity { cpu: 100_000, memory_mb: 100_000_000, disk_mb: 100_000_000 },
            concurrent_executions: 3,
            clock: Clock::System,
        }
    }
}

/// A real engine and everything it stands on.
pub struct Rig {
    pub engine: Engine,
    pub driver: Arc<dyn Driver>,
    pub recovered: Recovered,
    pub template: Template,
    pub name: String,
    pub data: PathBuf,
    pub run: PathBuf,
    pub uid_base: u32,
    options: RigOptions,
}

impl Rig {
    pub async fn new(options: RigOptions) -> Result<Self> {
        // Several rigs in one process share the first one's subscriber.
        let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).try_init();
        let number: u32 = rand::rng().random_range(0..1000);
        let name = format!("sandboxd-test-{}-{number}", std::process::id());
        let data = workspace().join("target/test-data").join(&name);
        let run = Path::new("/run").join(&name);
        let uid_base = 0x8000_0000 + (number % 16) * SLOTS * 65_536;
        Self::at(options, name, data, run, uid_base).await
    }

    async fn at(options: RigOptions, name: String, data: PathBuf, run: PathBuf, uid_base: u32) -> Result<Self> {
        std::fs::create_dir_all(&data)?;
        let settings = Settings {
            flavour: Settings::flavour_of(&options.runtime),
            runtime: options.runtime.clone(),
            runtime_args: options.runtime_args.clone(),
            agent: agent()?,
            data_dir: data.clone(),
            run_dir: run.clone(),
            cgroup_parent: name.clone(),
            uid_base,
            pids_max: 512,
            lxcfs: None,
        };
        let driver: Arc<dyn Driver> = Arc::new(OciDriver::new(settings)?);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&data.join("store.db"))?);
        let template = Template {
            name: IMAGE.to_owned(),
            digest: "sha256:test".to_owned(),
            layers: vec![rootfs()?],
            env: vec!["IMAGE_SAYS=hello".to_owned()],
        };
        let pool = engine::PoolTarget { count: options.pool, resources: config().resources };
        let engine_settings = EngineSettings {
            capacity: options.capacity,
            pool: if options.pool > 0 { [(IMAGE.to_owned(), pool)].into() } else { Default::default() },
            concurrent_executions: options.concurrent_executions,
            execution_queue: 0,
            paused_retention_ms: 0,
            slots: SLOTS,
        };
        let found = template.clone();
        let find = Arc::new(move |name: &str| (name == IMAGE).then(|| found.clone()));
        let (engine, recovered) =
            Engine::open(Arc::clone(&driver), store, find, options.clock, engine_settings).await?;
        Ok(Self { engine, driver, recovered, template, name, data, run, uid_base, options })
    }

    /// As a daemon that was restarted: another engine on the same things.
    pub async fn restart(self) -> Result<Self> {
        let Self { engine, driver, template, name, data, run, uid_base, options, .. } = self;
        engine.shutdown().await;
        drop((engine, driver, template));
        Self::at(options, name, data, run, uid_base).await
    }

    /// A new sandbox of the usual size.
    pub async fn create(&self) -> Result<api::SandboxId> {
        let status = self.engine.create("test", config(), self.template.clone()).await?;
        Ok(status.record.id.clone())
    }

    /// Runs a command to its end.
    pub async fn run(&self, id: &api::SandboxId, text: &str) -> Result<api::ExecutionResult> {
        let execution = self.engine.execute("test", id, command(text)).await?;
        Ok(execution.collect(1 << 20).await?)
    }

    /// What a command prints, which must succeed.
    pub async fn output(&self, id: &api::SandboxId, text: &str) -> Result<String> {
        let result = self.run(id, text).await?;
        anyhow::ensure!(result.exit_code == Some(0), "{text:?} ended with {result:?}");
        Ok(result.stdout)
    }

    /// Waits until a pool is full.
    pub async fn pool_is_full(&self) {
        while self.engine.pool().iter().any(|shelf| shelf.ready < shelf.target) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Removes every sandbox and all that the rig made.
    pub async fn clear(self) -> Result<()> {
        self.engine.shutdown().await;
        for id in self.driver.list().await? {
            self.driver.destroy(&id).await?;
        }
        std::fs::remove_dir_all(&self.data)?;
        std::fs::remove_dir_all(&self.run)?;
        remove_cgroup_parents(&self.name);
        Ok(())
    }
}

/// The driver leaves its parent cgroup for the next sandbox; a rig has no next one.
fn remove_cgroup_parents(name: &str) {
    let Ok(hierarchies) = std::fs::read_dir("/sys/fs/cgroup") else { return };
    for hierarchy in hierarchies.flatten() {
        // Not in every hierarchy.
        let _ = std::fs::remove_dir(hierarchy.path().join(name));
    }
    let _ = std::fs::remove_dir(Path::new("/sys/fs/cgroup").join(name));
}

/// The smallest sandbox the specification allows.
pub fn config() -> SandboxConfig {
    let input = CreateInput {
        image: IMAGE.to_owned(),
        memory_mb: Some(2048),
        disk_mb: Some(5120),
        timeout_ms: Some(86_400_000),
        idle_timeout_ms: Some(0),
        ..CreateInput::default()
    };
    let Ok(config) = sandbox_config(input, &ConfigRules::default()) else {
        unreachable!("every value above is in its range")
    };
    let resources = Resources { cpu: 2, ..config.resources };
    SandboxConfig { resources, ..config }
}

/// A command with the defaults of the specification.
pub fn command(text: &str) -> ExecuteRequest {
    ExecuteRequest {
        command: text.to_owned(),
        cwd: None,
        env: Default::default(),
        timeout_ms: 60_000,
        stdin: None,
        auto_resume: true,
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The agent that `./dev build` made.
fn agent() -> Result<PathBuf> {
    let path = std::env::var_os("SANDBOXD_AGENT").map_or_else(|| workspace().join("target/bin/sandbox-agent"), PathBuf::from);
    path.canonicalize().with_context(|| format!("no agent at {}: run './dev build' first", path.display()))
}

/// A Debian root file system with bash.
pub fn rootfs() -> Result<PathBuf> {
    let path = std::env::var_os("SANDBOXD_TEST_ROOTFS").context("SANDBOXD_TEST_ROOTFS is not set")?;
    Ok(PathBuf::from(path))
}
