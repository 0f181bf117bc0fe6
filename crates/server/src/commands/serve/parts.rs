//! The parts of a server: the shared service and the listeners.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use admission::Gate;
use admission::in_flight::InFlight;
use admission::key_uses::KeyUses;
use admission::keyring::Keyring;
use admission::limiter::Limiter;
use admission::metrics::RequestMetrics;
use admission::output_memory::OutputMemory;
use anyhow::{Context as _, Result};
use base::chain_text;
use builder::Builder;
use image::Images;
use listen::{IsExempt, Limits, Listener, SelfSigned, Server, TlsConfig};
use native::{FixedLimits, Unrouted};
use relay::{E2b, Relay};
use rules::ExecuteRules;
use service::Service;
use service::bases::bases;
use service::idempotency::Idempotency;
use service::image_access::{ImageAccess, ImageSettings};
use service::ports::{PortSettings, Ports, read_or_create_secret};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::local_service::LocalService;
use super::welcome;
use crate::app::{Opened, network};
use crate::config::{self, Config, Http, Tls};
use crate::metrics;

/// A create that waits longer for its image gets 503 with `Retry-After`.
const PULL_TIMEOUT: Duration = Duration::from_secs(25);
const BUILDS: &str = "builds";
const E2B_SECRET: &str = "e2b.secret";
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Builds what handlers share.
pub async fn service(config: &Config, opened: Opened, images: Images, listens: u16) -> Result<Arc<Service>> {
    let Opened { engine, store, isolation, .. } = opened;
    let (limits, config_rules) = (&config.limits, config.resources.rules());
    let stopping = CancellationToken::new();
    let output_memory = Arc::new(OutputMemory::new(
        limits.buffered_output_bytes,
        limits.buffered_output_bytes_per_account,
        limits.max_output_bytes,
    ));
    let builder = Builder::open(engine.clone(), Arc::clone(&store) as _, builder_settings(config)).await?;
    let gate = Gate {
        keyring: Keyring::load(store.as_ref()).await?,
        key_uses: KeyUses::open(&config.data_dir),
        limiter: Limiter::new(limits.table()),
        in_flight: InFlight::new(config.quotas.table()),
        request_memory: Default::default(),
        output_memory: Arc::clone(&output_memory),
        metrics: RequestMetrics::new(),
        trusted_proxies: config.http.proxies()?,
        store: Arc::clone(&store) as _,
    };
    let service = Arc::new(Service {
        engine,
        builder,
        gate: Arc::new(gate),
        idempotency: Idempotency::new(Arc::clone(&store) as _, output_memory),
        ports: Ports::open(&config.data_dir, port_settings(config, listens))?,
        store,
        images,
        image_access: ImageAccess::open(&config.data_dir, image_settings(config)?),
        limits: native::limits_of(fixed_limits(limits), &config_rules),
        config_rules,
        isolation,
        has_network: network::why_none(config).is_none(),
        execute_rules: ExecuteRules::default(),
        max_output_bytes: limits.max_output_bytes,
        mcp: config.mcp.enabled.then(|| Arc::new(config.mcp.server(&stopping))),
        pull_timeout: PULL_TIMEOUT,
        allowed_origins: config.http.origins()?,
        stopping,
    });
    service.builder.start(&bases(&service)).await;
    Ok(service)
}

fn image_settings(config: &Config) -> Result<ImageSettings> {
    let (max_bytes, pull_bytes_per_day) = (config.images.max_bytes, config.images.pull_bytes_per_day);
    Ok(ImageSettings { policy: config.images.policy()?, max_bytes, pull_bytes_per_day })
}

fn fixed_limits(limits: &config::Limits) -> FixedLimits {
    FixedLimits {
        concurrent_executions: limits.concurrent_executions,
        detached_executions: limits.detached_executions,
        execution_queue: limits.execution_queue,
        max_output_bytes: limits.max_output_bytes,
    }
}

