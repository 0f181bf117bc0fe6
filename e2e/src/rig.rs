//! An engine on this host that shares nothing with another: tests run side by side, and one that dies leaves only things
//! that carry its name.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use api::{CreateBody, CreateResources, ExecuteRequest, Resources, SandboxConfig};
use driver::Driver;
use engine::{Engine, EngineSettings, Parts, Recovered, Template};
use image::{Catalogue, Images};
use rules::{ConfigRules, sandbox_config};
use store::{SqliteStore, Store};

use crate::options::{RigOptions, workspace};
use crate::place::{Place, Sweeper};

/// Image name under which the test root file system goes.
pub const IMAGE: &str = "ubuntu:24.04";

/// A real engine and everything it stands on.
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
    place: Place,
    options: RigOptions,
    sweeper: Option<Sweeper>,
}

/// A rig whose engine has stopped. Its sandboxes live on.
pub struct Halted {
    pub driver: Arc<dyn Driver>,
    pub place: Place,
    pub options: RigOptions,
    sweeper: Option<Sweeper>,
}

impl Halted {
    /// Another engine on the same things.
    pub async fn start(self) -> Result<Rig> {
        let Self { place, options, sweeper, driver } = self;
        drop(driver);
        Rig::at(options, place, sweeper).await
    }
}

impl Rig {
    pub async fn new(options: RigOptions) -> Result<Self> {
        // Several rigs in one process share the first one's subscriber.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .try_init();
        let place = Place::fresh();
        let sweeper = Sweeper::new(&place, &options);
        Self::at(options, place, Some(sweeper)).await
    }

    /// The rig of a name: what another one of this name, in a process that died, left is recovered.
    pub async fn named(name: String, options: RigOptions) -> Result<Self> {
        Self::at(options, Place::named(&name)?, None).await
    }

    async fn at(options: RigOptions, place: Place, sweeper: Option<Sweeper>) -> Result<Self> {
        let driver: Arc<dyn Driver> = Arc::new(place.driver(&options)?);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(place.data.join("store.db"))?);
        let template = Template {
            name: IMAGE.to_owned(),
            digest: "sha256:test".to_owned(),
            layers: vec![rootfs()?],
            env: vec!["IMAGE_SAYS=hello".to_owned()],
        };
        let pool = engine::PoolTarget { count: options.pool, resources: config().resources };
        let engine_settings = EngineSettings {
            capacity: options.capacity,
            quotas: Default::default(),
            host: None,
            pool: if options.pool > 0 { [(IMAGE.to_owned(), pool)].into() } else { Default::default() },
            concurrent_executions: options.concurrent_executions,
            execution_queue: options.execution_queue,
            paused_retention_ms: options.paused_retention_ms,
            terminated_retention_ms: 0,
            slots: options.slots,
            prices: Default::default(),
            detached: engine::DetachedSettings::in_dir(place.data.join("executions")),
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
        };
        let (engine, recovered) = Engine::open(parts, engine_settings).await?;
        let Place { name, data, run, uid_base } = place.clone();
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
            place,
            options,
            sweeper,
        })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Stops the engine as a daemon's end does.
    pub async fn halt(self) -> Halted {
        let Self { engine, driver, place, options, sweeper, .. } = self;
        engine.shutdown().await;
        Halted { driver, place, options, sweeper }
    }

    /// As a daemon that was restarted: another engine on the same things.
    pub async fn restart(self) -> Result<Self> {
        self.halt().await.start().await
    }

    /// A new sandbox of the usual size.
    pub async fn create(&self) -> Result<api::SandboxId> {
        let status = self.engine.create("test", config(), self.template.clone(), None).await?;
        Ok(status.record.id.clone())
    }

    /// Runs a command to its end.
    pub async fn run(&self, id: &api::SandboxId, text: &str) -> Result<api::ExecutionResult> {
        let execution = self.engine.sandbox("test", id).execute(command(text)).await?;
        Ok(execution.collect(1 << 20).await?)
    }

    /// Runs a command that reads `stdin`, to its end.
    pub async fn feed(&self, id: &api::SandboxId, text: &str, stdin: &str) -> Result<api::ExecutionResult> {
        let request = ExecuteRequest { stdin: Some(stdin.to_owned()), ..command(text) };
        let execution = self.engine.sandbox("test", id).execute(request).await?;
        Ok(execution.collect(1 << 20).await?)
    }

    /// What a script prints, which must succeed. Perl is in every Debian and can make any system call.
    pub async fn perl(&self, id: &api::SandboxId, script: &str) -> Result<String> {
        let result = self.feed(id, "exec perl -", script).await?;
        anyhow::ensure!(result.exit_code == Some(0), "the script ended with {result:?}");
        Ok(result.stdout)
    }

    /// The host's numbers of the sandbox's processes, the agent's among them.
    pub fn host_pids(&self, id: &api::SandboxId) -> Result<Vec<i32>> {
        let dirs = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup"]
            .map(|root| Path::new(root).join(&self.name).join(id.as_str()));
        let dir = dirs.iter().find(|dir| dir.exists()).context("the sandbox has no cgroup")?;
        let list = std::fs::read_to_string(dir.join("cgroup.procs"))?;
        Ok(list.lines().map(str::parse).collect::<Result<_, _>>()?)
    }

    /// The events of its own life; those of its commands come some moments later.
    pub async fn life(&self, id: &api::SandboxId) -> Result<Vec<store::Event>> {
        let events = self.store.events(id, 0, store::MAX_PAGE).await?;
        Ok(events.into_iter().filter(|event| event.kind.starts_with("sandbox.")).collect())
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
        self.place.clear(&self.options).await
    }
}

/// The smallest sandbox the specification allows.
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
        run_id: None,
    }
}

/// A Debian root file system with bash: built once for all tests, by the code that builds it for users.
pub fn rootfs() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("SANDBOXD_TEST_ROOTFS") {
        return Ok(PathBuf::from(path));
    }
    // A thread of its own: the caller may be inside a runtime.
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
        // The lowest is the whole system; what stands over it is a note for people.
        let root = image.layers.last().context("the image has no layer")?;
        // Its place for devices is in the layer over it; programs that take this one as it is look for it here.
        std::fs::create_dir_all(root.join("dev"))?;
        Ok(root.clone())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(building).map_err(|error: anyhow::Error| format!("{error:#}"))
}
