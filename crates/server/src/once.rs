//! Idempotency: one answer for one key (section 4.10, decision 19).
//!
//! Handlers of what creates or executes hand their work to [`Once::run`]. Without a key it just runs. With one it is a
//! *flight*, in a task of its own, so that a client that goes away leaves nothing half-known:
//!
//! ```text
//! first request --> flight: asks the store --kept already--> replay
//!                     | nothing kept
//!                     v
//!                   work --> answer kept (in the work's own commit, or in one of ours) --> told to all who wait
//!                     `----> 429, 5xx, panic: not kept --> the next of those who wait flies
//! ```
//!
//! A daemon that dies in a flight has kept the answer together with what it did, or neither, as far as the work commits
//! both at once: a create does. A command that ran and whose answer was not kept yet runs again.

mod flight;
mod hash;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{ErrorCode, ErrorObject};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use rules::{IDEMPOTENCY_VALID_MS, TimeMs};
use store::{SandboxRecord, Store};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::error::ApiError;
use crate::keyring::Caller;
use crate::output::{Content, OutputMemory};
use flight::{Landing, Outcome};

pub const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Flights at one time. Those whose client went away count as well.
const MAX_FLIGHTS: usize = 10_000;
/// How long the end of the daemon waits for flights whose clients are gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// An idempotency key whose syntax was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

/// The key of a request, if it has one.
pub fn key_of(headers: &HeaderMap) -> Result<Option<Key>, ApiError> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let message = "header Idempotency-Key was sent more than once; allowed is one";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    match rules::idempotency_key(value.as_bytes()) {
        Ok(key) => Ok(Some(Key(key.to_owned()))),
        Err(error) => Err(ApiError::new(ErrorCode::InvalidRequest, error.to_string())),
    }
}

/// An answer in JSON.
#[derive(Debug, Clone)]
pub struct Answer {
    status: StatusCode,
    content: Content,
    kept: Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// In the same commit as what the work did.
    Already,
    NotYet,
}

impl Answer {
    pub fn new(status: StatusCode, content: impl Into<Content>) -> Self {
        Self { status, content: content.into(), kept: Kept::NotYet }
    }

    /// One that is in the store already, by way of [`Claim::remember`].
    pub fn committed(status: StatusCode, content: Bytes) -> Self {
        Self { status, content: Content::Json(content), kept: Kept::Already }
    }
}

/// What an answer will be kept under. Work gets it when its request has a key.
#[derive(Debug, Clone)]
pub struct Claim {
    place: Place,
    request_hash: [u8; 32],
    expires_at: TimeMs,
}

impl Claim {
    /// To be kept in the work's own commit.
    pub fn kept(self, status: StatusCode, content: impl Into<Vec<u8>>) -> store::Remembered {
        let Self { place: Place { account, endpoint, key }, request_hash, expires_at } = self;
        store::Remembered {
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

    /// For the engine, which keeps the answer in the commit of the record.
    pub fn remember(
        self,
        respond: impl FnOnce(&SandboxRecord) -> (u16, Vec<u8>) + Send + 'static,
    ) -> engine::PendingIdempotencyRecord {
        engine::PendingIdempotencyRecord {
            endpoint: self.place.endpoint,
            key: self.place.key,
            request_hash: self.request_hash,
            expires_at: self.expires_at,
            respond: Box::new(respond),
        }
    }
}

/// Where an answer is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    account: Arc<str>,
    endpoint: String,
    key: String,
}

/// A flight as those see it who wait for it.
#[derive(Debug, Clone)]
struct Waiting {
    request_hash: [u8; 32],
    outcome: watch::Receiver<Option<Arc<Outcome>>>,
}

type Flights = Arc<Mutex<HashMap<Place, Waiting>>>;

/// All flights.
pub struct Once {
    store: Arc<dyn Store>,
    output: Arc<OutputMemory>,
    flights: Flights,
    tasks: TaskTracker,
}

/// Whether this request's own work is in the air.
enum Seat {
    Pilot(Waiting),
    Passenger(Waiting),
}

impl Once {
    pub fn new(store: Arc<dyn Store>, output: Arc<OutputMemory>) -> Self {
        Self { store, output, flights: Flights::default(), tasks: TaskTracker::new() }
    }

