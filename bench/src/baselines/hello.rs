//! A minimal HTTPS server of axum and rustls, in another process of this program.

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

/// The hidden subcommand that runs the server.
pub const SERVER: &str = "hello-server";

/// A running server. It ends when dropped.
pub struct Hello {
    _child: Child,
    target: Target,
}

impl Hello {
    /// Starts a server with the certificate of a service.
    pub async fn start(service: &Service) -> Result<Self> {
        let (certificate, key) = service.certificate()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVER)
            .args([&certificate, &key])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the hello server")?;
        let stdout = child.stdout.take().context("the hello server has no stdout")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the hello server ended")?;
        let address: SocketAddr = line.parse().context("the address of the hello server")?;
        let certificates = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { _child: child, target: Target::new(address, certificates, "nobody")? })
    }

    pub fn target(&self) -> &Target {
        &self.target
    }
}

/// Runs the server until its process ends.
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
            // Errors of single connections are ignored.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ =
                    Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            }
        });
    }
}
