//! TLS connections to a service. Only the service's self-signed certificate is trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Service;

/// How deep below the data directory the certificate may be.
const DEPTH: u32 = 2;

impl Service {
    /// The file that holds the service's certificate.
    pub fn certificate_file(&self) -> Result<PathBuf> {
        certificate_below(&self.layout.data, DEPTH).context("the data directory has no certificate")
    }

    pub(super) fn connector(&self, protocols: &[&str]) -> Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.certificate_file()?)? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// A connection to the service by one of its names, after the handshake.
    pub async fn tls(&self, name: &str, protocols: &[&str]) -> Result<TlsStream<TcpStream>> {
        connect(&self.connector(protocols)?, self.address, name).await
    }
}

pub(super) async fn connect(
    connector: &TlsConnector,
    address: std::net::SocketAddr,
    name: &str,
) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(connector.connect(ServerName::try_from(name.to_owned())?, stream).await?)
}

fn certificate_below(dir: &Path, depth: u32) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let holds_one = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "pem" || end == "crt")
            && std::fs::read_to_string(path).is_ok_and(|text| text.contains("-----BEGIN CERTIFICATE-----"))
    };
    if let Some(found) = entries.iter().find(|path| path.is_file() && holds_one(path)) {
        return Some(found.clone());
    }
    let dirs = entries.iter().filter(|path| depth > 0 && path.is_dir() && !path.is_symlink());
    dirs.filter(|path| !path.ends_with("sandboxes")).find_map(|path| certificate_below(path, depth - 1))
}
