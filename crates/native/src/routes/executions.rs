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

use admission::error::ApiError;
use engine::{ExecutionId, ExecutionStatus};
use service::error::{OperationKind, no_execution};

use super::read::segment;
use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::{Call, Endpoint};

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
    sandbox: RequestedSandbox,
    execution: ExecutionId,
}

impl ExecutionRequest {
    /// Fails if the sandbox does not exist.
    async fn find(call: &Call) -> Result<Self, ApiError> {
        let sandbox = RequestedSandbox::of(call, OperationKind::Execute)?;
        sandbox.exists().await?;
        let named = segment(&call.parts.uri, 5);
        // A text that is not an id names no execution.
        let execution = named.parse().map_err(|_| no_execution(&named))?;
        Ok(Self { sandbox, execution })
    }

    /// The status of the execution; fails if it does not exist.
    async fn status(&self) -> Result<ExecutionStatus, ApiError> {
        let found = self.sandbox.handle().execution(&self.execution).await;
        found.map_err(|error| self.sandbox.fault(error))
    }
}
