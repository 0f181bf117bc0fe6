//! The endpoints of detached executions and terminals, one verb a file, and what they have in common.
//!
//! Reading (list, get, output) touches nothing; what reaches into an execution (stdin, signal, cancel, attach) resumes its sandbox
//! where it may. Output is read from the engine's log as fast as its reader takes it, and nothing of it is held here.

mod attach;
mod cancel;
pub mod detach;
mod follow;
mod get;
mod list;
mod output;
mod shown;
mod signal;
mod socket;
mod stdin;
mod terminal;

use std::sync::Arc;

use api::SandboxId;
use axum::http::Uri;
use engine::{EngineError, ExecutionId, ExecutionStatus};

use super::read::{sandbox_id, segment};
use crate::endpoint::Endpoint;
use crate::error::{ApiError, During, no_execution, of_engine};
use crate::keyring::Caller;
use crate::service::Service;

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

/// Who asks for which execution.
struct Asked {
    service: Arc<Service>,
    account: Arc<str>,
    id: SandboxId,
    execution: ExecutionId,
}

impl Asked {
    /// Of a sandbox that is there.
    async fn new(service: Arc<Service>, caller: &Caller, uri: &Uri) -> Result<Self, ApiError> {
        let id = sandbox_id(uri)?;
        let account = Arc::clone(&caller.account);
        service.engine.sandbox(&account, &id).status().await.map_err(|error| fault(error, &id))?;
        let named = segment(uri, 5);
        // What is no id is the name of no execution.
        let execution = named.parse().map_err(|_| no_execution(&named))?;
        Ok(Self { service, account, id, execution })
    }

    /// How the execution is, which says as well that there is one.
    async fn status(&self) -> Result<ExecutionStatus, ApiError> {
        let found = self.service.engine.sandbox(&self.account, &self.id).execution(&self.execution).await;
        found.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: EngineError) -> ApiError {
        fault(error, &self.id)
    }

    /// A request that names a sandbox and is refused before the engine hears of it keeps it awake all the same (decision 4).
    fn touched<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|_| self.service.engine.sandbox(&self.account, &self.id).touch())
    }
}

fn fault(error: EngineError, id: &SandboxId) -> ApiError {
    of_engine(error, Some(id.as_str()), During::Execute)
}
