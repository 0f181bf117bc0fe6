//! A registry: the first connection, which fails fast if the registry cannot be reached; manifests; and blobs, whose transfers are
//! resumed after a failure.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oci_client::Reference;
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
};
use oci_client::secrets::RegistryAuth;
use reqwest::{Client, StatusCode};
use rules::Ranges;
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::http::{HttpError, Repository};
use super::manifest::{Blob, TEXT_BYTES};
use super::reach::Reach;
use super::retry::{RetryVerdict, back_off, classify, verdict};
use super::{Fetched, UnreachableRegistries, credentials};
use crate::client::{Audience, NamedBy};
use crate::error::{FailureKind, chain};
use crate::fault::Fault;
use crate::job::Job;
use crate::source::is_sha256;
use crate::unpack::{hex, sha256_hex};

/// Settings for the access to registries.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    /// Docker's `config.json` with logins.
    pub docker_config: Option<PathBuf>,
    /// Timeout of the first response, after which the registry counts as unreachable.
    pub connect_timeout: Duration,
    /// How long an unreachable registry is not contacted again.
    pub unreachable_for: Duration,
    /// Timeout of a transfer without progress.
    pub read_timeout: Duration,
    /// Attempts for a request, or for a transfer without progress.
    pub attempts: u32,
    /// The delay after the first failed attempt; it doubles.
    pub back_off: Duration,
    /// Addresses that registries which clients name may not have.
    pub closed: Ranges,
    /// Registries (`HOST` or `HOST:PORT`) that clients may name whatever their addresses are.
    pub private_registries: Vec<String>,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self {
            docker_config: credentials::default_path(),
            connect_timeout: Duration::from_secs(3),
            unreachable_for: Duration::from_secs(300),
            read_timeout: Duration::from_secs(30),
            attempts: 5,
            back_off: Duration::from_millis(300),
            closed: Ranges::new(None, Vec::new()),
            private_registries: Vec::new(),
        }
    }
}

impl RegistryOptions {
    fn reach(&self, host: &str, named_by: NamedBy) -> Reach {
        match named_by {
            NamedBy::Client if !self.private_registries.iter().any(|listed| listed == host) => {
                Reach::Public(Arc::new(self.closed.clone()))
            }
            NamedBy::Client | NamedBy::Operator => Reach::Any,
        }
    }
}

const ACCEPT: &[&str] = &[
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
];
/// Progress that resets the attempts of a transfer.
const PROGRESS_BYTES: u64 = 64 * 1024;
const MANIFEST_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Registry {
    repository: Repository,
    reference: Reference,
    /// Whether a login is sent, and from which file, for errors.
    login: String,
    audience: Audience,
    attempts: u32,
    back_off: Duration,
}

impl Registry {
    /// Connects for the first time and authenticates.
    pub(super) async fn connect(
        text: &str,
        named_by: NamedBy,
        options: &RegistryOptions,
        unreachable_registries: &UnreachableRegistries,
    ) -> Result<Self, Fault> {
        let reference: Reference =
            text.parse().map_err(|e| Fault::refused("the reference is malformed").caused_by(e))?;
        let host = reference.resolve_registry().to_owned();
        let unreachable = |why: &str| {
            Fault::new(FailureKind::Unreachable, format!("registry {host} cannot be reached: {why}"))
        };
        let reach = options.reach(reference.registry(), named_by);
        let registry = Self::new(reference, reach, named_by, options)?;
        // A client must not make registries unreachable for others, and its next attempt may be the one that works.
        let remember = |why: &str| match named_by {
            NamedBy::Operator => unreachable_registries.fail(&host, why),
            NamedBy::Client => {}
        };
        let known = match named_by {
            NamedBy::Operator => unreachable_registries.failure(&host),
            NamedBy::Client => None,
        };
        if let Some(why) = known {
            let seconds = options.unreachable_for.as_secs();
            return Err(unreachable(&format!("{why} (from an attempt in the last {seconds} s)")));
        }
        match tokio::time::timeout(options.connect_timeout, registry.first_contact()).await {
            Ok(Ok(())) => Ok(registry),
            Ok(Err(ContactError::Refused(fault))) => Err(fault),
            Ok(Err(ContactError::None(e))) => {
                remember(&chain(&e));
                let reason = format!("registry {host} cannot be reached");
                Err(Fault::new(FailureKind::Unreachable, reason).caused_by(e))
            }
            Err(_) => {
                let why = format!("no answer within {} ms", options.connect_timeout.as_millis());
                remember(&why);
                Err(unreachable(&why))
            }
        }
    }

