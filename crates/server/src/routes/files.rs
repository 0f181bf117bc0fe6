//! The endpoints of files, one verb a file, and what they have in common.
//!
//! Every parameter is in the query, for paths may be any bytes; a body is content, and is never held as a whole. The sandbox is
//! resumed where it may be, and what is done keeps it awake. A client that goes away ends the work, which then leaves nothing.

mod delete;
mod exists;
mod list;
mod mkdir;
mod outgoing;
mod pack;
mod read;
mod relocate;
mod shown;
mod stat;
mod told;
mod unpack;
mod upload;
mod write;

use std::sync::Arc;

use api::{RunId, SandboxId};
use axum::http::{HeaderMap, Uri};
use engine::{EngineError, FileOp, FileOperation};
use reader::FileQuery;

use super::read::{run_id, sandbox_id};
use crate::endpoint::Endpoint;
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::service::Service;

/// The endpoints below a sandbox's `files`.
pub fn endpoints() -> [Endpoint; 10] {
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
    ]
}

/// Who asks for what in which sandbox.
struct Asked {
    service: Arc<Service>,
    account: Arc<str>,
    id: SandboxId,
    query: FileQuery,
    /// What it is called where it changes or reads a file.
    operation: Option<&'static str>,
    /// The run that its events belong to.
    run: Option<RunId>,
}

impl Asked {
    /// Of a sandbox that is there.
    async fn new(service: Arc<Service>, caller: &Caller, uri: &Uri) -> Result<Self, ApiError> {
        let id = sandbox_id(uri)?;
        let account = Arc::clone(&caller.account);
        service
            .engine
            .sandbox(&account, &id)
            .status()
            .await
            .map_err(|error| of_engine(error, Some(id.as_str()), During::Files))?;
        let query = reader::file_query(uri.query())?;
        Ok(Self { service, account, id, query, operation: None, run: None })
    }

    /// Names what is done, so that a failure is told.
    fn to(mut self, operation: &'static str) -> Self {
        self.operation = Some(operation);
        self
    }

    /// As part of the run that the request names.
    fn in_run(mut self, headers: &HeaderMap) -> Result<Self, ApiError> {
        self.run = self.touched(run_id(headers))?;
        Ok(self)
    }

    /// Begins what the query, as `order` reads it, asks for.
    async fn begin(
        &self,
        order: impl FnOnce(&FileQuery) -> Result<FileOp, reader::Refusal>,
    ) -> Result<FileOperation, ApiError> {
        let order = order(&self.query)?;
        self.begin_as(&order).await
    }

    async fn begin_as(&self, order: &FileOp) -> Result<FileOperation, ApiError> {
        let auto_resume = self.query.flag("autoResume", true)?;
        let begun = self.service.engine.sandbox(&self.account, &self.id).file_op(auto_resume, order).await;
        begun.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: EngineError) -> ApiError {
        let is_of_files = matches!(error, EngineError::File(_));
        let fault = of_engine(error, Some(self.id.as_str()), During::Files);
        if is_of_files {
            self.tell_failed(&fault);
        }
        fault
    }

    /// A request that names a sandbox and is refused before the engine hears of it keeps it awake all the same (decision 4).
    fn touched<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|_| self.service.engine.sandbox(&self.account, &self.id).touch())
    }
}