/// The API of E2B; `None` if the operator did not enable it.
fn open_e2b(config: &Config, service: &Arc<Service>) -> Result<Option<Arc<E2b>>> {
    if !config.e2b.enabled {
        return Ok(None);
    }
    let mut templates = e2b::default_templates();
    for (name, own) in &config.e2b.templates {
        let (cpu, memory_mb, disk_mb) = (own.cpu, own.memory_mb, own.disk_mb);
        let template = e2b::Template { image: own.image.clone(), cpu, memory_mb, disk_mb };
        templates.insert(name.clone(), template);
    }
    let settings = e2b::Settings {
        templates,
        public_ports: config.e2b.public_ports,
        domain: service.ports.public_domain(),
        scheme: service.ports.scheme(),
        isolation: Arc::clone(&service.isolation),
    };
    let secret = read_or_create_secret(&config.data_dir, E2B_SECRET)?;
    Ok(Some(E2b::new(service, settings, &secret)?))
}

/// `listens` is the port of the service.
fn port_settings(config: &Config, listens: u16) -> PortSettings {
    let own = &config.ports;
    let (scheme, usual, behind) = match config.http.tls {
        // The proxy terminates TLS, on the default port.
        Tls::Off if !config.http.trusted_proxies.is_empty() => ("https", 443, 443),
        Tls::Off => ("http", 80, listens),
        Tls::SelfSigned | Tls::Files => ("https", 443, listens),
    };
    let port = if own.public_port == 0 { behind } else { own.public_port };
    PortSettings {
        scheme,
        domain: own.domain.clone(),
        public_port: if port == usual { String::new() } else { format!(":{port}") },
        own_names: config.http.tls_names.clone(),
        connections_of_sandbox: own.max_connections,
        connections_of_account: own.account_connections,
        idle: Duration::from_secs(own.idle_seconds),
    }
}

fn builder_settings(config: &Config) -> builder::BuilderSettings {
    builder::BuilderSettings {
        dir: config.data_dir.join(BUILDS),
        concurrent: config.templates.concurrent_builds as usize,
        max_context_bytes: config.templates.max_context_mb << 20,
        retention_ms: config.retention.terminated_days.saturating_mul(DAY_MS),
        log_bytes: config.retention.build_logs_mb << 20,
    }
}

/// Bound sockets and a loaded certificate; no connection is accepted yet.
pub struct BoundListeners {
    listeners: Vec<Listener>,
    tls: Option<listen::Tls>,
    metrics: Option<TcpListener>,
    info: ListenerInfo,
}

/// What the ready message shows.
struct ListenerInfo {
    scheme: &'static str,
    address: SocketAddr,
    certificate: Option<listen::Certificate>,
    metrics: Option<SocketAddr>,
}

/// Listeners that accept connections.
pub struct ServingListeners {
    info: ListenerInfo,
    tasks: Vec<JoinHandle<()>>,
}

impl BoundListeners {
    /// Fails if an address is in use or the certificate is invalid; then all sockets are closed.
    pub fn bind(config: &Config) -> Result<Self> {
        let bind = |key: &'static str, address: SocketAddr| listen::bind(address).context(key);
        let http = &config.http;
        let socket = bind("http.listen", http.listen_address()?)?;
        let address = socket.local_addr()?;
        let metrics = match config.metrics.address()?.map(|address| bind("metrics.listen", address)) {
            // The default address is in use, and the operator did not ask for metrics: serve without them.
            Some(Err(error)) if config.metrics.is_usual() => {
                let error = chain_text(&*error);
                tracing::warn!(
                    error,
                    "metrics are off: their address is in use; set metrics.listen to another address, or to \"\""
                );
                None
            }
            metrics => metrics.transpose()?,
        };
        let mut info = ListenerInfo {
            scheme: "http",
            address,
            certificate: None,
            metrics: metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        };
        let Some(tls) = tls(config) else {
            // Without TLS there is no redirect.
            return Ok(Self { listeners: vec![Listener::Http { socket }], tls: None, metrics, info });
        };
        let tls = listen::Tls::load(tls)?;
        info.scheme = "https";
        info.certificate = (http.tls == Tls::SelfSigned).then(|| tls.certificate());
        let mut listeners = vec![Listener::Https { socket, tls: tls.clone() }];
        if let Some(redirect) = http.redirect_address()? {
            let socket = bind("http.redirect_listen", redirect)?;
            listeners.push(Listener::Redirect { socket, host: name(http, address), port: address.port() });
        }
        Ok(Self { listeners, tls: Some(tls), metrics, info })
    }

