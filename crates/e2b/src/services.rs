//! What the API needs from the server that mounts it.

use std::sync::Arc;

use api::SandboxId;
use async_trait::async_trait;
use axum::http::HeaderMap;
use axum::response::Response;
use builder::{Bases, BuilderError};
use bytes::Bytes;
use engine::{BuildResponse, EngineError, PendingIdempotencyRecord, Template};
use futures_util::future::BoxFuture;
use rules::{Charge, Scopes};
use store::{EventFilter, EventListing, EventPage};

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

/// A body of a request while it arrives. What it holds counts towards the account's memory for request bodies.
#[async_trait]
pub trait BodyBuffer: Send {
    /// Bytes that have arrived.
    fn received(&self) -> usize;

    /// Appends bytes, which the caller has checked against the bound of the buffer. Waits for memory for a bounded time.
    async fn add(&mut self, data: &[u8]) -> Result<(), E2bError>;

    /// The whole body. Its memory is released with its last clone.
    fn done(self: Box<Self>) -> Bytes;
}

/// The account's memory for a response that is collected before it is sent. Dropping it releases the memory.
#[async_trait]
pub trait ResponseMemory: Send + Sync {
    /// Reserves until `bytes` are covered. Waits for a bounded time.
    async fn cover(&mut self, bytes: usize) -> Result<(), E2bError>;
}

/// Functions of the server.
#[async_trait]
pub trait HostServices: Send + Sync + 'static {
    /// The owner of a key, in either of its forms.
    async fn authenticate(&self, key: &str) -> Option<Caller>;

    /// The valid keys of an account. Tokens end with the key that they were made for.
    fn keys(&self, account: &str) -> Vec<Caller>;

    /// Counts a request against the rate limits of the key, or refuses it with 429.
    fn count(&self, caller: &Caller, charge: Charge) -> Result<(), E2bError>;

    /// Counts the start of a command against the execution limit of the sandbox, or refuses it with 429. The limit is that of the
    /// key whose token the request has, if any, and of the account otherwise.
    fn count_execution(
        &self,
        account: &Arc<str>,
        key_id: Option<&str>,
        sandbox: &SandboxId,
    ) -> Result<(), E2bError>;

    /// For a request body of at most `max_bytes`.
    fn body_buffer(&self, account: &Arc<str>, max_bytes: usize) -> Box<dyn BodyBuffer>;

    /// For a response that is collected before it is sent.
    fn response_memory(&self, account: &Arc<str>) -> Box<dyn ResponseMemory>;

    /// Takes a place among the account's requests in flight, or refuses the request with 429.
    fn enter(&self, account: &Arc<str>, headers: &HeaderMap) -> Result<Permit, E2bError>;

    /// An image that the account may use, by name. Waits for a pull if this host does not have it.
    async fn image(&self, account: &str, name: &str) -> Result<Template, E2bError>;

    /// Whether the operator's catalogue has an image with the name.
    fn is_catalogue_image(&self, name: &str) -> bool;

    /// A page of events of sandboxes.
    async fn events(&self, filter: &EventFilter, page: EventPage) -> Result<EventListing, E2bError>;

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
