//! Idempotency: one response per key.
//!
//! Handlers that create or execute pass their work to [`Idempotency::run`]. Without a key the work runs in the request's task. With a
//! key it runs as an *pending request* in a task of its own, so that it completes when its client goes away. The first request leads;
//! concurrent requests with the same key follow it:
//!
//! ```text
//! leader --> looks for a record --found--> replay
//!              | none
//!              v
//!            work --> response recorded (in the work's own commit, or in a separate one) --> leader and followers get it
//!              `----> 429, 5xx, temporary error, panic: not recorded --> the next follower leads
//! ```
//!
//! After a crash, the effect and its record are both there or both missing if the work commits them together, as a create does. A
//! command whose response was not recorded yet runs again.

mod hash;
mod pending;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::error::{ApiError, InvalidJson, RefusalCode};
use admission::keyring::Caller;
use admission::output_memory::OutputMemory;
use admission::record::CreatedSandboxes;
use admission::wall_clock::now;
use api::{ErrorCode, ErrorObject, SandboxId};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::IgnorePoison;
use bytes::Bytes;
use rules::{IDEMPOTENCY_VALID_MS, ReachedLimit, TimeMs};
use store::Store;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::output::Content;
use pending::{Completion, Outcome};

pub const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The most pending requests, including those whose client disconnected.
const MAX_PENDING: usize = 10_000;
const PENDING_RETRY_S: u64 = 1;
/// How long shutdown waits for pending requests whose clients are gone.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A well-formed idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

/// The idempotency key of a request, if any.
pub fn key_of(headers: &HeaderMap) -> Result<Option<Key>, ApiError> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let message = "header Idempotency-Key was sent more than once; send it once";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    match rules::idempotency_key(value.as_bytes()) {
        Ok(key) => Ok(Some(Key(key.to_owned()))),
        Err(error) => Err(ApiError::new(ErrorCode::InvalidRequest, error.to_string())),
    }
}

/// A JSON response.
#[derive(Debug, Clone)]
pub struct ReplayableResponse {
    status: StatusCode,
    content: Content,
    /// The path of what was created. The record does not have it.
    location: Option<HeaderValue>,
    /// The sandboxes that were created, for the log. The record does not have them.
    sandboxes: Vec<SandboxId>,
    record_state: RecordState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordState {
    /// Recorded in the commit of the work.
    Recorded,
    Pending,
}

impl ReplayableResponse {
    pub fn new(status: StatusCode, content: impl Into<Content>) -> Self {
        Self {
            status,
            content: content.into(),
            location: None,
            sandboxes: Vec::new(),
            record_state: RecordState::Pending,
        }
    }

    /// A response that the work has recorded, by [`RecordHeader::into_pending`] or [`RecordHeader::into_record`].
    pub fn committed(status: StatusCode, content: Bytes) -> Self {
        let (content, record_state) = (Content::Json(content), RecordState::Recorded);
        Self { status, content, location: None, sandboxes: Vec::new(), record_state }
    }

    /// The same response with the path of what was created.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        // Ids and the names of paths are characters that a header value may have.
        Self { location: HeaderValue::from_str(path).ok(), ..self }
    }

    /// The same response with the sandboxes that were created.
    #[must_use]
    pub fn of_sandboxes(self, sandboxes: impl IntoIterator<Item = SandboxId>) -> Self {
        Self { sandboxes: sandboxes.into_iter().collect(), ..self }
    }
}

/// An idempotency record without its response. Work gets it if its request has a key.
#[derive(Debug, Clone)]
pub struct RecordHeader {
    scope: KeyScope,
    request_hash: [u8; 32],
    expires_at: TimeMs,
}

impl RecordHeader {
    /// A record for the work's own commit.
    pub fn into_record(self, status: StatusCode, content: impl Into<Vec<u8>>) -> store::IdempotencyRecord {
        let Self { scope: KeyScope { account, endpoint, key }, request_hash, expires_at } = self;
        store::IdempotencyRecord {
            account: account.as_ref().to_owned(),
            endpoint,
            key,
            request_hash,
            status: status.as_u16(),
            content: content.into(),
            created_at: now().min(expires_at.before(1)),
            expires_at,
        }
    }

