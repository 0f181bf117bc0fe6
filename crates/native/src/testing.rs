//! A whole service on the fake driver and a store in memory, for the tests of this crate and of those above.
//!
//! [`Harness`] is the service without sockets: real layers, router, engine and images. Compiled for tests and with the feature
//! `testing` only.

pub mod websocket;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::mcp::{HttpServer, HttpSettings, McpSettings};
use admission::Gate;
use admission::keyring::{Keyring, hash_of};
use admission::limiter::Limiter;
use admission::metrics::RequestMetrics;
use admission::output_memory::OutputMemory;
use builder::Builder;
use driver::fake::FakeDriver;
use engine::{Clock, Engine, EngineSettings, Template};
use image::{Catalogue, Images, RegistryOptions};
use rules::{Capacity, ImagePattern, ImagePolicy, KeyText, Rates, Scope, TimeMs};
use service::Service;
use service::idempotency::Idempotency;
use service::image_access::{ImageAccess, ImageSettings};
use service::ports::Ports;
use store::{Batch, KeyRecord, MemoryStore, Store, Write};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::layers::Guarded;
use crate::routes::{self, FixedLimits};

/// An error fails the test.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// What a harness is made with.
pub struct Settings {
    pub clock: Clock,
    pub allow_any_image: bool,
    /// Images that are on the host.
    pub ready: &'static [&'static str],
    /// An image whose registry accepts connections and never answers.
    pub hanging: &'static str,
    pub capacity: Capacity,
    pub max_output_bytes: usize,
}

/// Keys of account `one` that have one scope each.
pub const SCOPED: [(u8, Scope); 3] = [(3, Scope::Read), (4, Scope::Execute), (5, Scope::Write)];

/// The service without its sockets. Keys `key(1)` and `key(2)` belong to the accounts `one` and `two` and have all scopes but `admin`,
/// `key(6)` is another one of `one`;
/// the keys of [`SCOPED`] have one.
pub struct Harness {
    pub driver: FakeDriver,
    pub service: Arc<Service>,
    pub guarded: Guarded,
    pub dir: TempDir,
    pub registry: std::net::TcpListener,
}

pub fn key(n: u8) -> KeyText {
    KeyText::format([n; 32])
}

impl Harness {
    pub async fn new(settings: Settings) -> Result<Self> {
        Self::with(settings, |_| ()).await
    }

    /// With a service that `change` has changed.
    pub async fn with(settings: Settings, change: impl FnOnce(&mut Service)) -> Result<Self> {
        let (store, driver) = (MemoryStore::new(), FakeDriver::new());
        for (n, account) in [(1, "one"), (2, "two"), (6, "one")] {
            put_key(&store, n, account, "read,execute,write").await?;
        }
        for (n, scope) in SCOPED {
            put_key(&store, n, "one", scope.as_str()).await?;
        }
        let dir = tempfile::tempdir()?;
        let registry = std::net::TcpListener::bind("127.0.0.1:0")?;
        let images = images(&settings, &dir, registry.local_addr()?).await?;
        let kept: Arc<dyn Store> = Arc::new(store.clone());
        let output = Arc::<OutputMemory>::default();
        let engine_settings = engine_settings(settings.capacity, 100, dir.path());
        let parts = engine::Parts {
            driver: Arc::new(driver.clone()),
            store: Arc::clone(&kept),
            network: Arc::new(net::NoNetwork),
            refusals: None,
            find_image: Arc::new(move |name: &str| settings.ready.contains(&name).then(|| template(name))),
            clock: settings.clock,
            copies: None,
        };
        let (engine, _) = Engine::open(parts, engine_settings).await?;
        let stopping = CancellationToken::new();
        let builder = builder::BuilderSettings {
            dir: dir.path().join("builds"),
            concurrent: 2,
            max_context_bytes: 1 << 20,
            retention_ms: 0,
            log_bytes: 0,
        };
        let builder = Builder::open(engine.clone(), Arc::clone(&kept), builder).await?;
        let gate = gate(&store, Rates::UNLIMITED, Arc::clone(&output)).await?;
        let mut service = Service {
            engine,
            builder,
            images,
            image_access: image_access(settings.allow_any_image, dir.path()),
            gate: Arc::new(gate),
            idempotency: Idempotency::new(Arc::clone(&kept), Arc::clone(&output)),
            ports: Ports::passing(),
            store: kept,
            allowed_origins: Default::default(),
            config_rules: Default::default(),
            isolation: Default::default(),
            limits: routes::limits_of(fixed_limits(), &Default::default()),
            has_network: true,
            execute_rules: Default::default(),
            max_output_bytes: settings.max_output_bytes,
            mcp: Some(Arc::new(mcp_server(settings.ready[0], &stopping))),
            pull_timeout: Duration::from_millis(200),
            stopping,
        };
        change(&mut service);
        let service = Arc::new(service);
        let guarded = routes::guarded(Arc::clone(&service))?;
        Ok(Self { driver, service, guarded, dir, registry })
    }

