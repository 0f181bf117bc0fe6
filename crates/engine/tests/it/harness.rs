//! The test harness: an engine on in-memory fakes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{ExecuteRequest, ExecutionResult, Isolation, Resources, SandboxConfig, SandboxId, SandboxState};
use driver::fake::{FakeDriver, Fault};
use engine::{
    Clock, DetachedSettings, Engine, EngineError, EngineSettings, Parts, PoolKey, PoolTarget, Recovered,
    SandboxError, SnapshotCopies, Template,
};
use rules::{Capacity, TimeMs};
use store::{MemoryStore, Store, StoreError};
use tokio::sync::mpsc;

use crate::network::fake::FakeNetwork;

pub const IMAGE: &str = "test:1";
pub const START: TimeMs = TimeMs(1_700_000_000_000);
pub const SECOND: u64 = 1000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;
pub const SIZE: Resources = Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };

pub fn settings() -> EngineSettings {
    EngineSettings {
        capacity: Capacity { cpu: 64, memory_mb: 65_536, disk_mb: 655_360 },
        quotas: Default::default(),
        host: None,
        pool: Default::default(),
        concurrent_executions: 3,
        detached_executions: 3,
        execution_queue: 0,
        paused_retention_ms: 0,
        hibernate_after_ms: 0,
        terminated_retention_ms: 0,
        terminated_bytes: 0,
        snapshot_retention_ms: 0,
        slots: 32,
        prices: Default::default(),
        // Tests that start detached executions set a directory of their own.
        detached: DetachedSettings::in_dir("/nowhere/executions".into()),
        sample_interval: None,
    }
}

pub fn with_pool(count: u32) -> EngineSettings {
    let pool = [(
        PoolKey { image: IMAGE.to_owned(), isolation: Isolation::Container },
        PoolTarget { count, resources: SIZE },
    )]
    .into();
    EngineSettings { pool, ..settings() }
}

/// A sandbox without an idle timeout and with a long lifetime.
pub fn config() -> SandboxConfig {
    SandboxConfig {
        image: IMAGE.to_owned(),
        resources: SIZE,
        env: Default::default(),
        workdir: "/workspace".to_owned(),
        timeout_ms: 365 * DAY,
        idle_timeout_ms: 0,
        on_timeout: api::OnTimeout::Terminate,
        processes_at_timeout: api::ProcessesAtTimeout::Kept,
        auto_resume: true,
        metadata: Default::default(),
        network: Default::default(),
        isolation: Isolation::Container,
        default_user: false,
        extensions: Default::default(),
    }
}

pub fn template() -> Template {
    Template::of_image(IMAGE.to_owned(), "sha256:1".to_owned(), Vec::new(), Vec::new())
}

pub fn command(text: &str) -> ExecuteRequest {
    ExecuteRequest {
        command: text.to_owned(),
        cwd: None,
        env: Default::default(),
        timeout_ms: 5 * MINUTE,
        stdin: None,
        auto_resume: true,
        run_id: None,
        user: None,
    }
}

pub struct Harness {
    pub driver: FakeDriver,
    pub store: MemoryStore,
    pub engine: Engine,
    pub clock: Clock,
    pub recovered: Recovered,
    pub network: FakeNetwork,
    pub refusals: mpsc::Sender<net::Refusal>,
    /// Whether [`IMAGE`] is not on the host any more.
    pub is_image_removed: Arc<AtomicBool>,
}

impl Harness {
    pub async fn new(settings: EngineSettings) -> Self {
        Self::over(FakeDriver::new(), MemoryStore::new(), settings, START).await
    }

    /// Opens an engine on the host and store of another one.
    pub async fn over(
        driver: FakeDriver,
        store: MemoryStore,
        settings: EngineSettings,
        start: TimeMs,
    ) -> Self {
        let network = FakeNetwork::with_driver(&driver);
        Self::over_all(driver, store, network, settings, start).await
    }

    pub async fn over_all(
        driver: FakeDriver,
        store: MemoryStore,
        network: FakeNetwork,
        settings: EngineSettings,
        start: TimeMs,
    ) -> Self {
        Self::open((driver, store, network), settings, start, None).await
    }

    /// Opens an engine that stores copies of snapshots.
    pub async fn with_copies(
        driver: FakeDriver,
        store: MemoryStore,
        settings: EngineSettings,
        start: TimeMs,
        copies: SnapshotCopies,
    ) -> Self {
        let network = FakeNetwork::with_driver(&driver);
        Self::open((driver, store, network), settings, start, Some(copies)).await
    }

    async fn open(
        (driver, store, network): (FakeDriver, MemoryStore, FakeNetwork),
        settings: EngineSettings,
        start: TimeMs,
        copies: Option<SnapshotCopies>,
    ) -> Self {
        let clock = Clock::runtime(start);
        let (refusals, receiver) = mpsc::channel(2000);
        let is_image_removed = Arc::<AtomicBool>::default();
        let parts = Parts {
            driver: Arc::new(driver.clone()),
            store: Arc::new(store.clone()),
            network: Arc::new(network.clone()),
            refusals: Some(receiver),
            find_image: {
                let is_image_removed = Arc::clone(&is_image_removed);
                let is_there = move |name: &str| name == IMAGE && !is_image_removed.load(Ordering::Relaxed);
                Arc::new(move |name: &str| is_there(name).then(template))
            },
            clock,
            copies,
        };
        let (engine, recovered) = Engine::open(parts, settings).await.unwrap();
        Self { driver, store, engine, clock, recovered, network, refusals, is_image_removed }
    }

