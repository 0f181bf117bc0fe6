//! A request with a body about one sandbox: whether there is such a sandbox, and its body, for which it may wait. Used by what
//! executes, opens, exposes, posts and changes.

use std::pin::pin;
use std::time::Duration;

use api::{RunId, SandboxId};
use axum::http::request::Parts;
use engine::EngineError;

use super::read;
use crate::endpoint::{JsonBody, Received};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::once::{self, Key};
use crate::service::Service;

/// A body that takes longer keeps its sandbox awake: less than the shortest idle time.
const AWAKE: Duration = Duration::from_millis(200);

pub struct Named<'a> {
    service: &'a Service,
    caller: &'a Caller,
    parts: &'a Parts,
    pub id: SandboxId,
    /// What an answer is kept under, with the key.
    pub endpoint: String,
}

impl<'a> Named<'a> {
    /// Nobody sends a body for a sandbox that is not there, unless an answer was kept when it was. `what` is the path behind its id.
    pub async fn find(
        service: &'a Service,
        caller: &'a Caller,
        parts: &'a Parts,
        what: &str,
        during: During,
    ) -> Result<Self, ApiError> {
        let id = read::sandbox_id(&parts.uri)?;
        let endpoint = format!("{} /v1/sandboxes/{id}/{what}", parts.method);
        let named = Self { service, caller, parts, id, endpoint };
        match service.engine.sandbox(&caller.account, &named.id).status().await {
            Ok(_) => Ok(named),
            Err(EngineError::NotFound { terminated: Some(_) }) if named.was_answered().await? => Ok(named),
            Err(error) => Err(of_engine(error, Some(named.id.as_str()), during)),
        }
    }

    async fn was_answered(&self) -> Result<bool, ApiError> {
        let Ok(Some(key)) = once::key_of(&self.parts.headers) else { return Ok(false) };
        self.service.once.knows(self.caller, &self.endpoint, &key).await
    }

    /// Its idempotency key, if it has one.
    pub fn key(&self) -> Result<Option<Key>, ApiError> {
        self.counted(once::key_of(&self.parts.headers))
    }

    /// The run that it belongs to, if it names one.
    pub fn run_id(&self) -> Result<Option<RunId>, ApiError> {
        self.counted(read::run_id(&self.parts.headers))
    }

    /// Its body.
    pub async fn body<T>(&self, body: JsonBody<T>) -> Result<Received<T>, ApiError> {
        let reading = read::json_body(self.service, self.caller, &self.parts.headers, body);
        let mut reading = pin!(reading);
        loop {
            match tokio::time::timeout(AWAKE, &mut reading).await {
                Ok(read) => return self.counted(read),
                Err(_) => self.service.engine.sandbox(&self.caller.account, &self.id).touch(),
            }
        }
    }

    /// The engine counts as activity what reaches it, and this what does not.
    fn counted<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        result.inspect_err(|_| self.service.engine.sandbox(&self.caller.account, &self.id).touch())
    }
}