    fn new(
        reference: Reference,
        reach: Reach,
        named_by: NamedBy,
        options: &RegistryOptions,
    ) -> Result<Self, Fault> {
        let host = reference.resolve_registry();
        let scheme = if is_loopback(host) { "http" } else { "https" };
        let login = credentials::find(options.docker_config.as_deref(), &reference)?;
        let described = credentials::described(&login, options.docker_config.as_deref());
        let audience = match (named_by, &reach, &login) {
            (NamedBy::Operator, ..) | (NamedBy::Client, Reach::Public(_), RegistryAuth::Anonymous) => {
                Audience::Everyone
            }
            (NamedBy::Client, ..) => {
                Audience::Repository(format!("{}/{}", reference.registry(), reference.repository()))
            }
        };
        let client = client(&reach, options)?;
        let repository = Repository::new(client, reach, scheme, &reference, login)
            .map_err(|e| classify(&format!("registry {host}"), e).1)?;
        let (attempts, back_off) = (options.attempts.max(1), options.back_off);
        Ok(Self { repository, reference, login: described, audience, attempts, back_off })
    }

    pub(super) fn audience(&self) -> &Audience {
        &self.audience
    }

    /// With the login that was refused, if so.
    fn classify(&self, what: &str, e: HttpError) -> (RetryVerdict, Fault) {
        let (verdict, mut fault) = classify(what, e);
        if fault.kind == FailureKind::Denied {
            fault.reason = format!("{what}, {}", self.login);
        }
        (verdict, fault)
    }

    async fn first_contact(&self) -> Result<(), ContactError> {
        let mut attempts = 1;
        loop {
            let e = match self.repository.authenticate().await {
                Ok(()) => return Ok(()),
                Err(e) => e,
            };
            let is_connect = matches!(&e, HttpError::Connection(inner) if inner.is_connect());
            let is_last = attempts >= self.attempts || (is_connect && attempts >= 2);
            match verdict(&e) {
                (RetryVerdict::Final, _) => {
                    return Err(ContactError::Refused(self.classify("log in", e).1));
                }
                (RetryVerdict::Retry, _) if is_last => return Err(ContactError::None(e)),
                (RetryVerdict::Retry, _) => {}
            }
            tokio::time::sleep(back_off(self.back_off, attempts)).await;
            attempts += 1;
        }
    }

    /// A manifest or index: the one with this digest, or the one the reference names.
    pub(super) async fn manifest(&self, digest: Option<&str>) -> Result<(Vec<u8>, String), Fault> {
        let wanted = digest.or(self.reference.digest());
        let which = wanted.or(self.reference.tag()).unwrap_or("latest");
        let what = format!("manifest {}/{}:{which}", self.reference.registry(), self.reference.repository());
        let limit = usize::try_from(TEXT_BYTES).unwrap_or(usize::MAX);
        let mut attempts = 1;
        loop {
            let request = self.repository.manifest(which, ACCEPT, limit);
            let response = tokio::time::timeout(MANIFEST_LIMIT, request).await;
            match response.unwrap_or(Err(HttpError::Timeout(MANIFEST_LIMIT))) {
                Ok(text) => return check_manifest(&what, text, wanted),
                Err(e) => self.wait_or_fail(&what, e, &mut attempts).await?,
            }
        }
    }

    /// Transfers a blob to a file and verifies it.
    pub(super) async fn blob(&self, blob: &Blob, job: &Job) -> Result<Fetched, Fault> {
        let scratch = job.scratch()?;
        let path = scratch.path().join("blob");
        let mut transfer = Transfer::new(&path, blob, job).await?;
        let what = format!("blob {}", blob.digest);
        let mut attempts = 1;
        loop {
            let received_before = transfer.received;
            match self.transfer(&mut transfer).await {
                Ok(()) => break,
                Err(TransferError::Fault(fault)) => return Err(fault),
                Err(TransferError::Registry(e)) => {
                    // Only interruptions without progress count as failed attempts.
                    if transfer.received >= received_before + PROGRESS_BYTES {
                        attempts = 1;
                    }
                    self.wait_or_fail(&what, e, &mut attempts).await?;
                }
            }
        }
        transfer.finish().await?;
        Ok(Fetched::Temporary { file: path, _scratch: scratch })
    }