    /// The port of the service.
    pub fn port(&self) -> u16 {
        self.info.address.port()
    }

    /// Starts to accept connections.
    pub fn serve(self, config: &Config, service: &Arc<Service>, grace: Duration) -> Result<ServingListeners> {
        let server = Server {
            application: Arc::new(Relay {
                api: native::guarded(Arc::clone(service))?,
                e2b: open_e2b(config, service)?,
            }),
            answers: Arc::new(Unrouted(Arc::clone(service))),
            limits: connection_limits(&config.http),
            is_exempt: exempt(service),
        };
        let (listeners, stop) = (self.listeners, service.stopping.clone());
        let serving = async move {
            listen::serve(server, listeners, stop, grace).await;
        };
        let url = welcome::url(self.info.scheme, self.info.address);
        let tls = self.tls.clone();
        let local = LocalService { data_dir: config.data_dir.clone(), url, tls: self.tls };
        let described = local.write();
        let keeping = local.keep_current(described, service.stopping.clone());
        let mut tasks = vec![tokio::spawn(serving), tokio::spawn(keeping)];
        if let Some(socket) = self.metrics {
            let service = Arc::clone(service);
            tasks.push(tokio::spawn(async move {
                metrics::serve(
                    socket,
                    &service.gate.metrics,
                    (service.engine.clone(), service.builder.clone()),
                    tls,
                    service.stopping.clone(),
                )
                .await;
            }));
        }
        Ok(ServingListeners { info: self.info, tasks })
    }
}

impl ServingListeners {
    pub fn url(&self) -> String {
        welcome::url(self.info.scheme, self.info.address)
    }

    /// The self-signed certificate, which clients have to trust explicitly.
    pub fn certificate(&self) -> Option<PathBuf> {
        self.info.certificate.as_ref().map(|certificate| certificate.file.clone())
    }

    /// The certificate authorities of the system and the self-signed certificate, in one file.
    pub fn authorities(&self) -> Option<PathBuf> {
        self.info.certificate.as_ref().map(listen::Certificate::authorities)
    }

    pub fn metrics(&self) -> Option<SocketAddr> {
        self.info.metrics
    }

    /// Waits until all connections are closed and the sandboxes of MCP sessions are terminated, after the stop of the service.
    pub async fn closed(self, service: &Service) {
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a listener task panicked");
            }
        }
        if let Some(mcp) = &service.mcp {
            mcp.closed().await;
        }
    }
}

fn connection_limits(http: &Http) -> Limits {
    Limits {
        max_connections: http.max_connections as usize,
        max_connections_per_address: http.connections_per_address() as usize,
        max_handshakes_per_address: http.max_handshakes_per_address as usize,
        handshake_timeout: Duration::from_secs(http.handshake_seconds),
        ..Limits::default()
    }
}

/// The limits per address would count all clients of a trusted proxy as one.
fn exempt(service: &Arc<Service>) -> IsExempt {
    let proxies = service.gate.trusted_proxies.clone();
    Arc::new(move |address| proxies.holds(address))
}

fn tls(config: &Config) -> Option<TlsConfig> {
    let http = &config.http;
    match http.tls {
        Tls::SelfSigned => Some(TlsConfig::SelfSigned(SelfSigned {
            dir: config.data_dir.join("tls"),
            names: http.tls_names.iter().cloned().chain([format!("*.{}", config.ports.domain)]).collect(),
        })),
        Tls::Files => Some(TlsConfig::Own { certificate: http.tls_cert.clone(), key: http.tls_key.clone() }),
        Tls::Off => None,
    }
}

/// The host of a redirect if the request has none.
fn name(http: &Http, address: SocketAddr) -> String {
    let own = address.ip();
    if own.is_unspecified() {
        return http.tls_names.first().cloned().unwrap_or_else(|| "localhost".to_owned());
    }
    own.to_string()
}
