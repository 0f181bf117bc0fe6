//! Events as Server-Sent Events, from an event on and then as they happen.
//!
//! hyper asks for the next chunk when the last is on its way, and only then the next page is read from the store: a reader
//! that is slow, or stands still, costs no memory. Who waits is woken by the store when one of its topic's events can be read.
//! Every message has its event's id, so that a reader that comes back with the last one misses none and gets none twice; the
//! first message, and each that keeps the stream alive, tells how far the reader has come although nothing happened.

use std::sync::Arc;
use std::time::Duration;

use api::{ErrorCode, EventId, SandboxId};
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use bytes::Bytes;
use engine::EngineError;
use store::{EventFilter, Topic};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{read, view};
use crate::error::ApiError;
use crate::request_id::RequestId;
use crate::service::Service;
use crate::sse::{self, Chunk, KEEP_ALIVE};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Events of one chunk.
const PAGE: u32 = 64;
/// After a wake: whether the sandbox is still there. What its end brings about is noted by then.
const LOOK_AFTER: Duration = Duration::from_millis(200);
const STOPPING_RETRY_S: u64 = 5;

/// What a stream begins with.
pub struct Begin {
    pub filter: EventFilter,
    pub topic: Topic,
    /// The sandbox with whose end the stream ends.
    pub ends_with: Option<SandboxId>,
    /// The last event that was seen; now where there is none.
    pub from: Option<EventId>,
    pub key_id: Arc<str>,
    pub request_id: RequestId,
}

/// The header's event, if there is one.
pub fn last_seen(headers: &HeaderMap) -> Result<Option<EventId>, ApiError> {
    let mut values = read::values(headers, LAST_EVENT_ID);
    let Some(value) = values.next() else { return Ok(None) };
    let text = String::from_utf8_lossy(value);
    match text.parse() {
        Ok(id) if values.next().is_none() => Ok(Some(id)),
        _ => {
            let message = format!(
                "header Last-Event-ID is {}; allowed is one id of an event, such as 'ev_0000000000000042'",
                rules::shown(&text)
            );
            Err(ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", "Last-Event-ID"))
        }
    }
}

/// The stream.
pub async fn response(service: Arc<Service>, begin: Begin) -> Result<Response, ApiError> {
    // Before the place is read: what happens in between is then found.
    let changes = service.store.follow(begin.topic.clone());
    let position = match begin.from {
        Some(id) => id.0,
        None => service.store.last_event().await?,
    };
    let following = Following { service, begin, changes, position, stage: Stage::First, look_at: None };
    Ok(sse::response(following))
}

struct Following {
    service: Arc<Service>,
    begin: Begin,
    changes: watch::Receiver<u64>,
    /// All that fits up to here is on its way.
    position: u64,
    stage: Stage,
    /// When to see whether the sandbox is still there.
    look_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Following,
    /// The sandbox is gone: what is there is the last.
    Last,
    Over,
}

impl sse::Source for Following {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.stage == Stage::First {
            self.stage = Stage::Following;
            self.look_soon();
            return Some(Chunk::opening(&EventId(self.position)).into_bytes());
        }
        loop {
            if self.stage == Stage::Over {
                return None;
            }
            if !self.service.keyring.has(&self.begin.key_id) {
                return Some(self.end_with(&revoked()));
            }
            self.changes.borrow_and_update();
            match self.page().await {
                Ok(chunk) if !chunk.is_empty() => return Some(chunk.into_bytes()),
                Ok(_) if self.stage == Stage::Last => return None,
                Ok(_) => {}
                Err(error) => return Some(self.end_with(&error)),
            }
            tokio::select! {
                biased;
                () = self.service.stopping.cancelled() => return Some(self.end_with(&stopping())),
                // The store is closed last of all.
                changed = self.changes.changed() => match changed {
                    Ok(()) => self.look_soon(),
                    Err(_) => return Some(self.end_with(&stopping())),
                },
                () = at(self.look_at) => self.look().await,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    self.look_soon();
                    return Some(self.still_here());
                }
            }
        }
    }
}

impl Following {
    /// The next events, and how far they reach.
    async fn page(&mut self) -> Result<Chunk, ApiError> {
        let (found, upto) = self.service.store.events_after(&self.begin.filter, self.position, PAGE).await?;
        let mut chunk = Chunk::default();
        for event in found {
            let event = view::event(event)?;
            chunk.json(Some(&event.id), event.kind, &event);
        }
        self.position = upto;
        Ok(chunk)
    }

    /// Keeps the stream alive, and tells how far it has come.
    fn still_here(&self) -> Bytes {
        let mut chunk = Chunk::comment_line("nothing new");
        chunk.position(&EventId(self.position));
        chunk.into_bytes()
    }

    fn look_soon(&mut self) {
        if self.begin.ends_with.is_some() {
            self.look_at = Some(Instant::now() + LOOK_AFTER);
        }
    }

    async fn look(&mut self) {
        self.look_at = None;
        let Some(id) = &self.begin.ends_with else { return };
        let found = self.service.engine.sandbox(&self.begin.filter.account, id).status().await;
        if matches!(found, Err(EngineError::NotFound { .. })) {
            self.stage = Stage::Last;
        }
    }

    fn end_with(&mut self, error: &ApiError) -> Bytes {
        self.stage = Stage::Over;
        let mut chunk = Chunk::default();
        chunk.error(None, error, &self.begin.request_id);
        chunk.into_bytes()
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

fn stopping() -> ApiError {
    let message = "the daemon is stopping; come back with Last-Event-ID, and nothing is missed";
    ApiError::new(ErrorCode::ResourceExhausted, message).with_detail("retryAfter", STOPPING_RETRY_S)
}

fn revoked() -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, "the API key was revoked")
}