    /// Carries the work out, or answers what was answered before. `endpoint` names the resource where there is one: the same
    /// key may be used for each.
    pub async fn run<F, W>(
        &self,
        caller: &Caller,
        endpoint: &str,
        key: Option<Key>,
        body: Bytes,
        work: F,
    ) -> Result<Response, ApiError>
    where
        F: FnOnce(Option<Claim>) -> W + Send + 'static,
        W: Future<Output = Result<Answer, ApiError>> + Send + 'static,
    {
        let Some(Key(key)) = key else {
            drop(body);
            let answer = work(None).await?;
            return Ok(json(answer.status, answer.content));
        };
        let place = Place { account: Arc::clone(&caller.account), endpoint: endpoint.to_owned(), key };
        let request_hash = hash::of(&body);
        drop(body);
        let mut work = Some(work);
        // Every turn but the last waits for a flight of somebody else that kept nothing.
        loop {
            match self.board(&place, request_hash, &mut work)? {
                Seat::Pilot(mut waiting) => {
                    return match waiting.land().await.as_deref() {
                        Some(Outcome::Fresh(answer)) => Ok(json(answer.status, answer.content.clone())),
                        Some(Outcome::Refused(error) | Outcome::NotKept(error)) => Err(error.clone()),
                        Some(Outcome::Earlier(answer)) => replay(answer),
                        Some(Outcome::OtherRequest) => Err(other_request()),
                        // The layers catch it again, and log it with the request's id.
                        Some(Outcome::Panicked) => {
                            std::panic::resume_unwind(Box::new("work under an idempotency key panicked"))
                        }
                        None => Err(lost()),
                    };
                }
                Seat::Passenger(mut waiting) => match waiting.land().await.as_deref() {
                    Some(Outcome::Fresh(answer) | Outcome::Earlier(answer)) => return replay(answer),
                    Some(Outcome::Refused(error)) => return Ok(replayed(error.clone().into_response())),
                    Some(Outcome::OtherRequest) => return Err(other_request()),
                    Some(Outcome::NotKept(_) | Outcome::Panicked) => {}
                    None => return Err(lost()),
                },
            }
        }
    }

    /// Whether there is an answer under the key, or will be.
    pub async fn knows(&self, caller: &Caller, endpoint: &str, key: &Key) -> Result<bool, ApiError> {
        let Key(key) = key.clone();
        let place = Place { account: Arc::clone(&caller.account), endpoint: endpoint.to_owned(), key };
        let is_flying = lock(&self.flights).contains_key(&place);
        Ok(is_flying || flight::is_kept(&*self.store, &place).await?)
    }

    /// Waits until no flight is in the air, but not for ever: a command under a key may take minutes. What is still under way
    /// then is as after a sudden end of the daemon.
    pub async fn settle(&self) {
        self.tasks.close();
        if tokio::time::timeout(PATIENCE, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                flights = self.tasks.len(),
                "requests with an idempotency key are given up at the end"
            );
        }
    }

    /// Waits with those who wait already, or starts a flight and takes `work` for it.
    fn board<F, W>(
        &self,
        place: &Place,
        request_hash: [u8; 32],
        work: &mut Option<F>,
    ) -> Result<Seat, ApiError>
    where
        F: FnOnce(Option<Claim>) -> W + Send + 'static,
        W: Future<Output = Result<Answer, ApiError>> + Send + 'static,
    {
        let mut flights = lock(&self.flights);
        if let Some(waiting) = flights.get(place) {
            return match waiting.request_hash == request_hash {
                true => Ok(Seat::Passenger(waiting.clone())),
                false => Err(other_request()),
            };
        }
        if flights.len() >= MAX_FLIGHTS {
            let message = "too many requests with an Idempotency-Key are under way; try again in a second";
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message).retry_after(1));
        }
        // A request flies once at most: then it has its answer.
        let Some(work) = work.take() else { return Err(lost()) };
        let (tell, outcome) = watch::channel(None);
        let waiting = Waiting { request_hash, outcome };
        flights.insert(place.clone(), waiting.clone());
        let landing = Landing::new(Arc::clone(&self.flights), place.clone(), tell);
        let expires_at = now().after(IDEMPOTENCY_VALID_MS);
        let claim = Claim { place: place.clone(), request_hash, expires_at };
        let (store, output) = (Arc::clone(&self.store), Arc::clone(&self.output));
        self.tasks.spawn(async move {
            let outcome = flight::fly(&*store, &output, claim, work).await;
            landing.tell(outcome);
        });
        Ok(Seat::Pilot(waiting))
    }
}

impl Waiting {
    /// Nothing, if the flight's task is gone without a word: the daemon is ending.
    async fn land(&mut self) -> Option<Arc<Outcome>> {
        self.outcome.wait_for(Option::is_some).await.ok()?.clone()
    }
}

fn lock(flights: &Mutex<HashMap<Place, Waiting>>) -> MutexGuard<'_, HashMap<Place, Waiting>> {
    flights.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> TimeMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    TimeMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

fn json(status: StatusCode, content: Content) -> Response {
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    content.into_response(response)
}

/// A kept answer, once more. An error gets the id of the present request, so only its inside is kept.
fn replay(answer: &Answer) -> Result<Response, ApiError> {
    let Answer { status, content, .. } = answer;
    if status.as_u16() < 400 {
        return Ok(replayed(json(*status, content.clone())));
    }
    let Content::Json(content) = content else {
        return Err(ApiError::internal("a kept error that is an output"));
    };
    let object: ErrorObject = serde_json::from_slice(content)
        .map_err(|error| ApiError::internal(format!("a kept answer cannot be read: {error}")))?;
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

fn lost() -> ApiError {
    ApiError::internal("a flight under an idempotency key ended without a word")
}

#[cfg(test)]
mod tests;