    /// For the engine, which adds the record to the commit of what it creates.
    pub fn into_pending<T>(
        self,
        respond: impl FnOnce(&T) -> (u16, Vec<u8>) + Send + 'static,
    ) -> engine::PendingIdempotencyRecord<T> {
        engine::PendingIdempotencyRecord {
            endpoint: self.scope.endpoint,
            key: self.scope.key,
            request_hash: self.request_hash,
            expires_at: self.expires_at,
            respond: Box::new(respond),
        }
    }
}

/// The scope of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct KeyScope {
    account: Arc<str>,
    endpoint: String,
    key: String,
}

/// A pending request, as its leader and followers see it.
#[derive(Debug, Clone)]
struct Waiting {
    request_hash: [u8; 32],
    outcome: watch::Receiver<Option<Arc<Outcome>>>,
}

type PendingByKey = Arc<Mutex<HashMap<KeyScope, Waiting>>>;

/// All pending requests.
pub struct Idempotency {
    store: Arc<dyn Store>,
    output: Arc<OutputMemory>,
    pending: PendingByKey,
    tasks: TaskTracker,
}

/// Whether a request does the work or waits for it.
enum Role {
    Leader(Waiting),
    Follower(Waiting),
}

impl Idempotency {
    pub fn new(store: Arc<dyn Store>, output: Arc<OutputMemory>) -> Self {
        Self { store, output, pending: PendingByKey::default(), tasks: TaskTracker::new() }
    }

    /// Runs the work, or replays the recorded response. `endpoint` includes the resource, if any: each may use the same key.
    pub async fn run<F, W>(
        &self,
        caller: &Caller,
        endpoint: &str,
        key: Option<Key>,
        body: Bytes,
        work: F,
    ) -> Result<Response, ApiError>
    where
        F: FnOnce(Option<RecordHeader>) -> W + Send + 'static,
        W: Future<Output = Result<ReplayableResponse, ApiError>> + Send + 'static,
    {
        let Some(Key(key)) = key else {
            drop(body);
            let response = work(None).await?;
            return Ok(json(&response));
        };
        let scope = KeyScope { account: Arc::clone(&caller.account), endpoint: endpoint.to_owned(), key };
        let request_hash = hash::of(&body);
        drop(body);
        let mut work = Some(work);
        // Every iteration but the last follows a pending request that recorded nothing.
        loop {
            match self.join(&scope, request_hash, &mut work)? {
                Role::Leader(mut waiting) => {
                    return match waiting.outcome().await.as_deref() {
                        Some(Outcome::Fresh(response)) => Ok(json(response)),
                        Some(Outcome::Refused(error) | Outcome::NotRecorded(error)) => Err(error.clone()),
                        Some(Outcome::Earlier(response)) => replay(response),
                        Some(Outcome::OtherRequest) => Err(other_request()),
                        // The layers catch it and log it with the request's id.
                        Some(Outcome::Panicked) => {
                            std::panic::resume_unwind(Box::new("work under an idempotency key panicked"))
                        }
                        None => Err(lost()),
                    };
                }
                Role::Follower(mut waiting) => match waiting.outcome().await.as_deref() {
                    Some(Outcome::Fresh(response) | Outcome::Earlier(response)) => return replay(response),
                    Some(Outcome::Refused(error)) => return Ok(replayed(error.clone().into_response())),
                    Some(Outcome::OtherRequest) => return Err(other_request()),
                    Some(Outcome::NotRecorded(_) | Outcome::Panicked) => {}
                    None => return Err(lost()),
                },
            }
        }
    }

    /// Whether the key has a record or a pending request.
    pub async fn knows(&self, caller: &Caller, endpoint: &str, key: &Key) -> Result<bool, ApiError> {
        let Key(key) = key.clone();
        let scope = KeyScope { account: Arc::clone(&caller.account), endpoint: endpoint.to_owned(), key };
        let is_pending = lock(&self.pending).contains_key(&scope);
        Ok(is_pending || pending::is_recorded(&*self.store, &scope).await?)
    }

