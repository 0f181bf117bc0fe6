//! Streams of events: stored events after an id, then new ones.
//!
//! hyper requests the next chunk when the last one is on its way, and only then a page is read from the store, so a slow client
//! costs no memory. The store wakes a waiting stream when events of its topic become readable. Every message has its event's id, so
//! that a client that reconnects with the last id misses no event and gets none twice. The first message and the keep-alive
//! messages have the current position.

use std::sync::Arc;
use std::time::Duration;

use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{ErrorCode, EventId, SandboxId};
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use bytes::Bytes;
use engine::{EngineError, SandboxError};
use service::Service;
use service::error::key_ended;
use store::{EventFilter, Topic};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{read, view};
use crate::sse::{self, Chunk, KEEP_ALIVE};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Events per chunk.
const PAGE: u32 = 64;
/// Delay between a wake and the check whether the sandbox still exists. By then the events of its end are in the store.
const CHECK_AFTER: Duration = Duration::from_millis(200);

/// The parameters of a stream.
pub struct StreamStart {
    pub filter: EventFilter,
    pub topic: Topic,
    /// The stream ends with this sandbox.
    pub ends_with: Option<SandboxId>,
    /// Starts after this event; `None`: with the next event.
    pub from: Option<EventId>,
    pub key_id: Arc<str>,
    pub request_id: RequestId,
}

/// The id in the header `Last-Event-ID`, if any. Clients that have received no event may send an empty one.
pub fn last_seen(headers: &HeaderMap) -> Result<Option<EventId>, ApiError> {
    let mut values = read::values(headers, LAST_EVENT_ID);
    let Some(value) = values.next() else { return Ok(None) };
    let is_repeated = values.next().is_some();
    if value.is_empty() && !is_repeated {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(value);
    match text.parse() {
        Ok(id) if !is_repeated => Ok(Some(id)),
        _ => {
            let message = format!(
                "header Last-Event-ID is {}; allowed: one event id, such as 'ev_0000000000000042'",
                rules::quoted(&text)
            );
            Err(ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", "Last-Event-ID"))
        }
    }
}

/// The response with the stream.
pub async fn response(service: Arc<Service>, start: StreamStart) -> Result<Response, ApiError> {
    // Subscribed before the position is read, so that no event in between is missed.
    let changes = service.store.follow(start.topic.clone());
    let position = match start.from {
        Some(id) => id.0,
        None => service.store.last_event().await?,
    };
    let following = EventStream { service, start, changes, position, stage: Stage::First, check_at: None };
    Ok(sse::response(following))
}

struct EventStream {
    service: Arc<Service>,
    start: StreamStart,
    changes: watch::Receiver<u64>,
    /// All matching events up to this id are sent.
    position: u64,
    stage: Stage,
    /// When to check whether the sandbox still exists.
    check_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Following,
    /// The sandbox is terminated: sends the remaining events, then ends.
    Last,
    Ended,
}

impl sse::Source for EventStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.stage == Stage::First {
            self.stage = Stage::Following;
            self.schedule_check();
            return Some(Chunk::opening(&EventId(self.position)).into_bytes());
        }
        loop {
            if self.stage == Stage::Ended {
                return None;
            }
            if !self.service.gate.keyring.has(&self.start.key_id) {
                return Some(self.end_with(&key_ended()));
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
                // The store is closed, as the last part of the daemon.
                changed = self.changes.changed() => match changed {
                    Ok(()) => self.schedule_check(),
                    Err(_) => return Some(self.end_with(&stopping())),
                },
                () = at(self.check_at) => self.check_sandbox().await,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    self.schedule_check();
                    return Some(self.keep_alive());
                }
            }
        }
    }
}

impl EventStream {
    /// The next events; advances the position.
    async fn page(&mut self) -> Result<Chunk, ApiError> {
        let (found, upto) = self.service.store.events_after(&self.start.filter, self.position, PAGE).await?;
        let mut chunk = Chunk::default();
        for event in found {
            let event = view::event(event)?;
            chunk.json(Some(&event.id), event.kind, &event);
        }
        self.position = upto;
        Ok(chunk)
    }

    /// A keep-alive message with the position.
    fn keep_alive(&self) -> Bytes {
        let mut chunk = Chunk::comment_line("nothing new");
        chunk.position(&EventId(self.position));
        chunk.into_bytes()
    }

    fn schedule_check(&mut self) {
        if self.start.ends_with.is_some() {
            self.check_at = Some(Instant::now() + CHECK_AFTER);
        }
    }

    async fn check_sandbox(&mut self) {
        self.check_at = None;
        let Some(id) = &self.start.ends_with else { return };
        let found = self.service.engine.sandbox(&self.start.filter.account, id).status().await;
        if matches!(found, Err(EngineError::Sandbox(SandboxError::NotFound { .. }))) {
            self.stage = Stage::Last;
        }
    }

    fn end_with(&mut self, error: &ApiError) -> Bytes {
        self.stage = Stage::Ended;
        let mut chunk = Chunk::default();
        chunk.error(None, error, &self.start.request_id);
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
    ApiError::stopping("the daemon is stopping; reconnect with Last-Event-ID to continue without loss")
}