    pub fn images_dir(&self) -> PathBuf {
        self.dir.path().join("images")
    }
}

fn template(name: &str) -> Template {
    Template::of_image(name.to_owned(), "sha256:1".to_owned(), vec![], vec![])
}

/// The settings of an engine without limits other than its capacity and the number of sandboxes and executions.
pub fn engine_settings(capacity: Capacity, slots: u32, dir: &Path) -> EngineSettings {
    EngineSettings {
        capacity,
        quotas: Default::default(),
        host: None,
        pool: Default::default(),
        concurrent_executions: 3,
        detached_executions: 32,
        execution_queue: 0,
        paused_retention_ms: 0,
        hibernate_after_ms: 0,
        terminated_retention_ms: 0,
        terminated_bytes: 0,
        snapshot_retention_ms: 0,
        slots,
        prices: Default::default(),
        detached: engine::DetachedSettings::in_dir(dir.join("executions")),
        sample_interval: Some(std::time::Duration::from_millis(50)),
    }
}

/// The limits of the default configuration.
pub fn fixed_limits() -> FixedLimits {
    FixedLimits {
        concurrent_executions: 3,
        detached_executions: 32,
        execution_queue: 0,
        max_output_bytes: 16 << 20,
    }
}

fn mcp_server(image: &str, stop: &CancellationToken) -> HttpServer {
    let tools =
        McpSettings { image: image.to_owned(), lifetime: Duration::from_secs(3600), only_domains: None };
    HttpServer::new(HttpSettings {
        tools,
        max_sessions: 1000,
        idle: Duration::from_secs(15 * 60),
        stop: stop.clone(),
    })
}

/// A gate with the keys of the store, and no limits but these rates.
pub async fn gate(store: &MemoryStore, rates: Rates, output_memory: Arc<OutputMemory>) -> Result<Gate> {
    Ok(Gate {
        keyring: Keyring::load(store).await?,
        key_uses: Default::default(),
        limiter: Limiter::new(rates),
        in_flight: Default::default(),
        request_memory: Default::default(),
        output_memory,
        metrics: RequestMetrics::new(),
        trusted_proxies: Default::default(),
        store: Arc::new(store.clone()),
    })
}

/// The gate of a service that does not run yet.
pub fn gate_of(service: &mut Service) -> &mut Gate {
    match Arc::get_mut(&mut service.gate) {
        Some(gate) => gate,
        None => panic!("the service runs already"),
    }
}

/// Adds a key while the service runs.
pub async fn add_key(service: &Service, record: KeyRecord) -> Result<()> {
    service.store.commit(Batch::new().with(Write::PutKey(Box::new(record)))).await?;
    service.gate.keyring.refresh(&*service.store).await?;
    Ok(())
}

/// The record of `key(n)`.
pub fn key_record(n: u8, account: &str, scopes: &str) -> KeyRecord {
    KeyRecord {
        id: format!("key_{n}"),
        hash: hash_of(&key(n)),
        account: account.to_owned(),
        scopes: scopes.to_owned(),
        name: None,
        prefix_hint: key(n).hint().to_owned(),
        created_at: TimeMs(1),
        revoked_at: None,
        expires_at: None,
        limits: Default::default(),
    }
}

/// Stores the record of `key(n)`.
pub async fn put_key(store: &MemoryStore, n: u8, account: &str, scopes: &str) -> Result<()> {
    let record = key_record(n, account, scopes);
    store.commit(Batch::new().with(Write::PutKey(Box::new(record)))).await?;
    Ok(())
}

/// Accounts may name all images of registries, or none.
fn image_access(allow_any: bool, dir: &Path) -> ImageAccess {
    let allow = if allow_any { ImagePattern::parse("**").into_iter().collect() } else { Vec::new() };
    let policy = ImagePolicy { allow, ..ImagePolicy::default() };
    ImageAccess::open(dir, ImageSettings { policy, ..ImageSettings::default() })
}

async fn images(settings: &Settings, dir: &TempDir, registry: SocketAddr) -> Result<Images> {
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("bin"))?;
    let mut catalogue = Catalogue::default();
    for name in settings.ready {
        catalogue.set(name, &[format!("rootfs:{}", root.display())])?;
    }
    catalogue.set("custom", &[""; 0])?;
    catalogue.set("gone:1", &["rootfs:/nonexistent/root"])?;
    catalogue.set(settings.hanging, &[format!("{registry}/hanging:1")])?;
    // Clients may name it with `allow_any_image`, and one where nothing listens.
    let private_registries = vec![registry.to_string(), "127.0.0.1:1".to_owned()];
    let listed = RegistryOptions { private_registries, ..RegistryOptions::default() };
    let options = image::Options { registry: listed, ..image::Options::default() };
    let images = Images::open(&dir.path().join("images"), catalogue, options)?;
    for name in settings.ready {
        images.ensure(name, Arc::new(|_| {})).await?;
    }
    Ok(images)
}
