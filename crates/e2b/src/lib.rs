//! The API of E2B, for their unmodified clients.
//!
//! [`E2bApi`] has two parts: `control` creates, lists and removes sandboxes; `envd` serves files and processes of one sandbox. The server
//! chooses the part by the host name of a request and passes it here. What belongs to the server (keys, rate limits, images, the table of
//! errors) comes through [`HostServices`].
//!
//! Every error of either part is an [`E2bError`] with the body that their clients parse, also after a panic.

mod control;
mod envd;
mod error;
mod options;
mod percent;
mod run_defaults;
mod services;
mod tokens;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::SandboxId;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use builder::Builder;
use engine::Engine;
use futures_util::FutureExt;
use rules::{IsolationPolicy, Scope};
use store::SandboxRecord;
use tokens::Tokens;

pub use error::E2bError;
pub use options::{E2bOptions, has_options};
pub use services::{BodyBuffer, Caller, Creation, HostServices, NewRecord, Permit, ResponseMemory};

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

/// The API. One per server; clones are the same one.
#[derive(Clone)]
pub struct E2bApi {
    engine: Engine,
    builder: Builder,
    pending: Arc<control::PendingBuilds>,
    services: Arc<dyn HostServices>,
    settings: Arc<Settings>,
    tokens: Tokens,
    watchers: Arc<envd::Watchers>,
}

impl E2bApi {
    pub fn new(
        engine: Engine,
        builder: Builder,
        services: Arc<dyn HostServices>,
        settings: Settings,
        secret: &[u8; 32],
    ) -> Self {
        let (tokens, watchers) = (Tokens::new(secret), Arc::default());
        let pending = Arc::default();
        Self { engine, builder, pending, services, settings: Arc::new(settings), tokens, watchers }
    }

    /// Whether the path belongs to the control plane, for requests to a host that serves other APIs as well.
    pub fn owns_path(path: &str) -> bool {
        control::owns_path(path)
    }

    /// Answers a request to the control plane.
    pub async fn control(&self, request: Request) -> Response {
        complete(control::answer(self, request)).await
    }

    /// Answers a request for files and processes of a sandbox.
    pub async fn envd(&self, id: SandboxId, request: Request) -> Response {
        complete(envd::answer(self, id, request)).await
    }

    /// Whether a text is a traffic token of a sandbox, made for a key that is still valid.
    pub fn is_traffic_token(&self, record: &SandboxRecord, text: &str) -> bool {
        let keys = self.services.keys(&record.account);
        tokens::key_of(text, &keys, |key_id| self.tokens.traffic(&record.id, key_id))
            .is_some_and(|key| key.scopes.allows(Scope::Execute))
    }
}

async fn complete(answer: impl Future<Output = Result<Response, E2bError>>) -> Response {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(_) => {
            tracing::error!(target: "e2b", "a handler panicked");
            E2bError::internal().into_response()
        }
    }
}
