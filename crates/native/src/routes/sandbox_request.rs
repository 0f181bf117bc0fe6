//! A request with a body for one sandbox: checks that the sandbox exists, then reads the body. Used by execute, terminals, ports,
//! events and network.

use std::pin::pin;
use std::time::Duration;

use admission::endpoint::{JsonBody, Received};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{RunId, SandboxId};
use axum::http::request::Parts;
use bytes::Bytes;
use engine::{EngineError, SandboxError};
use reader::RequestBody;
use service::Service;
use service::error::{OperationKind, of_engine};
use service::idempotency::{self, Key};

use super::read;

/// While a body arrives, activity is counted this often: less than the shortest idle timeout.
const ACTIVITY_EVERY: Duration = Duration::from_millis(200);

pub struct SandboxRequest<'a> {
    service: &'a Service,
    caller: &'a Caller,
    parts: &'a Parts,
    pub id: SandboxId,
    /// The endpoint in the scope of the idempotency key.
    pub endpoint: String,
}

impl<'a> SandboxRequest<'a> {
    /// Fails if the sandbox does not exist, so that the body is not read; a terminated sandbox passes if the request's idempotency
    /// key has a response. `path` is the template of the endpoint.
    pub async fn find(
        service: &'a Service,
        caller: &'a Caller,
        parts: &'a Parts,
        path: &str,
        operation: OperationKind,
    ) -> Result<Self, ApiError> {
        let id = read::sandbox_id(&parts.uri)?;
        let endpoint = format!("{} {}", parts.method, path.replace("{id}", id.as_str()));
        let request = Self { service, caller, parts, id, endpoint };
        match service.engine.sandbox(&caller.account, &request.id).status().await {
            Ok(_) => Ok(request),
            Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some(_) }))
                if request.was_answered().await? =>
            {
                Ok(request)
            }
            Err(error) => Err(of_engine(error, Some(request.id.as_str()), operation)),
        }
    }

    async fn was_answered(&self) -> Result<bool, ApiError> {
        let Ok(Some(key)) = idempotency::key_of(&self.parts.headers) else { return Ok(false) };
        self.service.idempotency.knows(self.caller, &self.endpoint, &key).await
    }

    /// The idempotency key, if any.
    pub fn key(&self) -> Result<Option<Key>, ApiError> {
        self.touched(idempotency::key_of(&self.parts.headers))
    }

    /// The run in the request header, if any.
    pub fn run_id(&self) -> Result<Option<RunId>, ApiError> {
        self.touched(read::run_id(&self.parts.headers))
    }

    pub async fn body<T: RequestBody>(&self, body: JsonBody<T>) -> Result<Received<T>, ApiError> {
        if T::OPTIONAL && read::json_content(&self.parts.headers).is_err() {
            return Ok(Received::new(Bytes::new(), body.ignored));
        }
        let reading = read::json_body(self.service, self.caller, &self.parts.headers, body);
        let mut reading = pin!(reading);
        loop {
            match tokio::time::timeout(ACTIVITY_EVERY, &mut reading).await {
                Ok(read) => return self.touched(read),
                Err(_) => self.service.engine.sandbox(&self.caller.account, &self.id).touch(),
            }
        }
    }

    /// Counts a failed request as activity; the engine counts requests that reach it.
    fn touched<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|_| self.service.engine.sandbox(&self.caller.account, &self.id).touch())
    }
}
