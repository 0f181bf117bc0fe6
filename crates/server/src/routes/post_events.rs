//! `POST /v1/sandboxes/{id}/events`: what a client has to say of its run, kept among the events of the sandbox.
//!
//! All of a request are kept in one commit, and under an idempotency key the answer with them: a daemon that dies at any instant
//! has kept both or neither, so that a second try doubles nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{EventBody, EventsRecorded, SandboxId};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::{POSTED_KEPT_BYTES, POSTED_MAX, TimeMs};
use serde_json::Value;
use store::{Batch, NewEvent, Write};
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};

use super::named::Named;
use super::view;
use crate::error::{ApiError, During};
use crate::keyring::Caller;
use crate::once::{self, Answer};
use crate::service::Service;

const BODY_MAX: usize = 256 << 10;

/// Post events of a run
///
/// Of an agent and of what its model cost; one, or an array of up to 100 of which all are kept or none. They are listed and
/// streamed with those of the sandbox. It stays paused if it is, and counts as used.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/events", operation_id = "postEvents", tag = "Events",
    params(
        ("id" = SandboxId, Path, description = "Id of the sandbox."),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = r"^[\x21-\x7e]+$",
            description = "As with create: with it, no event is kept twice.", example = "8e03978e-40d5-43dd-bc93-6894a57f9324")
    ),
    request_body(content = inline(OneOrMore), description = "Unknown fields are ignored; one that is given twice, or is `null`, is an error.",
        example = json!({"type": "agent.tool_call", "runId": "run_7", "data": {"tool": "search", "arguments": {"q": "rust"}}})),
    responses(
        (status = 201, description = "They are kept.", body = EventsRecorded,
            headers(("Idempotency-Replayed" = String, description = "`true` on an answer that was given before under the same key."))),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. A type that clients do not post, too many events or too much data: `INVALID_CONFIG`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 413, description = "The body is larger than 256 KiB: `INVALID_REQUEST`.")
    )
)]
pub async fn post(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let named = Named::find(&service, &caller, &parts, "events", During::Other).await?;
    service.engine.sandbox(&caller.account, &named.id).touch();
    let key = named.key()?;
    let body = named.body(body, BODY_MAX).await?;
    let (id, endpoint) = (named.id, named.endpoint);
    let (shared, account, asked) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |claim: Option<once::Claim>| async move {
        let events = reader::posted_events(&asked)?;
        let recorded = EventsRecorded { recorded: u32::try_from(events.len()).unwrap_or(u32::MAX) };
        let content = view::json(&recorded)?;
        let mut batch = Batch::new();
        for event in events {
            batch = batch.event(kept(event, &account, &id));
        }
        let account = account.to_string();
        batch = batch.with(Write::KeepPosted { account, most_bytes: POSTED_KEPT_BYTES });
        let answer = match claim {
            Some(claim) => {
                batch = batch.remember(claim.kept(StatusCode::CREATED, content.to_vec()));
                Answer::committed
            }
            None => Answer::new,
        };
        shared.store.commit(batch).await?;
        Ok(answer(StatusCode::CREATED, content))
    };
    service.once.run(&caller, &endpoint, key, body, work).await
}

fn kept(event: EventBody, account: &str, sandbox: &SandboxId) -> NewEvent {
    NewEvent {
        sandbox: sandbox.clone(),
        account: account.to_owned(),
        run: event.run_id.to_string(),
        at: event.timestamp.map_or_else(now, |at| TimeMs(at.0)),
        kind: event.kind.to_string(),
        data: Value::Object(event.data),
        once: None,
    }
}

fn now() -> TimeMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// How the body may be written.
struct OneOrMore;

impl utoipa::PartialSchema for OneOrMore {
    fn schema() -> RefOr<Schema> {
        let one = || Ref::from_schema_name("EventBody");
        let more = ArrayBuilder::new().items(one()).min_items(Some(1)).max_items(Some(POSTED_MAX));
        OneOfBuilder::new().item(one()).item(more).into()
    }
}

impl utoipa::ToSchema for OneOrMore {}
