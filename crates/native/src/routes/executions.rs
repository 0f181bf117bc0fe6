//! The endpoints of detached executions and terminals, one per module, and their common parts.
//!
//! Reads (list, get, output) neither resume the sandbox nor count as activity. Stdin, signal, cancel and attach resume it unless
//! `autoResume` is `false`. Streamed output is read from the execution log at the speed of its client.

mod attach;
mod cancel;
pub mod detach;
mod follow;
mod get;
mod list;
mod output;
mod signal;
mod socket;
mod stdin;
mod terminal;
mod view;

use std::sync::Arc;

use admission::error::ApiError;
use admission::keyring::Caller;
use api::SandboxId;
use axum::http::Uri;
use engine::{EngineError, ExecutionId, ExecutionStatus};
use service::Service;
use service::error::{OperationKind, no_execution, of_engine};

use super::read::{sandbox_id, segment};
use crate::endpoint::Endpoint;

/// The endpoints below a sandbox's `executions`, and its `terminals`.
pub fn endpoints() -> [Endpoint; 8] {
    [
        terminal::endpoint(),
        list::endpoint(),
        get::endpoint(),
        cancel::endpoint(),
        output::endpoint(),
        stdin::endpoint(),
        signal::endpoint(),
        attach::endpoint(),
    ]
}

/// A request for an execution.
struct ExecutionRequest {
    service: Arc<Service>,
    account: Arc<str>,
    id: SandboxId,
    execution: ExecutionId,
}

impl ExecutionRequest {
    /// Fails if the sandbox does not exist.
    async fn new(service: Arc<Service>, caller: &Caller, uri: &Uri) -> Result<Self, ApiError> {
        let id = sandbox_id(uri)?;
        let account = Arc::clone(&caller.account);
        service.engine.sandbox(&account, &id).status().await.map_err(|error| fault(error, &id))?;
        let named = segment(uri, 5);
        // A text that is not an id names no execution.
        let execution = named.parse().map_err(|_| no_execution(&named))?;
        Ok(Self { service, account, id, execution })
    }

    /// The status of the execution; fails if it does not exist.
    async fn status(&self) -> Result<ExecutionStatus, ApiError> {
        let found = self.service.engine.sandbox(&self.account, &self.id).execution(&self.execution).await;
        found.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: EngineError) -> ApiError {
        fault(error, &self.id)
    }

    /// Counts a request as activity that is refused before it reaches the engine.
    fn touched<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|_| self.service.engine.sandbox(&self.account, &self.id).touch())
    }
}

fn fault(error: EngineError, id: &SandboxId) -> ApiError {
    of_engine(error, Some(id.as_str()), OperationKind::Execute)
}
