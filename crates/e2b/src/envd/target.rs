//! The sandbox that a request is for.

use std::sync::Arc;

use api::SandboxId;
use axum::http::HeaderMap;
use engine::{Engine, EngineError, SandboxHandle};

use super::connect::Code;
use super::failure::Failure;
use crate::services::{HostServices, Permit};

/// A sandbox of an account, as the router of host names found it.
#[derive(Clone)]
pub struct Target {
    pub engine: Engine,
    pub services: Arc<dyn HostServices>,
    pub account: Arc<str>,
    pub id: SandboxId,
    /// The id as clients know it.
    pub shown_id: String,
    /// The token that requests must have. `None` if its owner asked for an open sandbox.
    pub access_token: Option<String>,
}

impl Target {
    pub fn sandbox(&self) -> SandboxHandle<'_> {
        self.engine.sandbox(&self.account, &self.id)
    }

    /// Takes a place among the requests in flight of the sandbox's account, for an authorized request.
    pub fn enter(&self, headers: &HeaderMap) -> Result<Permit, Failure> {
        let entered = self.services.enter(&self.account, headers);
        entered.map_err(|error| Failure::new(Code::ResourceExhausted, error.message))
    }

    /// False if the sandbox was terminated.
    pub async fn exists(&self) -> bool {
        !matches!(self.sandbox().status().await, Err(EngineError::NotFound { .. }))
    }
}
