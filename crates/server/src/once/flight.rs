//! One in-flight request with an idempotency key, from the lookup of its record to its outcome. Runs in a task of its own, which
//! `Once::settle` waits for.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::http::StatusCode;
use futures_util::FutureExt;
use rules::Repeat;
use store::{Batch, Store, StoreError};
use tokio::sync::watch;

use super::{Answer, Claim, InFlightByKey, Kept, KeyScope, lock, now};
use crate::error::ApiError;
use crate::output::OutputMemory;

/// The outcome of an in-flight request.
#[derive(Debug)]
pub enum Outcome {
    /// A new response, recorded.
    Fresh(Answer),
    /// A new error, recorded.
    Refused(ApiError),
    /// A response that was recorded before.
    Earlier(Answer),
    /// A record exists for another request body.
    OtherRequest,
    /// Not recorded: the next follower tries again.
    NotKept(ApiError),
    Panicked,
}

/// Removes the in-flight request, then publishes its outcome. Dropping it also removes the request.
pub struct Completion {
    /// Published after the guard is dropped, so that nobody who gets the outcome finds the request still in flight.
    guard: Guard,
    tell: watch::Sender<Option<Arc<Outcome>>>,
}

struct Guard {
    in_flight: InFlightByKey,
    scope: KeyScope,
}

impl Completion {
    pub fn new(in_flight: InFlightByKey, scope: KeyScope, tell: watch::Sender<Option<Arc<Outcome>>>) -> Self {
        Self { guard: Guard { in_flight, scope }, tell }
    }

    pub fn publish(self, outcome: Outcome) {
        let Self { guard, tell } = self;
        drop(guard);
        tell.send_replace(Some(Arc::new(outcome)));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.in_flight).remove(&self.scope);
    }
}

pub async fn run<F, W>(store: &dyn Store, output: &OutputMemory, claim: Claim, work: F) -> Outcome
where
    F: FnOnce(Option<Claim>) -> W + Send + 'static,
    W: Future<Output = Result<Answer, ApiError>> + Send + 'static,
{
    match earlier(store, output, &claim).await {
        Ok(None) => {}
        Ok(Some(outcome)) => return outcome,
        Err(error) => return Outcome::NotKept(error),
    }
    let begun = claim.clone();
    let result = AssertUnwindSafe(async move { work(Some(begun)).await }).catch_unwind().await;
    match result {
        Ok(Ok(answer)) if answer.kept == Kept::Already => Outcome::Fresh(answer),
        Ok(Ok(answer)) => {
            // Held until the commit: large records are copied one at a time.
            let record = &mut output.to_record(&answer.content).await;
            let bytes = std::mem::take(&mut record.bytes);
            keep(store, output, &claim, answer.status, bytes, Outcome::Fresh(answer)).await
        }
        Ok(Err(error)) => {
            let status = error.status();
            if !rules::keeps_answer(status.as_u16()) {
                return not_kept(store, output, &claim, error).await;
            }
            match inside_of(&error) {
                Ok(content) => keep(store, output, &claim, status, content, Outcome::Refused(error)).await,
                Err(_) => Outcome::NotKept(error),
            }
        }
        Err(_) => Outcome::Panicked,
    }
}

/// Whether the key has a record.
pub async fn is_kept(store: &dyn Store, scope: &KeyScope) -> Result<bool, StoreError> {
    let KeyScope { account, endpoint, key } = scope;
    let kept = store.remembered(account, endpoint, key).await?;
    Ok(kept.is_some_and(|kept| kept.expires_at > now()))
}

/// The outcome that an existing record determines.
async fn earlier(
    store: &dyn Store,
    output: &OutputMemory,
    claim: &Claim,
) -> Result<Option<Outcome>, ApiError> {
    let KeyScope { account, endpoint, key } = &claim.scope;
    let _reading = output.record_reader().await;
    let Some(kept) = store.remembered(account, endpoint, key).await? else { return Ok(None) };
    let deciding = rules::Remembered { request_hash: kept.request_hash, expires_at: kept.expires_at };
    Ok(match rules::repeat(Some(&deciding), &claim.request_hash, now()) {
        Repeat::New => None,
        Repeat::OtherBody => Some(Outcome::OtherRequest),
        Repeat::Replay => {
            let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let content = output.of_record(&claim.scope.account, kept.content).await?;
            Some(Outcome::Earlier(Answer { status, content, kept: Kept::Already }))
        }
    })
}

/// A response that cannot be recorded is not returned: a repeat could have another outcome.
async fn keep(
    store: &dyn Store,
    output: &OutputMemory,
    claim: &Claim,
    status: StatusCode,
    content: Vec<u8>,
    outcome: Outcome,
) -> Outcome {
    let answer = claim.clone().kept(status, content);
    match store.commit(Batch::new().remember(answer)).await {
        Ok(_) => outcome,
        Err(error) => not_kept(store, output, claim, error.into()).await,
    }
}

/// The commit may have failed because of an existing record.
async fn not_kept(store: &dyn Store, output: &OutputMemory, claim: &Claim, error: ApiError) -> Outcome {
    match earlier(store, output, claim).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) | Err(_) => Outcome::NotKept(error),
    }
}

fn inside_of(error: &ApiError) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&error.object(""))
}
