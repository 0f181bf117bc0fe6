//! Events as Server-Sent Events, from an event on and then as they happen.
//!
//! hyper asks for the next chunk when the last is on its way, and only then the next page is read from the store: a reader
//! that is slow, or stands still, costs no memory. Who waits is woken by the store when one of its topic's events can be read.
//! Every message has its event's id, so that a reader that comes back with the last one misses none and gets none twice; the
//! first message, and each that keeps the stream alive, tells how far the reader has come although nothing happened.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::{ErrorCode, ErrorObject, EventId, SandboxId};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::EngineError;
use futures_util::stream;
use store::{EventFilter, Topic};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{read, view};
use crate::error::ApiError;
use crate::request_id::RequestId;
use crate::service::Service;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Events of one chunk.
const PAGE: u32 = 64;
/// Proxies drop connections on which nothing happens for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// After a wake: whether the sandbox is still there. What its end brings about is noted by then.
const LOOK_AFTER: Duration = Duration::from_millis(200);
/// What clients that come back by themselves wait before.
const RETRY_MS: u64 = 1000;
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
    let chunks = stream::unfold(following, |mut following| async move {
        let chunk = following.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), following))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Asks nginx and its like to pass lines on as they come.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
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

impl Following {
    /// Whole messages; nothing after the last.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.stage == Stage::First {
            self.stage = Stage::Following;
            self.look_soon();
            return Some(format!("retry: {RETRY_MS}\n{}", self.place()).into());
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
                Ok(chunk) if !chunk.is_empty() => return Some(chunk.into()),
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
                    return Some(format!(": nothing new\n{}", self.place()).into());
                }
            }
        }
    }

    /// The next events, and how far they reach.
    async fn page(&mut self) -> Result<String, ApiError> {
        let (found, upto) = self.service.store.events_after(&self.begin.filter, self.position, PAGE).await?;
        let mut chunk = String::new();
        for event in found {
            let event = view::event(event)?;
            let data = serde_json::to_string(&event).map_err(ApiError::internal)?;
            chunk += &format!("id: {}\nevent: {}\ndata: {data}\n\n", event.id, event.kind);
        }
        self.position = upto;
        Ok(chunk)
    }

    /// A message without data: a client remembers its id and shows nothing.
    fn place(&self) -> String {
        format!("id: {}\n\n", EventId(self.position))
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
        let request_id = self.begin.request_id.0.to_string();
        if let Some(cause) = &error.cause {
            tracing::error!(request_id, cause, "a stream of events failed");
        }
        let object = ErrorObject {
            code: error.code,
            message: error.message.clone(),
            details: error.details.clone(),
            request_id,
        };
        format!("event: error\ndata: {}\n\n", serde_json::to_string(&object).unwrap_or_default()).into()
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
