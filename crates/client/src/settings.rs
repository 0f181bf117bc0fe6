//! Client settings: from code, from the environment, or from the files of the local daemon.

pub mod local_service;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::io::DuplexStream;

use crate::settings::local_service::LocalService;
use crate::transport::Transport;
use crate::transport::connect::{Connector, InProcess, ServiceUrl};
use crate::transport::limit_waits::{LimitWaits, OnWait};
use crate::transport::retry::Policy;
use crate::transport::trust::Trust;
use crate::{Client, Error, Fingerprint, Result};

const LOCAL_URL: &str = "https://127.0.0.1:8443";
const IN_PROCESS_URL: &str = "http://localhost";
const LOCAL_DATA_DIR: &str = "/var/lib/sandboxd";
const LOCAL_KEY: &str = "local.key";
const LOCAL_CERTIFICATE: &str = "tls/tls-cert.pem";
const TIMEOUT: Duration = Duration::from_secs(30);
const RETRIES: u32 = 2;
const MAX_RETRY_WAIT: Duration = Duration::from_secs(10);

impl Client {
    /// Creates a client with the settings of the environment or of the local daemon; see [`ClientBuilder::from_env`].
    ///
    /// ```no_run
    /// let client = sandboxd_client::Client::from_env()?;
    /// # Ok::<(), sandboxd_client::Error>(())
    /// ```
    pub fn from_env() -> Result<Self> {
        ClientBuilder::from_env().build()
    }

    /// Starts to build a client.
    ///
    /// ```
    /// let client = sandboxd_client::Client::builder().url("http://127.0.0.1:8080").key("sk_…").build();
    /// # assert!(client.is_err(), "a key is ASCII");
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }
}

/// Builds a client. Settings that are not given have the defaults of [`Client::from_env`].
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let (url, key) = (service.url(), service.key());
/// use std::time::Duration;
/// let client = sandboxd_client::Client::builder()
///     .url(url)
///     .key(key)
///     .timeout(Duration::from_secs(5))
///     .retries(0)
///     .build()?;
/// assert_eq!(client.health().await?.status, "ok");
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBuilder {
    url: Option<String>,
    key: Option<SecretKey>,
    trust: Option<TrustSource>,
    data_dir: PathBuf,
    timeout: Duration,
    policy: Policy,
    limit_waits: LimitWaits,
    in_process: Option<InProcess>,
}

#[derive(Clone)]
struct SecretKey(String);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

#[derive(Debug, Clone)]
enum TrustSource {
    File(PathBuf),
    Pem(Vec<u8>),
    Pin(Fingerprint),
    System,
}

impl ClientBuilder {
    fn new() -> Self {
        Self {
            url: None,
            key: None,
            trust: None,
            data_dir: LOCAL_DATA_DIR.into(),
            timeout: TIMEOUT,
            policy: Policy { retries: RETRIES, max_retry_wait: MAX_RETRY_WAIT },
            limit_waits: LimitWaits::default(),
            in_process: None,
        }
    }

    /// Reads the environment: `SANDBOXD_URL`, `SANDBOXD_API_KEY`, `SANDBOXD_CERTIFICATE` (a PEM file to trust), and
    /// `SANDBOXD_DATA_DIR`, the data directory of the local daemon, which contains its key, its address and the fingerprint of its
    /// certificate.
    ///
    /// ```
    /// let builder = sandboxd_client::ClientBuilder::from_env().retries(5);
    /// ```
    pub fn from_env() -> Self {
        Self::new().environment(|name| std::env::var(name).ok())
    }

