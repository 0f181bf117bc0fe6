//! `POST /v1/sandboxes/{id}/fork`: creates sandboxes above a copy of the disk of a sandbox, once per idempotency key.

use admission::endpoint::{CREATE, Content, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, ForkBody, ForkList};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::{RecordHeader, ReplayableResponse};
use store::SandboxRecord;

use crate::endpoint::{Call, Endpoint};
use crate::routes::requested_sandbox::RequestedSandbox;
use crate::routes::sandbox_request::SandboxRequest;
use crate::routes::view;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/fork", CREATE)
        .describe(
            "forkSandbox",
            Tag::Snapshots,
            "Fork a sandbox",
            "Creates sandboxes with the configuration of a running or paused sandbox and a copy of its \
             disk: all of them, or none. They run new processes, or with `memory` continue copies of the \
             processes; exposed ports are not copied. The sandbox stands still no longer than for a snapshot.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::IDEMPOTENCY_KEY])
        .json_body::<ForkBody>(
            1 << 20,
            Content::json::<ForkBody>().example(json!({"count": 3, "env": {"ATTEMPT": "2"}})),
            "A repeated or `null` field is an error.",
        )
        .returns::<ForkList>(StatusCode::CREATED, "All new sandboxes are running.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (
                ErrorCode::InvalidState,
                "The sandbox is neither `running` nor `paused`, or another sandbox has the name",
            ),
            (ErrorCode::IsolationMismatch, "The processes of the sandbox cannot be stored"),
        ])
        .handler(fork)
}

async fn fork(call: Call<Caller, JsonBody<ForkBody>>) -> Result<Json<ForkList>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let key = request.key()?;
    let body = request.body(body).await?;
    request.once(key, body, carry_out).await.map(Json::written)
}

async fn carry_out(
    sandbox: RequestedSandbox,
    body: Received<ForkBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let request = body.read(&sandbox.service.create_rules(&sandbox.account))?;
    let to_response = if header.is_some() { ReplayableResponse::committed } else { ReplayableResponse::new };
    let pending = header.map(|header| {
        header.into_pending(|records: &Vec<SandboxRecord>| {
            // Serializing a view cannot fail: it is text and numbers.
            let content = serialize(&listed(records.iter())).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let forked = sandbox.handle().fork(request, pending).await;
    let statuses = forked.map_err(|error| sandbox.fault(error))?;
    let list = listed(statuses.iter().map(|status| &*status.record));
    let ids = statuses.iter().map(|status| status.record.id.clone());
    Ok(to_response(StatusCode::CREATED, serialize(&list)?).of_sandboxes(ids))
}

fn listed<'a>(records: impl Iterator<Item = &'a SandboxRecord>) -> ForkList {
    ForkList { data: records.map(view::sandbox).collect() }
}
