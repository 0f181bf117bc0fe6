//! Exposed ports, besides the records of their sandboxes: their addresses, the secret that signs tokens, and the limits on
//! connections. Used by the endpoints and by `relay`, which carries the traffic.

mod limiter;
mod secret;

use std::time::Duration;

use anyhow::Result;
use api::{Port, SandboxId};
use rules::{HostOf, TimeMs, port_label};
use store::ExposedPort;

use crate::config::{self, Config};
use limiter::{PortLimiter, PortLimits};
pub use limiter::{PortPermit, PortsFull};
use secret::Secret;
pub use secret::read_or_create as read_or_create_secret;

/// The most connections through all ports. Each may buffer some hundred kilobytes for a client that does not read.
const MAX_CONNECTIONS: u32 = 4096;

/// Addresses, tokens and limits of exposed ports.
#[derive(Debug)]
pub struct Ports {
    scheme: &'static str,
    /// In lower case.
    domain: String,
    /// With the colon; empty for the default port of the scheme.
    public_port: String,
    /// Names of the service itself, which may be below the domain.
    own_names: Vec<String>,
    secret: Secret,
    limiter: PortLimiter,
    /// How long a connection may be idle.
    pub idle: Duration,
}

impl Ports {
    /// `listens` is the port of the service. Creates the secret if there is none.
    pub fn open(config: &Config, listens: u16) -> Result<Self> {
        Ok(Self::new(config, listens, Secret::open(&config.data_dir)?))
    }

    /// With a random secret, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn passing(config: &Config) -> Self {
        Self::new(config, 8443, Secret::random())
    }

    fn new(config: &Config, listens: u16, secret: Secret) -> Self {
        let own = &config.ports;
        let (scheme, usual, behind) = match config.http.tls {
            // The proxy terminates TLS, on the default port.
            config::Tls::Off if !config.http.trusted_proxies.is_empty() => ("https", 443, 443),
            config::Tls::Off => ("http", 80, listens),
            config::Tls::SelfSigned | config::Tls::Files => ("https", 443, listens),
        };
        let port = if own.public_port == 0 { behind } else { own.public_port };
        Self {
            scheme,
            domain: own.domain.clone(),
            public_port: if port == usual { String::new() } else { format!(":{port}") },
            own_names: config.http.tls_names.clone(),
            secret,
            limiter: PortLimiter::new(PortLimits {
                of_sandbox: own.max_connections,
                of_account: own.account_connections,
                of_all: MAX_CONNECTIONS,
            }),
            idle: Duration::from_secs(own.idle_seconds),
        }
    }

    /// Whether the text may contain the host name of a port. False for most texts, at little cost.
    pub fn may_be_named_in(&self, host: &[u8]) -> bool {
        host.windows(self.domain.len()).any(|part| part.eq_ignore_ascii_case(self.domain.as_bytes()))
    }

    /// What the host of a request names.
    pub fn host(&self, host: &str) -> HostOf {
        match HostOf::read(host, &self.domain) {
            HostOf::Service => HostOf::Service,
            _ if self.own_names.iter().any(|name| name.eq_ignore_ascii_case(host)) => HostOf::Service,
            other => other,
        }
    }

    pub fn url(&self, id: &SandboxId, port: u16) -> String {
        format!("{}://{}.{}{}", self.scheme, port_label(id, port), self.domain, self.public_port)
    }

    /// The domain with the port of the service, if that is not the default of the scheme.
    pub fn public_domain(&self) -> String {
        format!("{}{}", self.domain, self.public_port)
    }

    /// The scheme of ports, unless a trusted proxy states another one.
    pub fn scheme(&self) -> &'static str {
        self.scheme
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
