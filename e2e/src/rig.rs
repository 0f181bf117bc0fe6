//! An engine on this host that shares no resources with others. Tests run in parallel; a test that is killed leaves only
//! resources with its rig's name.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use api::{CreateBody, CreateResources, ExecuteRequest, Resources, SandboxConfig};
use driver::Driver;
use engine::{Engine, EngineSettings, Parts, Recovered, Template};
use image::{Catalogue, Images};
use rules::{ConfigRules, sandbox_config};
use store::{SqliteStore, Store};

use crate::layout::{CleanupGuard, RigLayout};
use crate::options::{RigOptions, isolation, workspace};

/// The image name of the test root file system.
pub const IMAGE: &str = "ubuntu:24.04";

/// A real engine with its driver, store and resources on the host.
pub struct Rig {
    pub engine: Engine,
    pub driver: Arc<dyn Driver>,
    pub store: Arc<dyn Store>,
    pub recovered: Recovered,
    pub template: Template,
    pub name: String,
    pub data: PathBuf,
    pub run: PathBuf,
    pub uid_base: u32,
    layout: RigLayout,
    options: RigOptions,
    cleanup: Option<CleanupGuard>,
}

/// A rig whose engine has stopped. Its sandboxes continue to run.
pub struct HaltedRig {
    pub driver: Arc<dyn Driver>,
    pub layout: RigLayout,
    pub options: RigOptions,
    cleanup: Option<CleanupGuard>,
}

impl HaltedRig {
    /// Starts another engine on the same resources.
    pub async fn start(self) -> Result<Rig> {
        let Self { layout, options, cleanup, driver } = self;
        drop(driver);
        Rig::open(options, layout, cleanup).await
    }
}

impl Rig {
    pub async fn new(options: RigOptions) -> Result<Self> {
        // Several rigs in one process share the first one's subscriber.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .try_init();
        let layout = RigLayout::unused();
        let cleanup = CleanupGuard::new(&layout, &options);
        Self::open(options, layout, Some(cleanup)).await
    }

    /// Opens the rig of this name and recovers the sandboxes that another process left.
    pub async fn reopen(name: String, options: RigOptions) -> Result<Self> {
        Self::open(options, RigLayout::from_name(&name)?, None).await
    }

    async fn open(options: RigOptions, layout: RigLayout, cleanup: Option<CleanupGuard>) -> Result<Self> {
        let driver: Arc<dyn Driver> = Arc::new(layout.driver(&options)?);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(layout.data.join("store.db"))?);
        let env = vec!["IMAGE_SAYS=hello".to_owned()];
        let template = Template::of_image(IMAGE.to_owned(), "sha256:test".to_owned(), vec![rootfs()?], env);
        let pool = engine::PoolTarget { count: options.pool, resources: config().resources };
        let engine_settings = EngineSettings {
            capacity: options.capacity,
            quotas: Default::default(),
            host: None,
            pool: if options.pool > 0 {
                [(engine::PoolKey { image: IMAGE.to_owned(), isolation: options.isolation }, pool)].into()
            } else {
                Default::default()
            },
            concurrent_executions: options.concurrent_executions,
            detached_executions: 32,
            execution_queue: options.execution_queue,
            paused_retention_ms: options.paused_retention_ms,
            hibernate_after_ms: options.hibernate_after_ms,
            terminated_retention_ms: 0,
            terminated_bytes: 0,
            snapshot_retention_ms: 0,
            slots: options.slots,
            prices: Default::default(),
            detached: engine::DetachedSettings::in_dir(layout.data.join("executions")),
            sample_interval: None,
        };
        let found = template.clone();
        let find = Arc::new(move |name: &str| (name == IMAGE).then(|| found.clone()));
        let parts = Parts {
            driver: Arc::clone(&driver),
            store: Arc::clone(&store),
            network: Arc::new(net::NoNetwork),
            refusals: None,
            find_image: find,
            clock: options.clock,
            copies: None,
        };
        let (engine, recovered) = Engine::open(parts, engine_settings).await?;
        let RigLayout { name, data, run, uid_base } = layout.clone();
        Ok(Self {
            engine,
            driver,
            store,
            recovered,
            template,
            name,
            data,
            run,
            uid_base,
            layout,
            options,
            cleanup,
        })
    }

    pub fn layout(&self) -> &RigLayout {
        &self.layout
    }

    /// Stops the engine like a clean shutdown of the daemon.
    pub async fn halt(self) -> HaltedRig {
        let Self { engine, driver, layout, options, cleanup, .. } = self;
        engine.shutdown().await;
        HaltedRig { driver, layout, options, cleanup }
    }

    /// Stops the engine and starts another on the same resources, like a restart of the daemon.
    pub async fn restart(self) -> Result<Self> {
        self.halt().await.start().await
    }

    /// A new sandbox of the usual size.
    pub async fn create(&self) -> Result<api::SandboxId> {
        let config = SandboxConfig { isolation: self.options.isolation, ..config() };
        let status = self.engine.create("test", config, self.template.clone(), None).await?;
        Ok(status.record.id.clone())
    }

    /// The state of a sandbox.
    pub async fn state(&self, id: &api::SandboxId) -> Result<api::SandboxState> {
        Ok(self.engine.sandbox("test", id).status().await?.state())
    }

    /// Runs a command to its end.
    pub async fn run(&self, id: &api::SandboxId, text: &str) -> Result<api::ExecutionResult> {
        let execution = self.engine.sandbox("test", id).execute(command(text)).await?;
        Ok(execution.collect(1 << 20).await?)
    }

    /// Runs a command that reads `stdin`, to its end.
    pub async fn run_with_stdin(
        &self,
        id: &api::SandboxId,
        text: &str,
        stdin: &str,
    ) -> Result<api::ExecutionResult> {
        let request = ExecuteRequest { stdin: Some(stdin.to_owned()), ..command(text) };
        let execution = self.engine.sandbox("test", id).execute(request).await?;
        Ok(execution.collect(1 << 20).await?)
    }

    /// The output of a Perl script, which must succeed. Perl is in every Debian and can make any system call.
    pub async fn perl(&self, id: &api::SandboxId, script: &str) -> Result<String> {
        let result = self.run_with_stdin(id, "exec perl -", script).await?;
        anyhow::ensure!(result.exit_code == Some(0), "the script ended with {result:?}");
        Ok(result.stdout)
    }

    /// The process ids of the sandbox's processes on the host, including the agent.
    pub fn host_pids(&self, id: &api::SandboxId) -> Result<Vec<i32>> {
        let dirs = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup"]
            .map(|root| Path::new(root).join(&self.name).join(id.as_str()));
        let dir = dirs.iter().find(|dir| dir.exists()).context("the sandbox has no cgroup")?;
        let list = std::fs::read_to_string(dir.join("cgroup.procs"))?;
        Ok(list.lines().map(str::parse).collect::<Result<_, _>>()?)
    }

    /// The lifecycle events of a sandbox; events of its commands are recorded slightly later.
    pub async fn lifecycle_events(&self, id: &api::SandboxId) -> Result<Vec<store::Event>> {
        let events = self.store.events(id, 0, store::MAX_PAGE).await?;
        Ok(events.into_iter().filter(|event| event.kind.starts_with("sandbox.")).collect())
    }

    /// The output of a command, which must succeed.
    pub async fn output(&self, id: &api::SandboxId, text: &str) -> Result<String> {
        let result = self.run(id, text).await?;
        anyhow::ensure!(result.exit_code == Some(0), "{text:?} ended with {result:?}");
        Ok(result.stdout)
    }

    /// Waits until all pools are full.
    pub async fn wait_for_full_pool(&self) {
        while self.engine.pool().iter().any(|pool| pool.ready < pool.target) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Removes all sandboxes and resources of the rig.
    pub async fn clear(self) -> Result<()> {
        self.engine.shutdown().await;
        self.layout.clear(&self.options).await
    }
}