    fn environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        self.url = given("SANDBOXD_URL").or(self.url);
        self.key = given("SANDBOXD_API_KEY").map(SecretKey).or(self.key);
        self.trust = given("SANDBOXD_CERTIFICATE").map(|file| TrustSource::File(file.into())).or(self.trust);
        self.data_dir = given("SANDBOXD_DATA_DIR").map_or(self.data_dir, PathBuf::from);
        self
    }

    /// Sets the URL of the service. Plain `http://` is accepted for this machine only.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().url("https://sandboxes.example.com");
    /// ```
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets the API key.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().key("sk_…");
    /// assert!(!format!("{builder:?}").contains("sk_"));
    /// ```
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(SecretKey(key.into()));
        self
    }

    /// Trusts only the certificates in this PEM file: an authority's, or the self-signed one of the service.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().certificate_file("/etc/ssl/sandboxes.pem");
    /// ```
    pub fn certificate_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.trust = Some(TrustSource::File(file.into()));
        self
    }

    /// Trusts only these PEM certificates.
    ///
    /// ```
    /// let error = sandboxd_client::Client::builder().certificate_pem("not PEM").build().unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::Configuration);
    /// ```
    pub fn certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.trust = Some(TrustSource::Pem(pem.into()));
        self
    }

    /// Trusts only the certificate with this fingerprint, and does not check its names. A service renews its self-signed
    /// certificate once a year.
    ///
    /// ```
    /// let fingerprint = "ab".repeat(32).parse()?;
    /// let builder = sandboxd_client::Client::builder().pinned(fingerprint);
    /// # Ok::<(), sandboxd_client::BadFingerprint>(())
    /// ```
    pub fn pinned(mut self, fingerprint: Fingerprint) -> Self {
        self.trust = Some(TrustSource::Pin(fingerprint));
        self
    }

    /// Trusts the certificate authorities of this machine, also for local addresses.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().url("https://localhost:8443").system_certificates();
    /// ```
    pub fn system_certificates(mut self) -> Self {
        self.trust = Some(TrustSource::System);
        self
    }

    /// Sets the data directory of the local daemon, by default `/var/lib/sandboxd`. Without a URL the client uses the daemon's address
    /// and trusts its certificate, whatever names that has.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().local_data_dir("/srv/sandboxd");
    /// ```
    pub fn local_data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = dir.into();
        self
    }

    /// Connects to a service in this process instead of over a network. `connect` returns one end of a new in-memory stream; the
    /// service must serve HTTP/1 on the other end. The URL is not used.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().key("k").in_process(|| tokio::io::duplex(1024).0);
    /// ```
    pub fn in_process(mut self, connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        self.in_process = Some(InProcess::new(connect));
        self
    }

    /// Sets the timeout of one attempt, by default 30 s. It does not apply to established streams; the time limit of a buffered command
    /// is added.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().timeout(std::time::Duration::from_secs(60));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the number of retries of safe requests, by default 2.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().retries(0);
    /// ```
    pub fn retries(mut self, retries: u32) -> Self {
        self.policy.retries = retries;
        self
    }

    /// Sets the longest `Retry-After` that a retry waits for, by default 10 s. If the service asks for more, the call returns the error
    /// at once.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().max_retry_wait(std::time::Duration::ZERO);
    /// ```
    pub fn max_retry_wait(mut self, max_retry_wait: Duration) -> Self {
        self.policy.max_retry_wait = max_retry_wait;
        self
    }

    /// Sets how long a call waits in all while the service refuses it because of a limit, such as a rate limit, and says when to try
    /// again. By default such a refusal is an error like others, with a few retries.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder().limit_wait(std::time::Duration::from_secs(120));
    /// ```
    pub fn limit_wait(mut self, limit_wait: Duration) -> Self {
        self.limit_waits.longest = limit_wait;
        self
    }

    /// Sets a function that is called before each wait for a limit, with the refusal and the length of the wait.
    ///
    /// ```
    /// let builder = sandboxd_client::Client::builder()
    ///     .on_limit_wait(|error, pause| eprintln!("{error}; waiting {} s", pause.as_secs()));
    /// ```
    pub fn on_limit_wait(mut self, on_wait: impl Fn(&Error, Duration) + Send + Sync + 'static) -> Self {
        self.limit_waits.on_wait = Some(OnWait::new(on_wait));
        self
    }

    /// Builds the client. Reads the certificate and key files; does not connect.
    ///
    /// ```
    /// let client = sandboxd_client::Client::builder().url("https://a.example").key("k").system_certificates().build()?;
    /// let error = sandboxd_client::Client::builder().url("http://a.example").key("k").build().unwrap_err();
    /// assert!(error.message().contains("unencrypted"));
    /// # Ok::<(), sandboxd_client::Error>(())
    /// ```
    pub fn build(self) -> Result<Client> {
        let local = self.local_service()?;
        let service_url = ServiceUrl::parse(self.url_or_default(local.as_ref()))?;
        let key = match &self.key {
            Some(key) => key.0.clone(),
            None => self.local_key(&service_url, local.as_ref())?,
        };
        let bearer = format!("Bearer {}", key.trim());
        let mut authorization = HeaderValue::from_str(&bearer)
            .ok()
            .filter(|_| bearer.is_ascii())
            .ok_or_else(|| Error::configuration("the API key has characters that are not allowed in keys"))?;
        authorization.set_sensitive(true);
        let connector = match self.in_process.clone() {
            Some(connect) => Connector::in_process(connect),
            None if service_url.is_tls() => {
                Connector::new(Some(self.trust(&service_url, local.as_ref())?.config()?))
            }
            None => Connector::new(None),
        };
        Ok(Client::new(Transport::new(
            service_url,
            connector,
            Some(authorization),
            self.timeout,
            self.policy,
            self.limit_waits,
        )))
    }

    /// The daemon of this host, unless the URL of a service is given.
    fn local_service(&self) -> Result<Option<LocalService>> {
        if self.url.is_some() || self.in_process.is_some() {
            return Ok(None);
        }
        LocalService::read(&self.data_dir)
    }

    fn url_or_default<'a>(&'a self, local: Option<&'a LocalService>) -> &'a str {
        match (&self.url, local) {
            (Some(url), _) => url,
            (None, Some(local)) => &local.url,
            (None, None) if self.in_process.is_some() => IN_PROCESS_URL,
            (None, None) => LOCAL_URL,
        }
    }

    fn trust(&self, service_url: &ServiceUrl, local: Option<&LocalService>) -> Result<Trust> {
        let not_pem = |what: &str| {
            Error::configuration(format!("{what} contains no PEM certificate (-----BEGIN CERTIFICATE-----)"))
        };
        match &self.trust {
            Some(TrustSource::System) => Ok(Trust::System),
            Some(TrustSource::Pin(fingerprint)) => Ok(Trust::Pinned(*fingerprint)),
            Some(TrustSource::Pem(text)) => Trust::pem(text).ok_or_else(|| not_pem("the text to trust")),
            Some(TrustSource::File(file)) => {
                Trust::pem(&read(file)?).ok_or_else(|| not_pem(&file.display().to_string()))
            }
            None => Ok(self.default_trust(service_url, local)),
        }
    }

    /// Trusts the certificate of the local daemon as its files describe it, if its directory is readable.
    fn default_trust(&self, service_url: &ServiceUrl, local: Option<&LocalService>) -> Trust {
        if let Some(fingerprint) = local.and_then(|local| local.fingerprint) {
            return Trust::Pinned(fingerprint);
        }
        if !service_url.is_local() {
            return Trust::System;
        }
        let own = std::fs::read(self.data_dir.join(LOCAL_CERTIFICATE)).ok();
        own.and_then(|text| Trust::pem(&text)).unwrap_or_default()
    }

    /// The key of the local daemon is sent to this machine only.
    fn local_key(&self, service_url: &ServiceUrl, local: Option<&LocalService>) -> Result<String> {
        let file = self.data_dir.join(LOCAL_KEY);
        let how = "set SANDBOXD_API_KEY or ClientBuilder::key";
        if local.is_none() && !service_url.is_local() {
            let message = format!("no API key for {}; {how}", service_url.url(""));
            return Err(Error::configuration(message).with_detail("reason", "key"));
        }
        std::fs::read_to_string(&file).map_err(|error| {
            let file = file.display();
            let message = format!(
                "no API key; {how}. The key of the local daemon cannot be read: {file}; wait for 'sandboxd is ready' if the daemon \
                 is starting for the first time, set SANDBOXD_DATA_DIR if the daemon has another data directory, and SANDBOXD_URL for a \
                 service on another machine"
            );
            let error = Error::configuration(message).with_detail("reason", "key").caused_by(error);
            // With a URL it may be another service of this host whose key is missing.
            if self.url.is_none() { error.with_detail("service", "local") } else { error }
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file)
        .map_err(|error| Error::configuration(format!("cannot read {}", file.display())).caused_by(error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cases;

    #[derive(serde::Deserialize)]
    struct Case {
        environment: BTreeMap<String, String>,
        #[serde(default)]
        arguments: BTreeMap<String, String>,
        #[serde(default)]
        files: BTreeMap<String, String>,
        expected: BTreeMap<String, String>,
    }

    /// Which certificates the client would trust, as the table says it.
    fn trust_of(builder: &ClientBuilder) -> &'static str {
        let local = builder.local_service().unwrap();
        let service_url = ServiceUrl::parse(builder.url_or_default(local.as_ref())).unwrap();
        match builder.trust(&service_url, local.as_ref()).unwrap() {
            Trust::System => "system",
            Trust::Certificates(_) => "certificates",
            Trust::Pinned(_) => "pinned",
        }
    }

    #[test]
    fn settings_follow_the_shared_table() {
        for case in cases::of::<Case>(include_str!("../../../sdk/cases/settings.json")) {
            let dir = tempfile::tempdir().unwrap();
            let data = |text: &str| text.replace("DATA", dir.path().to_str().unwrap());
            for (name, text) in &case.files {
                std::fs::write(data(name), text).unwrap();
            }
            let mut builder =
                ClientBuilder::new().environment(|name| case.environment.get(name).map(|value| data(value)));
            for (name, value) in &case.arguments {
                builder = match name.as_str() {
                    "url" => builder.url(value),
                    "api_key" => builder.key(value),
                    "data_dir" => builder.local_data_dir(data(value)),
                    _ => panic!("{name}"),
                };
            }
            let shown = format!("{:?} {:?}", case.environment, case.arguments);
            if let Some(expected) = case.expected.get("trust") {
                assert_eq!(trust_of(&builder), *expected, "{shown}");
            }
            match (builder.build(), case.expected.get("error")) {
                (Ok(client), None) => {
                    if let Some(url) = case.expected.get("url") {
                        assert_eq!(format!("{}/v1", client.url()), *url, "{shown}");
                    }
                    if let Some(key) = case.expected.get("key") {
                        let sent = client.authorization();
                        assert_eq!(sent, format!("Bearer {key}"), "{shown}");
                    }
                }
                (Err(error), Some(expected)) => {
                    assert!(error.to_string().contains(&data(expected)), "{shown}: {error}");
                }
                (result, _) => panic!("{shown}: {:?}", result.map(|client| client.url())),
            }
        }
    }
}