    /// Waits for pending requests, for a bounded time: a command may take minutes. What is still pending then is treated as
    /// after a crash.
    pub async fn settle(&self) {
        self.tasks.close();
        if tokio::time::timeout(SETTLE_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                pending = self.tasks.len(),
                "abandoning pending requests with an idempotency key at shutdown"
            );
        }
    }

    /// Joins the pending request of the key, or starts one and takes `work` for it.
    fn join<F, W>(
        &self,
        scope: &KeyScope,
        request_hash: [u8; 32],
        work: &mut Option<F>,
    ) -> Result<Role, ApiError>
    where
        F: FnOnce(Option<RecordHeader>) -> W + Send + 'static,
        W: Future<Output = Result<ReplayableResponse, ApiError>> + Send + 'static,
    {
        let mut pending = lock(&self.pending);
        if let Some(waiting) = pending.get(scope) {
            return match waiting.request_hash == request_hash {
                true => Ok(Role::Follower(waiting.clone())),
                false => Err(other_request()),
            };
        }
        if pending.len() >= MAX_PENDING {
            return Err(too_many_pending());
        }
        // A request leads at most once: then it has its response.
        let Some(work) = work.take() else { return Err(lost()) };
        let (sender, outcome) = watch::channel(None);
        let waiting = Waiting { request_hash, outcome };
        pending.insert(scope.clone(), waiting.clone());
        let completion = Completion::new(Arc::clone(&self.pending), scope.clone(), sender);
        let expires_at = now().after(IDEMPOTENCY_VALID_MS);
        let record_header = RecordHeader { scope: scope.clone(), request_hash, expires_at };
        let (store, output) = (Arc::clone(&self.store), Arc::clone(&self.output));
        self.tasks.spawn(async move {
            let outcome = pending::run(&*store, &output, record_header, work).await;
            completion.publish(outcome);
        });
        Ok(Role::Leader(waiting))
    }
}

impl Waiting {
    /// `None` if the task ended without an outcome: the daemon is shutting down.
    async fn outcome(&mut self) -> Option<Arc<Outcome>> {
        self.outcome.wait_for(Option::is_some).await.ok()?.clone()
    }
}

fn lock(pending: &Mutex<HashMap<KeyScope, Waiting>>) -> MutexGuard<'_, HashMap<KeyScope, Waiting>> {
    pending.lock().ignore_poison()
}

fn json(replayable: &ReplayableResponse) -> Response {
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    let mut response = Response::new(());
    *response.status_mut() = replayable.status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Some(location) = &replayable.location {
        response.headers_mut().insert(header::LOCATION, location.clone());
    }
    if !replayable.sandboxes.is_empty() {
        response.extensions_mut().insert(CreatedSandboxes(replayable.sandboxes.clone()));
    }
    replayable.content.clone().into_response(response)
}

/// Replays a recorded response. An error gets the id of the current request, so only its contents are recorded.
fn replay(response: &ReplayableResponse) -> Result<Response, ApiError> {
    let ReplayableResponse { status, content, .. } = response;
    if status.as_u16() < 400 {
        return Ok(replayed(json(response)));
    }
    let Content::Json(content) = content else {
        return Err(ApiError::internal("a recorded error whose content is command output"));
    };
    let object: ErrorObject = serde_json::from_slice(content)
        .map_err(|error| ApiError::internal(InvalidJson("a recorded response cannot be parsed", error)))?;
    let mut error = ApiError::new(object.code, object.message).with_status(*status);
    error.details = object.details;
    Ok(replayed(error.into_response()))
}

fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn other_request() -> ApiError {
    let message = "this Idempotency-Key was used with another body in the last 24 hours; send the same body, or another key";
    ApiError::new(ErrorCode::InvalidRequest, message)
}

fn too_many_pending() -> ApiError {
    let why = "too many requests with an Idempotency-Key are pending";
    let limit = ReachedLimit::fixed(MAX_PENDING as u64, "pending requests with an Idempotency-Key");
    ApiError::refused(RefusalCode::ResourceExhausted, why, limit, PENDING_RETRY_S)
}

fn lost() -> ApiError {
    ApiError::internal("a pending request with an idempotency key ended without an outcome")
}

#[cfg(test)]
mod tests;
