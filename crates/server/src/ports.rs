//! What is known of exposed ports beside the records of their sandboxes: their addresses, the secret that signs tokens, and how
//! many connections there are. Endpoints ask it, and `relay`, which carries the traffic.

mod places;
mod secret;

use std::time::Duration;

use anyhow::Result;
use api::{Port, SandboxId};
use rules::{HostOf, TimeMs, port_label};
use store::ExposedPort;

use crate::config::{self, Config};
pub use places::{Full, Place};
use places::{Most, Places};
use secret::Secret;

/// Connections through all ports together. Each may hold some hundred kilobytes for a reader that does not read.
const MAX_CONNECTIONS: u32 = 4096;

/// How ports are reached.
#[derive(Debug)]
pub struct Ports {
    scheme: &'static str,
    /// In lower case.
    domain: String,
    /// With its colon; empty where it is the usual one.
    public_port: String,
    /// Names of the service itself that are below the domain.
    own_names: Vec<String>,
    secret: Secret,
    places: Places,
    /// How long nothing may move on a connection.
    pub idle: Duration,
}

impl Ports {
    /// `listens` is the port that the service has. Makes the secret where there is none.
    pub fn open(config: &Config, listens: u16) -> Result<Self> {
        Ok(Self::new(config, listens, Secret::open(&config.data_dir)?))
    }

    /// For tests, with a secret that nobody else has.
    #[cfg(any(test, feature = "testing"))]
    pub fn passing(config: &Config) -> Self {
        Self::new(config, 8443, Secret::random())
    }

    fn new(config: &Config, listens: u16, secret: Secret) -> Self {
        let own = &config.ports;
        let (scheme, usual, behind) = match config.http.tls {
            // Whoever is before us has TLS, and the usual port.
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
            places: Places::new(Most {
                of_sandbox: own.max_connections,
                of_account: own.account_connections,
                of_all: MAX_CONNECTIONS,
            }),
            idle: Duration::from_secs(own.idle_seconds),
        }
    }

    /// Whether a port may be what the text names. Most name none, which is quickly seen.
    pub fn may_be_named_in(&self, host: &[u8]) -> bool {
        host.windows(self.domain.len()).any(|part| part.eq_ignore_ascii_case(self.domain.as_bytes()))
    }

    /// Whom a host names, as a request has it.
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

    /// What the outside sees where nobody before us says otherwise.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// A port as the interface shows it.
    pub fn shown(&self, id: &SandboxId, exposed: &ExposedPort) -> Port {
        Port {
            port: exposed.port,
            url: self.url(id, exposed.port),
            exposed_at: exposed.exposed_at.into(),
            visibility: exposed.visibility,
            auto_resume: exposed.auto_resume,
        }
    }

    /// A token for a port as it is exposed now.
    pub fn token(&self, id: &SandboxId, exposed: &ExposedPort, expires_at: TimeMs) -> String {
        self.secret.sign(id, exposed, expires_at).text()
    }

    /// Until when a text opens a port, if it is a token of this exposure that is not over.
    pub fn opens(&self, text: &str, id: &SandboxId, exposed: &ExposedPort, now: TimeMs) -> Option<TimeMs> {
        self.secret.verify(text, id, exposed).filter(|expires_at| *expires_at > now)
    }

    /// Room for one more connection.
    pub fn place(&self, account: &str, id: &SandboxId) -> Result<Place, Full> {
        self.places.take(account, id)
    }
}
