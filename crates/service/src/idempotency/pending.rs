//! One pending request with an idempotency key, from the lookup of its record to its outcome. Runs in its own task;
//! `Idempotency::settle` waits for these tasks.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use admission::error::ApiError;
use admission::output_memory::OutputMemory;
use axum::http::StatusCode;
use futures_util::FutureExt;
use rules::Repeat;
use store::{Batch, Store, StoreError};
use tokio::sync::watch;

use super::{KeyScope, PendingByKey, RecordHeader, RecordState, ReplayableResponse, lock, now};
use crate::output::Content;

/// The outcome of a pending request.
#[derive(Debug)]
pub enum Outcome {
    /// A new response, recorded.
    Fresh(ReplayableResponse),
    /// A new error, recorded.
    Refused(ApiError),
    /// A response that was recorded before.
    Earlier(ReplayableResponse),
    /// A record exists for another request body.
    OtherRequest,
    /// Not recorded: the next follower tries again.
    NotRecorded(ApiError),
    Panicked,
}

/// Removes the pending request, then publishes its outcome. Dropping it also removes the request.
pub struct Completion {
    /// Published after the guard is dropped, so that the request is no longer pending when its outcome is visible.
    guard: Guard,
    sender: watch::Sender<Option<Arc<Outcome>>>,
}

struct Guard {
    pending: PendingByKey,
    scope: KeyScope,
}

impl Completion {
    pub fn new(pending: PendingByKey, scope: KeyScope, sender: watch::Sender<Option<Arc<Outcome>>>) -> Self {
        Self { guard: Guard { pending, scope }, sender }
    }

    pub fn publish(self, outcome: Outcome) {
        let Self { guard, sender } = self;
        drop(guard);
        sender.send_replace(Some(Arc::new(outcome)));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.pending).remove(&self.scope);
    }
}

pub async fn run<F, W>(store: &dyn Store, output: &OutputMemory, header: RecordHeader, work: F) -> Outcome
where
    F: FnOnce(Option<RecordHeader>) -> W + Send + 'static,
    W: Future<Output = Result<ReplayableResponse, ApiError>> + Send + 'static,
{
    match earlier(store, output, &header).await {
        Ok(None) => {}
        Ok(Some(outcome)) => return outcome,
        Err(error) => return Outcome::NotRecorded(error),
    }
    let begun = header.clone();
    let result = AssertUnwindSafe(async move { work(Some(begun)).await }).catch_unwind().await;
    match result {
        Ok(Ok(response)) if response.record_state == RecordState::Recorded => Outcome::Fresh(response),
        Ok(Ok(response)) => {
            // Held until the commit: large records are copied one at a time.
            let encoded = &mut response.content.to_record(output).await;
            let bytes = std::mem::take(&mut encoded.bytes);
            record(store, output, &header, response.status, bytes, Outcome::Fresh(response)).await
        }
        Ok(Err(error)) => {
            let status = error.status();
            if error.is_temporary() || !rules::should_record(status.as_u16()) {
                return not_recorded(store, output, &header, error).await;
            }
            match error_content(&error) {
                Ok(content) => record(store, output, &header, status, content, Outcome::Refused(error)).await,
                Err(_) => Outcome::NotRecorded(error),
            }
        }
        Err(_) => Outcome::Panicked,
    }
}

/// Whether the key has a record.
pub async fn is_recorded(store: &dyn Store, scope: &KeyScope) -> Result<bool, StoreError> {
    let KeyScope { account, endpoint, key } = scope;
    let stored = store.idempotency_record(account, endpoint, key).await?;
    Ok(stored.is_some_and(|stored| stored.expires_at > now()))
}

/// The outcome that an existing record determines.
async fn earlier(
    store: &dyn Store,
    output: &OutputMemory,
    header: &RecordHeader,
) -> Result<Option<Outcome>, ApiError> {
    let KeyScope { account, endpoint, key } = &header.scope;
    let _reading = output.reading().await;
    let Some(stored) = store.idempotency_record(account, endpoint, key).await? else { return Ok(None) };
    let deciding = rules::StoredRequest { request_hash: stored.request_hash, expires_at: stored.expires_at };
    Ok(match rules::repeat(Some(&deciding), &header.request_hash, now()) {
        Repeat::New => None,
        Repeat::OtherBody => Some(Outcome::OtherRequest),
        Repeat::Replay => {
            let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let content = Content::of_record(output, &header.scope.account, stored.content).await?;
            Some(Outcome::Earlier(ReplayableResponse {
                status,
                content,
                location: None,
                sandboxes: Vec::new(),
                record_state: RecordState::Recorded,
            }))
        }
    })
}

/// A response that cannot be recorded is not returned: a repeat could have another outcome.
async fn record(
    store: &dyn Store,
    output: &OutputMemory,
    header: &RecordHeader,
    status: StatusCode,
    content: Vec<u8>,
    outcome: Outcome,
) -> Outcome {
    let stored = header.clone().into_record(status, content);
    match store.commit(Batch::new().idempotency_record(stored)).await {
        Ok(_) => outcome,
        // Never an error after which clients repeat the request: the work is done.
        Err(error) => not_recorded(store, output, header, ApiError::internal(error)).await,
    }
}

/// The commit may have failed because of an existing record.
async fn not_recorded(
    store: &dyn Store,
    output: &OutputMemory,
    header: &RecordHeader,
    error: ApiError,
) -> Outcome {
    match earlier(store, output, header).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) | Err(_) => Outcome::NotRecorded(error),
    }
}

fn error_content(error: &ApiError) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&error.object(""))
}
