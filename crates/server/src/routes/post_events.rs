//! `POST /v1/sandboxes/{id}/events`: what a client has to say of its run, kept among the events of the sandbox.
//!
//! All of a request are kept in one commit, and under an idempotency key the answer with them: a daemon that dies at any instant
//! has kept both or neither, so that a second try doubles nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{ErrorCode, EventBody, EventsBody, EventsRecorded, SandboxId};
use axum::http::StatusCode;
use rules::TimeMs;
use serde_json::Value;
use serde_json::json;
use store::{Batch, NewEvent, Write};

use super::named::Named;
use super::view;
use crate::endpoint::{Call, Content, Endpoint, Json, JsonBody, Parameter, Tag, WRITE};
use crate::error::{ApiError, During};
use crate::keyring::Caller;
use crate::once::{self, Answer};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/events", WRITE)
        .describe(
            "postEvents",
            Tag::Events,
            "Post events of a run",
            "Stores events of an agent and of its model costs: one, or an array of up to 100, \
             which is stored completely or not at all. They appear in lists and streams with the \
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
                "type": "agent.tool_call",
            })),
            "Unknown fields are ignored; a repeated or `null` field is an error.",
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
    let Call { service, caller, parts, body, .. } = call;
    let named = Named::find(&service, &caller, &parts, "events", During::Other).await?;
    service.engine.sandbox(&caller.account, &named.id).touch();
    let key = named.key()?;
    let body = named.body(body).await?;
    let (id, endpoint) = (named.id, named.endpoint);
    let (shared, account, asked) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |claim: Option<once::Claim>| async move {
        let events = asked.read(&())?;
        let recorded = EventsRecorded { recorded: u32::try_from(events.len()).unwrap_or(u32::MAX) };
        let content = view::json(&recorded)?;
        let mut batch = Batch::new();
        for event in events {
            batch = batch.event(kept(event, &account, &id));
        }
        if let Some(most_bytes) = shared.engine.quotas().of(&account).stored.posted_event_bytes {
            batch = batch.with(Write::KeepPosted { account: account.to_string(), most_bytes });
        }
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
    service.once.run(&caller, &endpoint, key, body.bytes, work).await.map(Json::written)
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
