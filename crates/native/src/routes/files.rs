//! The endpoints of files, one per module, and their common parts.
//!
//! All parameters are in the query, because paths may be any bytes. A body is file content and is never held as a whole. Operations
//! resume a paused sandbox unless `autoResume` is `false`, and count as activity. A client that disconnects cancels its operation,
//! which then leaves nothing behind.

mod delete;
mod events;
mod exists;
mod list;
mod mkdir;
mod outgoing;
mod pack;
mod read;
mod relocate;
mod stat;
mod unpack;
mod upload;
mod view;
mod watch;
mod write;

use std::sync::Arc;

use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, RunId, SandboxId};
use axum::http::{HeaderMap, Uri};
use engine::{EngineError, FileOp, FileOperation};
use reader::FileQuery;
use service::Service;
use service::error::{OperationKind, of_engine};

use super::read::{run_id, sandbox_id};
use crate::endpoint::Endpoint;

/// The errors that file operations have in common.
const COMMON_ERRORS: [(ErrorCode, &str); 4] = [
    (ErrorCode::PermissionDenied, "The sandbox denies the operation"),
    (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
    (ErrorCode::InvalidState, "The sandbox is not `running`, and `autoResume` is `false` or does not apply"),
    (ErrorCode::ExecutionError, "The sandbox failed"),
];

/// The endpoints below a sandbox's `files`.
pub fn endpoints() -> [Endpoint; 11] {
    [
        read::endpoint(),
        write::endpoint(),
        delete::endpoint(),
        list::endpoint(),
        stat::endpoint(),
        exists::endpoint(),
        mkdir::endpoint(),
        relocate::endpoint(),
        pack::endpoint(),
        unpack::endpoint(),
        watch::endpoint(),
    ]
}

/// A request for a file operation.
struct FileRequest {
    service: Arc<Service>,
    account: Arc<str>,
    id: SandboxId,
    query: FileQuery,
    /// The operation's name in events; `None` if its failure is not recorded.
    operation: Option<&'static str>,
    /// The run of its events.
    run: Option<RunId>,
}

impl FileRequest {
    /// Fails if the sandbox does not exist.
    async fn new(service: Arc<Service>, caller: &Caller, uri: &Uri) -> Result<Self, ApiError> {
        let id = sandbox_id(uri)?;
        let account = Arc::clone(&caller.account);
        service
            .engine
            .sandbox(&account, &id)
            .status()
            .await
            .map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Files))?;
        let query = reader::file_query(uri.query())?;
        Ok(Self { service, account, id, query, operation: None, run: None })
    }

    /// Names the operation, so that its failure is recorded as an event.
    fn to(mut self, operation: &'static str) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Sets the run from the request header.
    fn in_run(mut self, headers: &HeaderMap) -> Result<Self, ApiError> {
        self.run = self.touched(run_id(headers))?;
        Ok(self)
    }

    /// Starts the operation that `order` builds from the query.
    async fn begin(
        &self,
        order: impl FnOnce(&FileQuery) -> Result<FileOp, reader::RequestRefusal>,
    ) -> Result<FileOperation, ApiError> {
        let order = order(&self.query)?;
        self.begin_as(&order).await
    }

    async fn begin_as(&self, order: &FileOp) -> Result<FileOperation, ApiError> {
        let auto_resume = self.query.auto_resume()?;
        let begun = self.service.engine.sandbox(&self.account, &self.id).file_op(auto_resume, order).await;
        begun.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: EngineError) -> ApiError {
        let is_of_files = matches!(error, EngineError::File(_));
        let fault = of_engine(error, Some(self.id.as_str()), OperationKind::Files);
        if is_of_files {
            self.record_failed(&fault);
        }
        fault
    }

    /// Counts a request as activity that is refused before it reaches the engine.
    fn touched<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|_| self.service.engine.sandbox(&self.account, &self.id).touch())
    }
}
