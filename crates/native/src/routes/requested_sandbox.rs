//! The sandbox that the path of a request names. Every handler below `/v1/sandboxes/{id}` begins with it.

use std::sync::Arc;

use admission::error::ApiError;
use admission::keyring::Caller;
use api::SandboxId;
use engine::{EngineError, SandboxHandle};
use service::Service;
use service::error::{OperationKind, of_engine};

use super::read;
use crate::endpoint::Call;

#[derive(Clone)]
pub struct RequestedSandbox {
    pub service: Arc<Service>,
    pub account: Arc<str>,
    pub id: SandboxId,
    operation: OperationKind,
}

impl RequestedSandbox {
    /// Fails if the text in the path is not an id. Whether the sandbox exists is checked by each operation of its handle.
    pub fn of<B>(call: &Call<Caller, B>, operation: OperationKind) -> Result<Self, ApiError> {
        let id = read::sandbox_id(&call.parts.uri)?;
        Ok(Self {
            service: Arc::clone(&call.service),
            account: Arc::clone(&call.caller.account),
            id,
            operation,
        })
    }

    /// Fails if the sandbox does not exist or is terminated.
    pub async fn exists(&self) -> Result<(), ApiError> {
        self.handle().status().await.map(drop).map_err(|error| self.fault(error))
    }

    pub fn handle(&self) -> SandboxHandle<'_> {
        self.service.engine.sandbox(&self.account, &self.id)
    }

    pub fn fault(&self, error: EngineError) -> ApiError {
        of_engine(error, Some(self.id.as_str()), self.operation)
    }

    /// Counts a request as activity that is refused before it reaches the engine, which counts the others.
    pub fn touched<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        result.inspect_err(|_| self.handle().touch())
    }
}