    pub async fn create(&self) -> SandboxId {
        self.create_with(config()).await.unwrap()
    }

    pub async fn create_with(&self, config: SandboxConfig) -> Result<SandboxId, EngineError> {
        Ok(self.engine.create("test", config, template(), None).await?.record.id.clone())
    }

    pub async fn run(&self, id: &SandboxId, text: &str) -> Result<ExecutionResult, EngineError> {
        self.request(id, command(text)).await
    }

    pub async fn request(
        &self,
        id: &SandboxId,
        request: ExecuteRequest,
    ) -> Result<ExecutionResult, EngineError> {
        self.engine.sandbox("test", id).execute(request).await?.collect(1 << 20).await
    }

    /// The output of a command, which must succeed.
    pub async fn output(&self, id: &SandboxId, text: &str) -> String {
        let result = self.run(id, text).await.unwrap();
        assert_eq!(result.exit_code, Some(0), "{text:?}: {result:?}");
        result.stdout
    }

    pub async fn state(&self, id: &SandboxId) -> Option<SandboxState> {
        match self.engine.sandbox("test", id).status().await {
            Ok(status) => Some(status.state()),
            Err(EngineError::Sandbox(SandboxError::NotFound { .. })) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// When and why a sandbox was terminated.
    pub async fn ended(&self, id: &SandboxId) -> (TimeMs, String) {
        match self.engine.sandbox("test", id).status().await {
            Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some(why) })) => why,
            other => panic!("{id} should be terminated and is {other:?}"),
        }
    }

    pub async fn events(&self, id: &SandboxId) -> Vec<store::Event> {
        self.store.events(id, 0, store::MAX_PAGE).await.unwrap()
    }

    /// The events of the sandbox's lifecycle.
    pub async fn life(&self, id: &SandboxId) -> Vec<store::Event> {
        self.events(id).await.into_iter().filter(|event| event.kind.starts_with("sandbox.")).collect()
    }

    pub async fn kinds(&self, id: &SandboxId) -> Vec<String> {
        self.events(id).await.into_iter().map(|event| event.kind).collect()
    }

    pub fn fail_next_commit(&self) {
        self.store.fail_next_commit(StoreError::failed("commit", "made to fail by a test"));
    }

    pub fn used(&self) -> (u64, u64, u64) {
        let (_, used) = self.engine.capacity();
        (used.cpu, used.memory_mb, used.disk_mb)
    }

    /// Terminates all sandboxes and checks that nothing is left.
    pub async fn assert_clean(&self) {
        for record in self.store.living().await.unwrap() {
            self.engine.sandbox(&record.account, &record.id).terminate("test").await.unwrap();
        }
        settle().await;
        assert_eq!(self.driver.traces(), Default::default());
        assert_eq!((self.used(), self.engine.living()), ((0, 0, 0), 0));
        assert_eq!((self.network.links(), self.network.policies()), (Vec::new(), 0));
        assert_eq!(self.driver.violations(), Vec::<String>::new());
        assert_eq!(self.network.violations(), Vec::<String>::new());
    }
}

/// Runs one daemon until it crashes, then another one on the same host and store.
pub fn two_daemons<T>(
    first: (EngineSettings, impl AsyncFnOnce(&Harness) -> T),
    second: (EngineSettings, impl AsyncFnOnce(&Harness, T)),
) {
    let (driver, store) = (FakeDriver::new(), MemoryStore::new());
    let network = FakeNetwork::with_driver(&driver);
    let open = async |settings, start| {
        Harness::over_all(driver.clone(), store.clone(), network.clone(), settings, start).await
    };
    let known = runtime().block_on(async { first.1(&open(first.0, START).await).await });
    runtime().block_on(async { second.1(&open(second.0, START.after(HOUR)).await, known).await });
}

/// Runs a client of a daemon that is killed in the step of the backend after `steps`, then checks the next daemon. Returns whether the
/// client finished before.
pub fn finishes_before_crash<K: Default>(
    (steps, fault): (usize, Fault),
    client: impl AsyncFnOnce(&Harness, &Mutex<K>),
    check: impl AsyncFnOnce(&Harness, K),
) -> bool {
    let (driver, store, known) = (FakeDriver::new(), MemoryStore::new(), Mutex::default());
    let network = FakeNetwork::with_driver(&driver);
    driver.crash_after(steps, fault);
    let first = runtime();
    let finished = first.block_on(async {
        let opening = Harness::over_all(driver.clone(), store.clone(), network.clone(), settings(), START);
        let living = async { client(&opening.await, &known).await };
        tokio::time::timeout(Duration::from_millis(100), living).await.is_ok()
    });
    drop(first);
    driver.stop_crashing();
    runtime().block_on(async {
        let harness = Harness::over_all(driver, store, network, settings(), START.after(1000)).await;
        settle().await;
        check(&harness, known.into_inner().unwrap()).await;
    });
    finished
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Lets all tasks run until they wait for time to pass.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
