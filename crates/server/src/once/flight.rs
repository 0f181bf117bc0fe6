//! One flight: what happens between the first request under a key and its answer. Runs in a task of its own, which
//! `Once::settle` waits for.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::ErrorObject;
use axum::http::StatusCode;
use futures_util::FutureExt;
use rules::Repeat;
use store::{Batch, Store, StoreError};
use tokio::sync::watch;

use super::{Answer, Claim, Flights, Kept, Place, lock, now};
use crate::error::ApiError;
use crate::output::OutputMemory;

/// How a flight ended.
#[derive(Debug)]
pub enum Outcome {
    /// Made in this flight, and kept.
    Fresh(Answer),
    /// An error made in this flight, and kept.
    Refused(ApiError),
    /// Kept before this flight.
    Earlier(Answer),
    /// Kept before this flight, for a request that was not the same.
    OtherRequest,
    /// Whoever asks next tries again.
    NotKept(ApiError),
    Panicked,
}

/// Takes the flight out of the air, then tells how it ended; also when its task is dropped.
pub struct Landing {
    /// Dropped after the guard, so that nobody who hears of the end finds the flight still in the air.
    guard: Guard,
    tell: watch::Sender<Option<Arc<Outcome>>>,
}

struct Guard {
    flights: Flights,
    place: Place,
}

impl Landing {
    pub fn new(flights: Flights, place: Place, tell: watch::Sender<Option<Arc<Outcome>>>) -> Self {
        Self { guard: Guard { flights, place }, tell }
    }

    pub fn tell(self, outcome: Outcome) {
        let Self { guard, tell } = self;
        drop(guard);
        tell.send_replace(Some(Arc::new(outcome)));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&self.flights).remove(&self.place);
    }
}

pub async fn fly<F, W>(store: &dyn Store, output: &OutputMemory, claim: Claim, work: F) -> Outcome
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

/// Whether something is kept under the key.
pub async fn is_kept(store: &dyn Store, place: &Place) -> Result<bool, StoreError> {
    let Place { account, endpoint, key } = place;
    let kept = store.remembered(account, endpoint, key).await?;
    Ok(kept.is_some_and(|kept| kept.expires_at > now()))
}

/// What is kept under the key already.
async fn earlier(
    store: &dyn Store,
    output: &OutputMemory,
    claim: &Claim,
) -> Result<Option<Outcome>, ApiError> {
    let Place { account, endpoint, key } = &claim.place;
    let _reading = output.record_reader().await;
    let Some(kept) = store.remembered(account, endpoint, key).await? else { return Ok(None) };
    let deciding = rules::Remembered { request_hash: kept.request_hash, expires_at: kept.expires_at };
    Ok(match rules::repeat(Some(&deciding), &claim.request_hash, now()) {
        Repeat::New => None,
        Repeat::OtherBody => Some(Outcome::OtherRequest),
        Repeat::Replay => {
            let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let content = output.of_record(&claim.place.account, kept.content).await?;
            Some(Outcome::Earlier(Answer { status, content, kept: Kept::Already }))
        }
    })
}

/// An answer that cannot be kept is not given: its client could not be sure of it the next time.
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

/// The store may hold an answer all the same: the one that was in the way of this.
async fn not_kept(store: &dyn Store, output: &OutputMemory, claim: &Claim, error: ApiError) -> Outcome {
    match earlier(store, output, claim).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) | Err(_) => Outcome::NotKept(error),
    }
}

fn inside_of(error: &ApiError) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&ErrorObject {
        code: error.code,
        message: error.message.clone(),
        details: error.details.clone(),
        request_id: String::new(),
    })
}
