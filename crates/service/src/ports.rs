//! Exposed ports, besides the records of their sandboxes: their addresses, the secret that signs tokens, and the limits on
//! connections. Used by the endpoints and by `relay`, which carries the traffic.

mod limiter;
mod secret;

use std::path::Path;
use std::time::Duration;

use api::{Port, SandboxId};
use rules::{HostOf, TimeMs, port_label};
use store::ExposedPort;

use limiter::{PortLimiter, PortLimits};
pub use limiter::{PortPermit, PortsFull};
use secret::Secret;
pub use secret::{SecretError, read_or_create as read_or_create_secret};

/// The most connections through all ports. Each may buffer some hundred kilobytes for a client that does not read.
const MAX_CONNECTIONS: u32 = 4096;

/// The operator's choices for ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSettings {
    /// The scheme of ports, unless a trusted proxy states another one.
    pub scheme: &'static str,
    /// In lower case.
    pub domain: String,
    /// With the colon; empty for the default port of the scheme.
    pub public_port: String,
    /// Names of the service itself, which may be below the domain.
    pub own_names: Vec<String>,
    pub connections_of_sandbox: u32,
    pub connections_of_account: u32,
    /// How long a connection may be idle.
    pub idle: Duration,
}

/// Addresses, tokens and limits of exposed ports.
#[derive(Debug)]
pub struct Ports {
    settings: PortSettings,
    secret: Secret,
    limiter: PortLimiter,
}

impl Ports {
    /// Reads the secret in the data directory, or creates it.
    pub fn open(data_dir: &Path, settings: PortSettings) -> Result<Self, SecretError> {
        Ok(Self::new(settings, Secret::open(data_dir)?))
    }

    /// With a random secret, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn passing() -> Self {
        let settings = PortSettings {
            scheme: "https",
            domain: "sandboxes.localhost".to_owned(),
            public_port: ":8443".to_owned(),
            own_names: Vec::new(),
            connections_of_sandbox: 512,
            connections_of_account: 2048,
            idle: Duration::from_secs(600),
        };
        Self::new(settings, Secret::random())
    }

    fn new(settings: PortSettings, secret: Secret) -> Self {
        let limiter = PortLimiter::new(PortLimits {
            of_sandbox: settings.connections_of_sandbox,
            of_account: settings.connections_of_account,
            of_all: MAX_CONNECTIONS,
        });
        Self { settings, secret, limiter }
    }

    /// Whether the text may contain the host name of a port. False for most texts, at little cost.
    pub fn may_be_named_in(&self, host: &[u8]) -> bool {
        host.windows(self.settings.domain.len())
            .any(|part| part.eq_ignore_ascii_case(self.settings.domain.as_bytes()))
    }

    /// What the host of a request names.
    pub fn host(&self, host: &str) -> HostOf {
        match HostOf::read(host, &self.settings.domain) {
            HostOf::Service => HostOf::Service,
            _ if self.settings.own_names.iter().any(|name| name.eq_ignore_ascii_case(host)) => {
                HostOf::Service
            }
            other => other,
        }
    }

    pub fn url(&self, id: &SandboxId, port: u16) -> String {
        format!(
            "{}://{}.{}{}",
            self.settings.scheme,
            port_label(id, port),
            self.settings.domain,
            self.settings.public_port
        )
    }

    /// The domain with the port of the service, if that is not the default of the scheme.
    pub fn public_domain(&self) -> String {
        format!("{}{}", self.settings.domain, self.settings.public_port)
    }

    /// The scheme of ports, unless a trusted proxy states another one.
    pub fn scheme(&self) -> &'static str {
        self.settings.scheme
    }

    /// How long a connection may be idle.
    pub fn idle(&self) -> Duration {
        self.settings.idle
    }

    /// A port as the API shows it.
    pub fn view(&self, id: &SandboxId, exposed: &ExposedPort) -> Port {
        Port {
            port: exposed.port,
            url: self.url(id, exposed.port),
            exposed_at: exposed.exposed_at.into(),
            visibility: exposed.visibility,
            auto_resume: exposed.auto_resume,
        }
    }

    /// A token for the present exposure of a port.
    pub fn token(&self, id: &SandboxId, exposed: &ExposedPort, expires_at: TimeMs) -> String {
        self.secret.sign(id, exposed, expires_at).text()
    }

    /// The expiry of a text that is a valid token of this exposure.
    pub fn opens(&self, text: &str, id: &SandboxId, exposed: &ExposedPort, now: TimeMs) -> Option<TimeMs> {
        self.secret.verify(text, id, exposed).filter(|expires_at| *expires_at > now)
    }

    /// A permit for one more connection.
    pub fn permit(&self, account: &str, id: &SandboxId) -> Result<PortPermit, PortsFull> {
        self.limiter.take(account, id)
    }
}