/// The smallest sandbox that the API allows.
pub fn config() -> SandboxConfig {
    let resources = CreateResources { cpu: None, memory_mb: Some(2048), disk_mb: Some(5120) };
    let body = CreateBody {
        image: IMAGE.to_owned(),
        resources: Some(resources),
        timeout_ms: Some(86_400_000),
        idle_timeout_ms: Some(0),
        ..CreateBody::default()
    };
    let Ok(config) = sandbox_config(body, &ConfigRules::default()) else {
        unreachable!("every value above is in its range")
    };
    let resources = Resources { cpu: 2, ..config.resources };
    SandboxConfig { resources, isolation: isolation(), ..config }
}

/// A command with the API's defaults.
pub fn command(text: &str) -> ExecuteRequest {
    ExecuteRequest {
        command: text.to_owned(),
        cwd: None,
        env: Default::default(),
        timeout_ms: 60_000,
        stdin: None,
        auto_resume: true,
        run_id: None,
        user: None,
    }
}

/// A Debian root file system with bash. Built once for all tests, by the code that builds images for users.
pub fn rootfs() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("SANDBOXD_TEST_ROOTFS") {
        return Ok(PathBuf::from(path));
    }
    // On a separate thread, because the caller may be inside a runtime.
    let build =
        || std::thread::spawn(build_rootfs).join().map_err(|_| "the building thread panicked".to_owned())?;
    BUILT.get_or_init(build).clone().map_err(anyhow::Error::msg)
}

fn build_rootfs() -> std::result::Result<PathBuf, String> {
    let building = async {
        let mut catalogue = Catalogue::default();
        catalogue.set(IMAGE, &["debian:bookworm+ca-certificates+curl+git+procps"])?;
        let root = workspace().join("target/test-images/images");
        std::fs::create_dir_all(&root)?;
        let images = Images::open(&root, catalogue, image::Options::default())?;
        let image = images.ensure(IMAGE, Arc::new(|_| {})).await?;
        images.close().await;
        // The lowest layer is the whole system; the layer above is a README for users.
        let root = image.layers.last().context("the image has no layer")?;
        // /dev is in the layer above; users of this layer alone need it here.
        std::fs::create_dir_all(root.join("dev"))?;
        Ok(root.clone())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(building).map_err(|error: anyhow::Error| format!("{error:#}"))
}
