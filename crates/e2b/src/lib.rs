//! The API of E2B, for their unmodified clients.
//!
//! [`E2bApi`] has two parts: `control` creates, lists and removes sandboxes; `envd` serves files and processes of one sandbox. The server
//! chooses the part by the host name of a request and passes it here. Both declare
//! their endpoints, which the gate of all doors admits (`admission`), and use what the doors share (`service`).
//!
//! Every error of either part has the body that their clients parse, also after a panic.

mod control;
mod envd;
mod error;
mod options;
mod percent;
mod run_defaults;
mod tokens;
mod visit;

use std::collections::BTreeMap;
use std::sync::Arc;

use admission::endpoint::{Conflict, Rule, Table};
use api::SandboxId;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use rules::{IsolationPolicy, Scope};
use service::Service;
use store::SandboxRecord;

use tokens::Tokens;
use visit::{Part, Visit};

pub use error::E2bError;
pub use options::{E2bOptions, has_options};

/// The port of files and processes, which no program in a sandbox can offer.
pub const ENVD_PORT: u16 = 49983;
/// The version of their in-sandbox service whose behaviour this crate has. Clients enable features by it.
pub const ENVD_VERSION: &str = "0.6.13";

/// A named template: an image, and the resources of its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub image: String,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_mb: Option<u32>,
}

/// The templates that clients expect on every service. The operator's come in addition.
pub fn default_templates() -> BTreeMap<String, Template> {
    let of_image =
        |image: &str| Template { image: image.to_owned(), cpu: None, memory_mb: None, disk_mb: None };
    BTreeMap::from([
        ("base".to_owned(), of_image("e2b-base")),
        ("code-interpreter-v1".to_owned(), of_image("code-interpreter")),
    ])
}

/// The operator's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    pub templates: BTreeMap<String, Template>,
    /// Whether ports are open without a token unless a create asks for one.
    pub public_ports: bool,
    /// The domain below which ports are reached, with the port of the service if it is not the default of the scheme.
    pub domain: String,
    /// The scheme of URLs of the service.
    pub scheme: &'static str,
    /// Which isolation sandboxes get.
    pub isolation: Arc<IsolationPolicy>,
}

/// The API. One per server.
pub struct E2bApi {
    service: Arc<Service>,
    pending: control::PendingBuilds,
    settings: Settings,
    tokens: Tokens,
    calls: Table<Self>,
    procedures: Table<envd::EnvdSession>,
}

impl E2bApi {
    /// Fails if two endpoints contradict each other.
    pub fn new(service: Arc<Service>, settings: Settings, secret: &[u8; 32]) -> Result<Arc<Self>, Conflict> {
        Ok(Arc::new(Self {
            service,
            pending: Default::default(),
            settings,
            tokens: Tokens::new(secret),
            calls: Table::new(control::calls())?,
            procedures: Table::new(envd::endpoints(&Arc::default()))?,
        }))
    }

    /// The endpoints of both parts, for tests that walk all doors: method, path and access.
    pub fn rules(&self) -> impl Iterator<Item = (&Method, Rule)> {
        self.calls.rules().chain(self.procedures.rules())
    }

    /// Whether the path belongs to the control plane, for requests to a host that serves other APIs as well.
    pub fn owns_path(path: &str) -> bool {
        control::owns_path(path)
    }

    /// Answers a request to the control plane.
    pub async fn control(self: &Arc<Self>, request: Request) -> Response {
        control::answer(self, request).await
    }

    /// Answers a request for files and processes of a sandbox.
    pub async fn envd(self: &Arc<Self>, id: SandboxId, request: Request) -> Response {
        envd::answer(self, id, request).await
    }

    /// Answers a request that does not say which sandbox it is for.
    pub fn refuse(&self, error: E2bError, request: &Request) -> Response {
        let visit = Visit::begin(&self.service.gate, Part::Unknown, None, request);
        visit.end(error.into_response())
    }

    /// Whether a text is a traffic token of a sandbox, made for a key that is still valid.
    pub fn is_traffic_token(&self, record: &SandboxRecord, text: &str) -> bool {
        let keys = self.service.gate.keyring.of_account(&record.account);
        tokens::key_of(text, &keys, |key_id| self.tokens.traffic(&record.id, key_id))
            .is_some_and(|key| key.scopes.allows(Scope::Execute))
    }
}
