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

use admission::error::ApiError;
use api::{ErrorCode, RunId};
use engine::{EngineError, FileOp, FileOperation};
use reader::FileQuery;
use service::error::OperationKind;

use super::read::run_id;
use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::{Call, Endpoint};

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
    sandbox: RequestedSandbox,
    query: FileQuery,
    /// The operation's name in events; `None` if its failure is not recorded.
    operation: Option<&'static str>,
    /// The run of its events.
    run: Option<RunId>,
}

impl FileRequest {
    /// Fails if the sandbox does not exist.
    async fn find(call: &Call) -> Result<Self, ApiError> {
        let sandbox = RequestedSandbox::of(call, OperationKind::Files)?;
        sandbox.exists().await?;
        let query = reader::file_query(call.parts.uri.query())?;
        Ok(Self { sandbox, query, operation: None, run: None })
    }

    /// As [`FileRequest::find`]. Names the operation, so that its failure is recorded as an event, in the run of the request header.
    async fn to(operation: &'static str, call: &Call) -> Result<Self, ApiError> {
        let request = Self::find(call).await?;
        let run = request.sandbox.touched(run_id(&call.parts.headers))?;
        Ok(Self { operation: Some(operation), run, ..request })
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
        let begun = self.sandbox.handle().file_op(auto_resume, order).await;
        begun.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: EngineError) -> ApiError {
        let is_of_files = matches!(error, EngineError::File(_));
        let fault = self.sandbox.fault(error);
        if is_of_files {
            self.record_failed(&fault);
        }
        fault
    }
}
