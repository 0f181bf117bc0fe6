//! What the API needs from the server that mounts it.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::HeaderMap;
use axum::response::Response;
use builder::{Bases, BuilderError};
use bytes::Bytes;
use engine::{BuildResponse, EngineError, PendingIdempotencyRecord, Template};
use futures_util::future::BoxFuture;
use rules::{Charge, Scopes};

use crate::error::E2bError;

/// The owner of a valid key.
#[derive(Debug, Clone)]
pub struct Caller {
    pub account: Arc<str>,
    pub key_id: Arc<str>,
    pub scopes: Scopes,
}

/// Makes a response hold a place among the requests in flight until its body ends.
pub type Permit = Box<dyn FnOnce(Response) -> Response + Send>;

/// Makes the record of an idempotency key, which the engine commits together with the sandbox.
pub type NewRecord = Box<dyn FnOnce(BuildResponse) -> PendingIdempotencyRecord + Send>;

/// Creates something, and returns the body of its response. Without an idempotency key there is nothing to record.
pub type Creation =
    Box<dyn FnOnce(Option<NewRecord>) -> BoxFuture<'static, Result<Vec<u8>, E2bError>> + Send>;

/// Functions of the server.
#[async_trait]
pub trait HostServices: Send + Sync + 'static {
    /// The owner of a key, in either of its forms.
    async fn authenticate(&self, key: &str) -> Option<Caller>;

    /// Counts a request against the rate limits of the key, or refuses it with 429.
    fn count(&self, caller: &Caller, charge: Charge) -> Result<(), E2bError>;

    /// Takes a place among the account's requests in flight, or refuses the request with 429.
    fn enter(&self, account: &Arc<str>, headers: &HeaderMap) -> Result<Permit, E2bError>;

    /// An image by name. Waits for a pull if this host does not have it.
    async fn image(&self, name: &str) -> Result<Template, E2bError>;

    /// Runs a creation, once per `Idempotency-Key` if the headers have one, and answers with 201. `endpoint` is part of the key's
    /// scope.
    async fn create_once(
        &self,
        caller: &Caller,
        endpoint: &str,
        (headers, body): (&HeaderMap, Bytes),
        creation: Creation,
    ) -> Result<Response, E2bError>;

    /// What builds can begin with.
    fn bases(&self) -> Arc<dyn Bases>;

    /// The response for an error of the builder.
    fn builder_error(&self, error: BuilderError) -> E2bError;

    /// The response for an error of the engine; logs the cause of an internal one.
    fn error(&self, error: EngineError) -> E2bError;
}