    async fn transfer(&self, transfer: &mut Transfer<'_>) -> Result<(), TransferError> {
        // Alternative URLs of a layer in the manifest are ignored.
        let mut response = self.repository.blob(&transfer.blob.digest, transfer.received).await?;
        if transfer.received > 0 && response.status() != StatusCode::PARTIAL_CONTENT {
            transfer.restart().await?;
        }
        while let Some(bytes) = response.chunk().await.map_err(HttpError::from)? {
            transfer.write(&bytes).await?;
        }
        let (received, expected) = (transfer.received, transfer.blob.size);
        if received < expected {
            return Err(TransferError::Registry(HttpError::Short { received, expected }));
        }
        Ok(())
    }

    async fn wait_or_fail(&self, what: &str, e: HttpError, attempts: &mut u32) -> Result<(), Fault> {
        let (verdict, fault) = self.classify(what, e);
        if verdict == RetryVerdict::Final || *attempts >= self.attempts {
            return Err(fault);
        }
        tracing::info!(reason = %fault, attempts = *attempts, "a registry request failed; retrying");
        tokio::time::sleep(back_off(self.back_off, *attempts)).await;
        *attempts += 1;
        Ok(())
    }
}

/// Why the first connection failed.
enum ContactError {
    /// The registry did not respond.
    None(HttpError),
    /// The registry refused.
    Refused(Fault),
}

/// Why a transfer ended early.
enum TransferError {
    Registry(HttpError),
    Fault(Fault),
}

impl From<HttpError> for TransferError {
    fn from(e: HttpError) -> Self {
        Self::Registry(e)
    }
}

impl From<Fault> for TransferError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A blob that is being transferred to disk.
struct Transfer<'a> {
    blob: &'a Blob,
    job: &'a Job,
    file: File,
    hash: Sha256,
    received: u64,
}

impl<'a> Transfer<'a> {
    async fn new(path: &Path, blob: &'a Blob, job: &'a Job) -> Result<Self, Fault> {
        let limit = job.budget.limits.unpacked_bytes;
        if blob.size > limit {
            return Err(Fault::too_big(format!(
                "blob {} has {} bytes; at most {limit} are allowed",
                blob.digest, blob.size
            )));
        }
        let file = File::create(path).await.map_err(Fault::io("create a work file"))?;
        Ok(Self { blob, job, file, hash: Sha256::new(), received: 0 })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let received = self.received + bytes.len() as u64;
        if received > self.blob.size {
            return Err(Fault::refused(format!(
                "blob {} is longer than the {} bytes in its manifest",
                self.blob.digest, self.blob.size
            )));
        }
        self.file.write_all(bytes).await.map_err(Fault::io("write a blob"))?;
        self.hash.update(bytes);
        self.received = received;
        self.job.receive(bytes.len() as u64)
    }

    async fn restart(&mut self) -> Result<(), Fault> {
        use tokio::io::AsyncSeekExt;
        self.file.rewind().await.map_err(Fault::io("write a blob"))?;
        self.file.set_len(0).await.map_err(Fault::io("write a blob"))?;
        self.job.meter.take_back(self.received);
        self.hash = Sha256::new();
        self.received = 0;
        Ok(())
    }

    /// Verifies the digest. For resumed transfers this is the only verification.
    async fn finish(mut self) -> Result<(), Fault> {
        self.file.flush().await.map_err(Fault::io("write a blob"))?;
        let received = format!("sha256:{}", hex(&self.hash.finalize()));
        if received != self.blob.digest {
            return Err(Fault::refused(format!(
                "a blob does not match its digest: expected {}, received {received}",
                self.blob.digest
            )));
        }
        Ok(())
    }
}

fn check_manifest(what: &str, text: Vec<u8>, want: Option<&str>) -> Result<(Vec<u8>, String), Fault> {
    let received = format!("sha256:{}", sha256_hex(&text));
    match want.filter(|want| is_sha256(want) && *want != received) {
        Some(want) => Err(Fault::refused(format!(
            "{what} does not match its digest: expected {want}, received {received}"
        ))),
        None => Ok((text, received)),
    }
}

fn client(reach: &Reach, options: &RegistryOptions) -> Result<Client, Fault> {
    // Fails if the process has installed a provider, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .connect_timeout(options.connect_timeout)
        .read_timeout(options.read_timeout)
        .user_agent(concat!("sandboxd/", env!("CARGO_PKG_VERSION")));
    reach.limit(client).build().map_err(|e| Fault::tool("no HTTPS client").caused_by(e))
}

/// Whether a registry is on this machine. Only these are contacted without TLS.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_contacted_without_tls() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["quay.io", "localhost.example.com:5000", "10.0.0.1:5000", "127.0.0.1.example.com", "[::2]:5000"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
