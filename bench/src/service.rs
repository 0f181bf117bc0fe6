//! A service in a separate process for the duration of a bench, without limits and with a warm pool. Removed even if the bench
//! fails.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::service::{Service as Process, ServiceOptions};
use hyper::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use store::{SqliteStore, Store as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::http::{Connection, Target};

const POOL: u32 = 4;
const POOL_TIMEOUT: Duration = Duration::from_secs(30);
/// Concurrent commands per sandbox, for the bench of open streams.
const CONCURRENT_EXECUTIONS: &str = "200";

/// A running service.
pub struct Service {
    process: Process,
    target: Target,
    key: String,
}

/// Runs `body` with a service.
pub async fn with_service<T>(body: impl AsyncFnOnce(&Service) -> Result<T>) -> Result<T> {
    with_filled_service("bench", async |_| Ok(()), body).await
}

/// Runs `body` with a service that has more options.
pub async fn with_configured_service<T>(
    configure: impl FnOnce(ServiceOptions) -> ServiceOptions,
    body: impl AsyncFnOnce(&Service) -> Result<T>,
) -> Result<T> {
    serve(configure(options()), "bench", async |_| Ok(()), body).await
}

/// Runs `body` with a service of one account. `fill` creates records before the start. An interrupt from the keyboard ends the
/// body, and the service is removed.
pub async fn with_filled_service<T>(
    account: &str,
    fill: impl AsyncFnOnce(Arc<SqliteStore>) -> Result<()>,
    body: impl AsyncFnOnce(&Service) -> Result<T>,
) -> Result<T> {
    serve(options(), account, fill, body).await
}

fn options() -> ServiceOptions {
    ServiceOptions::default().with("pool", &format!("\"{}\"", Process::image()), &POOL.to_string()).with(
        "limits",
        "concurrent_executions",
        CONCURRENT_EXECUTIONS,
    )
}

async fn serve<T>(
    options: ServiceOptions,
    account: &str,
    fill: impl AsyncFnOnce(Arc<SqliteStore>) -> Result<()>,
    body: impl AsyncFnOnce(&Service) -> Result<T>,
) -> Result<T> {
    let process = Process::new(&options)?;
    let store = Arc::new(SqliteStore::open(process.layout.data.join("store.db"))?);
    fill(Arc::clone(&store)).await?;
    store.close().await;
    process.start_process().await?;
    let key = process.key(account, "read,execute,write")?;
    let certificates =
        CertificateDer::pem_file_iter(process.certificate_file()?)?.collect::<Result<Vec<_>, _>>()?;
    let target = Target::new(process.address, certificates, &key)?;
    let service = Service { process, target, key };
    service.wait_for_key().await?;
    tokio::select! {
        result = body(&service) => result,
        interrupted = tokio::signal::ctrl_c() => match interrupted {
            Ok(()) => Err(anyhow::anyhow!("interrupted")),
            Err(error) => Err(error.into()),
        },
    }
}

impl Service {
    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn address(&self) -> SocketAddr {
        self.process.address
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn pid(&self) -> u32 {
        self.process.pid().unwrap_or_default()
    }

    /// The client library, configured for this service.
    pub fn client(&self) -> Result<sandboxd_client::Client> {
        let url = format!("https://{}", self.process.address);
        let certificate = self.process.certificate_file()?;
        Ok(sandboxd_client::Client::builder()
            .url(url)
            .key(&self.key)
            .certificate_file(certificate)
            .build()?)
    }

    /// A connection by one of its names, without HTTP.
    pub async fn tls(&self, name: &str) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
        self.process.tls(name, &["http/1.1"]).await
    }

    /// The program built by `./dev build`.
    pub fn sbx(&self) -> Result<PathBuf> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bin/sbx");
        path.canonicalize().with_context(|| format!("no {}: run './dev build' first", path.display()))
    }

    /// The environment that configures `sbx` for this service.
    pub fn environment(&self) -> Result<[(&'static str, std::ffi::OsString); 3]> {
        Ok([
            ("SANDBOXD_URL", format!("https://{}", self.process.address).into()),
            ("SANDBOXD_API_KEY", self.key.clone().into()),
            ("SANDBOXD_CERTIFICATE", self.process.certificate_file()?.into()),
        ])
    }

    /// The files of its certificate and private key.
    pub fn certificate(&self) -> Result<(PathBuf, PathBuf)> {
        let certificate = self.process.certificate_file()?;
        let key = certificate.with_file_name("tls-key.pem");
        Ok((certificate, key))
    }

    /// A running server looks for new keys a few times a second.
    async fn wait_for_key(&self) -> Result<()> {
        let begin = Instant::now();
        let mut connection = self.target.connect().await?;
        while let Err(error) = connection.bytes(Method::GET, "/v1/sandboxes?limit=1", None).await {
            ensure!(begin.elapsed() < POOL_TIMEOUT, "the service does not accept its key: {error:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Creates a sandbox with the defaults, except that it is not paused when idle.
    pub async fn create(&self, connection: &mut Connection) -> Result<String> {
        let body = json!({ "image": Process::image(), "timeoutMs": 3_600_000, "idleTimeoutMs": 0 });
        let sandbox = connection.json(Method::POST, "/v1/sandboxes", Some(&body)).await?;
        Ok(sandbox["id"].as_str().context("a sandbox without an id")?.to_owned())
    }

    /// Waits until the pool is full, so that the next create claims a sandbox.
    pub async fn wait_for_full_pool(&self) -> Result<()> {
        wait_for_pool(self.process.metrics, POOL).await
    }
}

/// Waits until the pool of a service has a number of sandboxes, according to its metrics.
pub async fn wait_for_pool(metrics: SocketAddr, wanted: u32) -> Result<()> {
    let begin = Instant::now();
    while metric(metrics, "sandboxd_pool_ready{").await? < wanted {
        ensure!(begin.elapsed() < POOL_TIMEOUT, "the pool is not full in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// A metric of a service; `name` is the beginning of its line.
pub async fn metric(metrics: SocketAddr, name: &str) -> Result<u32> {
    let mut stream = tokio::net::TcpStream::connect(metrics).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next());
    Ok(value.with_context(|| format!("the metrics have no {name}"))?.parse()?)
}
