//! The least that axum and rustls can answer over HTTPS, in a process of its own: this program, started again.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;

use crate::http::Target;
use crate::service::Service;

/// The hidden subcommand that is the peer.
pub const SERVER: &str = "hello-server";

/// A peer that runs. It ends with this value.
pub struct Hello {
    _child: Child,
    target: Target,
}

impl Hello {
    /// Starts one with the certificate of a service.
    pub async fn start(service: &Service) -> Result<Self> {
        let (certificate, key) = service.certificate()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVER)
            .args([&certificate, &key])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the peer")?;
        let stdout = child.stdout.take().context("the peer has no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the peer died")?;
        let address: SocketAddr = line.parse().context("the peer's address")?;
        let certificates = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { _child: child, target: Target::new(address, certificates, "nobody")? })
    }

    pub fn target(&self) -> &Target {
        &self.target
    }
}

/// The peer itself. Ends with its process.
pub async fn serve(certificate: &Path, key: &Path) -> Result<()> {
    let certificates = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let router = Router::new().route("/", get(async || "hello"));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            // A client that goes away is no concern of a peer.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ =
                    Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            }
        });
    }
}
