//! `POST /v1/sandboxes/{id}/events`: stores events that a client posts for its run.
//!
//! The events of a request and its idempotency record are one commit, so that a retry after a crash stores no event twice.

use admission::endpoint::{CHANGE, Content, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use admission::wall_clock::now;
use api::{ErrorCode, EventBody, EventKind, EventsBody, EventsRecorded, SandboxId};
use axum::http::StatusCode;
use rules::TimeMs;
use serde_json::Value;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::{RecordHeader, ReplayableResponse};
use store::{Batch, NewEvent, Write};

use super::requested_sandbox::RequestedSandbox;
use super::sandbox_request::SandboxRequest;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/events", CHANGE)
        .describe(
            "postEvents",
            Tag::Events,
            "Post events of a sandbox",
            "Stores one event, or an array of up to 100, which is stored completely or not at all. \
             Types: `agent.*` and `cost.llm`. The events appear in lists and streams with the \
             events of the sandbox. The request counts as activity; a paused sandbox stays \
             paused.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::IDEMPOTENCY_KEY.describe("Same as for create: a retry stores no event twice."),
        ])
        .json_body::<EventsBody>(
            256 << 10,
            Content::inline_json::<EventsBody>().example(json!({
                "data": {"arguments": {"q": "rust"}, "tool": "search"},
                "runId": "run_7",
                "type": EventKind::AgentToolCall,
            })),
            "A repeated or `null` field is an error.",
        )
        .returns::<EventsRecorded>(StatusCode::CREATED, "The events are stored.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (
                ErrorCode::InvalidConfig,
                "The type cannot be posted, or there are too many events or too much data",
            ),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
        ])
        .handler(post)
}

async fn post(call: Call<Caller, JsonBody<EventsBody>>) -> Result<Json<EventsRecorded>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    request.sandbox.handle().touch();
    let key = request.key()?;
    let body = request.body(body).await?;
    request.once(key, body, record).await.map(Json::written)
}

async fn record(
    RequestedSandbox { service, account, id, .. }: RequestedSandbox,
    body: Received<EventsBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let events = body.read(&())?;
    let recorded = EventsRecorded { recorded: u32::try_from(events.len()).unwrap_or(u32::MAX) };
    let content = serialize(&recorded)?;
    let mut batch = Batch::new();
    for event in events {
        batch = batch.event(new_event(event, &account, &id));
    }
    if let Some(most_bytes) = service.engine.quotas().of(&account).stored.posted_event_bytes {
        batch = batch.with(Write::KeepPosted { account: account.to_string(), most_bytes });
    }
    let to_response = match header {
        Some(header) => {
            batch = batch.idempotency_record(header.into_record(StatusCode::CREATED, content.to_vec()));
            ReplayableResponse::committed
        }
        None => ReplayableResponse::new,
    };
    service.store.commit(batch).await?;
    Ok(to_response(StatusCode::CREATED, content))
}

fn new_event(event: EventBody, account: &str, sandbox: &SandboxId) -> NewEvent {
    NewEvent {
        sandbox: sandbox.clone(),
        account: account.to_owned(),
        run: event.run_id.to_string(),
        at: event.timestamp.map_or_else(now, |at| TimeMs(at.0)),
        kind: event.kind,
        data: Value::Object(event.data),
        once: None,
    }
}
