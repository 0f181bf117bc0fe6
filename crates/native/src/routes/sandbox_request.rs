//! A request with a JSON body for one sandbox: checks that the sandbox exists, then reads the body.

use std::pin::pin;
use std::time::Duration;

use admission::endpoint::{JsonBody, Received};
use admission::error::ApiError;
use api::RunId;
use axum::response::Response;
use bytes::Bytes;
use engine::{EngineError, SandboxError};
use reader::RequestBody;
use service::error::OperationKind;
use service::idempotency::{self, Key, RecordHeader, ReplayableResponse};

use super::read;
use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::Call;

/// While a body arrives, activity is counted this often: less than the shortest idle timeout.
const ACTIVITY_EVERY: Duration = Duration::from_millis(200);

pub struct SandboxRequest<'a> {
    call: &'a Call,
    pub sandbox: RequestedSandbox,
    /// The endpoint in the scope of the idempotency key.
    endpoint: String,
}

impl<'a> SandboxRequest<'a> {
    /// Fails if the sandbox does not exist, so that the body is not read; a terminated sandbox passes if the request's idempotency
    /// key has a response.
    pub async fn find(call: &'a Call, operation: OperationKind) -> Result<Self, ApiError> {
        let sandbox = RequestedSandbox::of(call, operation)?;
        let endpoint = format!("{} {}", call.parts.method, call.path.replace("{id}", sandbox.id.as_str()));
        let request = Self { call, sandbox, endpoint };
        match request.sandbox.handle().status().await {
            Ok(_) => Ok(request),
            Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some(_) }))
                if request.was_answered().await? =>
            {
                Ok(request)
            }
            Err(error) => Err(request.sandbox.fault(error)),
        }
    }

    async fn was_answered(&self) -> Result<bool, ApiError> {
        let Ok(Some(key)) = idempotency::key_of(&self.call.parts.headers) else { return Ok(false) };
        self.call.service.idempotency.knows(&self.call.caller, &self.endpoint, &key).await
    }

    /// The idempotency key, if any.
    pub fn key(&self) -> Result<Option<Key>, ApiError> {
        self.sandbox.touched(idempotency::key_of(&self.call.parts.headers))
    }

    /// The run in the request header, if any.
    pub fn run_id(&self) -> Result<Option<RunId>, ApiError> {
        self.sandbox.touched(read::run_id(&self.call.parts.headers))
    }

    pub async fn body<T: RequestBody>(&self, body: JsonBody<T>) -> Result<Received<T>, ApiError> {
        let Call { service, caller, parts, .. } = self.call;
        if T::OPTIONAL && read::json_content(&parts.headers).is_err() {
            return Ok(Received::new(Bytes::new(), body.ignored));
        }
        let mut reading = pin!(read::json_body(service, caller, &parts.headers, body));
        loop {
            match tokio::time::timeout(ACTIVITY_EVERY, &mut reading).await {
                Ok(read) => return self.sandbox.touched(read),
                Err(_) => self.sandbox.handle().touch(),
            }
        }
    }

    /// The body, parsed and checked.
    pub async fn content<T: RequestBody>(
        &self,
        body: JsonBody<T>,
        rules: &T::Rules,
    ) -> Result<T::Validated, ApiError> {
        let body = self.body(body).await?;
        Ok(self.sandbox.touched(body.read(rules))?)
    }

    /// Does the work once per idempotency key. With a key it is completed if the client disconnects.
    pub async fn once<T, F, W>(
        &self,
        key: Option<Key>,
        body: Received<T>,
        work: F,
    ) -> Result<Response, ApiError>
    where
        T: 'static,
        F: FnOnce(RequestedSandbox, Received<T>, Option<RecordHeader>) -> W + Send + 'static,
        W: Future<Output = Result<ReplayableResponse, ApiError>> + Send + 'static,
    {
        let (sandbox, received) = (self.sandbox.clone(), body.clone());
        let work = move |header| work(sandbox, received, header);
        self.call.service.idempotency.run(&self.call.caller, &self.endpoint, key, body.bytes, work).await
    }
}
