//! The TLS certificate: self-signed, created and renewed here, or the operator's own. If a new certificate is
//! unusable, the error is logged and the old one stays in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use time::OffsetDateTime;
use tokio::sync::watch::Sender;

mod der;
mod files;
mod self_signed;
pub(crate) mod watch;

/// Where the certificate comes from.
#[derive(Debug, Clone)]
pub enum TlsConfig {
    SelfSigned(SelfSigned),
    /// The operator's own, in PEM: the chain with the server's certificate first, and its private key.
    Own {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// A self-signed certificate, stored in `dir` as `tls-cert.pem` and `tls-key.pem`, with `tls-trust.pem` for its clients.
#[derive(Debug, Clone)]
pub struct SelfSigned {
    pub dir: PathBuf,
    /// DNS names and IP addresses that the certificate is for; `*.NAME` is for every name right below.
    pub names: Vec<String>,
}

/// Whether a self-signed certificate can be for this name: a DNS name, also with `*.` in front, or an IP address.
pub fn is_certificate_name(name: &str) -> bool {
    self_signed::is_name(name)
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} has no {what} in PEM: a line such as -----BEGIN {begin}----- is missing")]
    Missing { path: PathBuf, what: &'static str, begin: &'static str },
    #[error(
        "the private key in {path} is encrypted; it must be stored without a passphrase: openssl pkey -in {path} -out NEW_FILE"
    )]
    EncryptedKey { path: PathBuf },
    #[error("{path} is not valid PEM: {source}")]
    NotPem { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the certificate in {certificate} and the key in {key} do not work together: {source}")]
    Unusable { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("the certificate in {path} cannot be read: it is not a valid X.509 certificate")]
    NotX509 { path: PathBuf },
    #[error(
        "cannot create a certificate for the names {names:?}: {source}; they have to be DNS names or IP addresses"
    )]
    BadNames { names: Vec<String>, source: Box<dyn std::error::Error + Send + Sync> },
}

impl TlsError {
    /// The file that is at fault, if it is one alone.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. }
            | Self::Missing { path, .. }
            | Self::EncryptedKey { path }
            | Self::NotPem { path, .. }
            | Self::NotX509 { path } => Some(path),
            Self::Unusable { .. } | Self::BadNames { .. } => None,
        }
    }
}

/// The certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its PEM file, which clients of a self-signed certificate have to trust.
    pub file: PathBuf,
    /// The certificate itself, without its chain, for clients that pin it.
    pub der: Arc<[u8]>,
    pub not_after: OffsetDateTime,
}

impl Certificate {
    /// The first certificate of a PEM file, for checks that do not need its key.
    pub fn read(file: &Path) -> Result<Self, TlsError> {
        let chain = files::chain(file)?;
        let not_x509 = || TlsError::NotX509 { path: file.to_owned() };
        let first = chain.first().ok_or_else(not_x509)?;
        let not_after = der::not_after(first).ok_or_else(not_x509)?;
        Ok(Self { file: file.to_owned(), der: Arc::from(&first[..]), not_after })
    }

    /// Whether it is for this name or address. `*.NAME` stands for the names right below.
    pub fn is_for(&self, name: &str) -> bool {
        self_signed::is_for(&self.der, name)
    }

    /// A file with the certificate authorities of the system and this self-signed certificate, for programs that trust the
    /// authorities of one file only.
    pub fn authorities(&self) -> PathBuf {
        self.file.with_file_name(self_signed::AUTHORITIES)
    }
}

/// The certificate for new connections. It can be replaced while connections are open. Clones share it.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<TlsShared>,
}

struct TlsShared {
    config: TlsConfig,
    now: fn() -> OffsetDateTime,
    current: Sender<Loaded>,
}

#[derive(Clone)]
struct Loaded {
    server: Arc<ServerConfig>,
    certificate: Certificate,
    seen: files::FileState,
}

impl Tls {
    /// Reads the certificate, or creates a self-signed one if there is no usable one. Blocks for a few milliseconds.
    pub fn load(config: TlsConfig) -> Result<Self, TlsError> {
        Self::load_at(config, OffsetDateTime::now_utc)
    }

    /// With the caller's clock, for tests of the renewal.
    fn load_at(config: TlsConfig, now: fn() -> OffsetDateTime) -> Result<Self, TlsError> {
        let loaded = obtain(&config, now())?;
        if loaded.certificate.not_after <= now() {
            tracing::warn!(
                file = %loaded.certificate.file.display(),
                not_after = %loaded.certificate.not_after,
                "the TLS certificate has expired; clients will refuse it"
            );
        }
        Ok(Self { shared: Arc::new(TlsShared { config, now, current: Sender::new(loaded) }) })
    }

    /// The certificate that new connections get.
    pub fn certificate(&self) -> Certificate {
        self.shared.current.borrow().certificate.clone()
    }

    /// Waits until new connections get another certificate than `known`.
    pub async fn replaced(&self, known: &Certificate) {
        let mut changes = self.shared.current.subscribe();
        // An error would mean that the sender is gone, which `self` has.
        let _ = changes.wait_for(|loaded| loaded.certificate != *known).await;
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.shared.current.borrow().server)
    }

    fn current(&self) -> Loaded {
        self.shared.current.borrow().clone()
    }

    fn replace(&self, loaded: Loaded) {
        self.shared.current.send_replace(loaded);
    }
}

/// Reads a certificate that works at `now`; a self-signed one is created again when it is due.
fn obtain(config: &TlsConfig, now: OffsetDateTime) -> Result<Loaded, TlsError> {
    match config {
        TlsConfig::Own { certificate, key } => read(certificate, key),
        TlsConfig::SelfSigned(own) => {
            let (certificate, key) = self_signed::paths(own);
            match self_signed::check_stored(own, now) {
                self_signed::StoredCertificate::Keep => {}
                self_signed::StoredCertificate::Create(why) => {
                    self_signed::create(own, now)?;
                    tracing::info!(file = %certificate.display(), why, "created a self-signed TLS certificate");
                }
            }
            // Without the file only the programs that were told to use it fail.
            if let Err(error) = self_signed::write_authorities(own) {
                tracing::warn!(%error, "the list of certificate authorities is missing or old");
            }
            read(&certificate, &key)
        }
    }
}

/// Reads a certificate and its key and checks that they match.
fn read(certificate: &Path, key: &Path) -> Result<Loaded, TlsError> {
    // Before reading the files: the next check then notices a concurrent change.
    let seen = files::FileState::of(&[certificate, key]);
    let (served, chain, private) =
        (Certificate::read(certificate)?, files::chain(certificate)?, files::key(key)?);
    let unusable = |source: rustls::Error| TlsError::Unusable {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets resume sessions without state on the server.
    server.ticketer = rustls::crypto::ring::Ticketer::new().map_err(unusable)?;
    Ok(Loaded { server: Arc::new(server), certificate: served, seen })
}

#[cfg(test)]
mod tests;
