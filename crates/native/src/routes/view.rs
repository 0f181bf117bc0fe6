//! Converts records of the engine and the store to types of the API.

use admission::endpoint::serialize;
use admission::error::ApiError;
use api::{EventId, EventKind, RuntimeEvent, SandboxItem, SandboxView, Times, Timestamp, UnknownEventKind};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use rules::TimeMs;
use serde::Serialize;
use serde_json::Value;
use store::{Event, SandboxRecord, SandboxSummary};

/// A sandbox for create and get.
pub fn sandbox(record: &SandboxRecord) -> SandboxView {
    let lifecycle = &record.lifecycle;
    let end = lifecycle.end().map(|(at, _)| at);
    let times = times(record.created_at, lifecycle.started_at(), lifecycle.paused_at(), end);
    let times = Times {
        expires: record.expires_at().map(Timestamp::from),
        hibernated: lifecycle.hibernated_at().map(Timestamp::from),
        ..times
    };
    SandboxView::new(record.id.clone(), record.state(), record.config.clone(), times)
}

/// A sandbox for lists.
pub fn item(summary: SandboxSummary) -> SandboxItem {
    let times = times(summary.created_at, summary.started_at, summary.paused_at, summary.terminated_at);
    SandboxItem::new(summary.id, summary.state, summary.image, summary.resources, times)
}

fn times(
    created: TimeMs,
    started: Option<TimeMs>,
    paused: Option<TimeMs>,
    terminated: Option<TimeMs>,
) -> Times {
    let timestamp = |at: Option<TimeMs>| at.map(Timestamp::from);
    Times {
        created: created.into(),
        started: timestamp(started),
        paused: timestamp(paused),
        hibernated: None,
        terminated: timestamp(terminated),
        expires: None,
    }
}

/// A newer daemon stored the event.
#[derive(Debug, thiserror::Error)]
#[error("cannot show an event of the kind {kind:?}")]
struct EventOfUnknownKind {
    kind: String,
    source: UnknownEventKind,
}

/// An event for lists and streams.
pub fn event(event: Event) -> Result<RuntimeEvent, ApiError> {
    let kind = event.kind.parse::<EventKind>();
    let kind =
        kind.map_err(|source| ApiError::internal(EventOfUnknownKind { kind: event.kind.clone(), source }))?;
    let data = match event.data {
        Value::Object(data) => data,
        other => return Err(ApiError::internal(format!("an event with the data {other}"))),
    };
    Ok(RuntimeEvent {
        id: EventId(event.sequence),
        timestamp: event.at.into(),
        kind,
        sandbox_id: Some(event.sandbox),
        run_id: event.run,
        data,
    })
}

/// `200 OK` with a body.
pub fn ok(body: &impl Serialize) -> Result<Response, ApiError> {
    Ok(typed("application/json; charset=utf-8", serialize(body)?))
}

/// `200 OK` with content of any type.
pub fn typed(kind: &'static str, content: Bytes) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], content).into_response()
}
