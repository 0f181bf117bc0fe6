//! `POST /v1/sandboxes`: creates a sandbox, once per idempotency key.
//!
//! The idempotency record is committed together with the sandbox's record, so that a crash cannot separate them. An image that is
//! not on this host is pulled; if that takes too long, the create gets 503 and the pull continues.

use std::sync::Arc;

use admission::endpoint::{CREATE, Content, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use admission::record::CreatedSandboxes;
use api::{CreateBody, ErrorCode, SandboxId, SandboxView, SnapshotId};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use builder::Template;
use http_body_util::BodyExt;
use reader::RequestBody;
use serde::Deserialize;
use serde_json::json;
use service::Service;
use service::error::{OperationKind, of_engine};
use service::idempotency::{self, RecordHeader, ReplayableResponse};
use service::images::{self, PullWait, find_image};
use store::SandboxRecord;

use super::{read, snapshots, templates, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes", CREATE)
        .describe(
            "createSandbox",
            Tag::Sandboxes,
            "Create a sandbox",
            "Creates a sandbox and responds when it runs. All fields except `image` have defaults. If the \
             image is not on the service's host, the service pulls it; if the pull takes longer than 25 s, the \
             response is `503` with `Retry-After` and the pull continues.",
        )
        .parameters([Parameter::IDEMPOTENCY_KEY.describe(
            "A key of your choice. For 24 hours, a request with the same key and body gets the \
         same response and is not executed again. The same key with another body is \
         `INVALID_REQUEST`.",
        )])
        .json_body::<CreateBody>(
            1 << 20,
            Content::json::<CreateBody>().example(json!({
                "env": {"NODE_ENV": "production"},
                "image": "ubuntu:24.04",
                "metadata": {"userId": "user_123"},
                "network": {"egress": {"allow": ["example.com"], "default": "deny"}},
                "resources": {"cpu": 2, "diskMb": 10240, "memoryMb": 4096},
                "timeoutMs": 300000,
            })),
            "Only `image` is required. A repeated or `null` field is \
                     an error.",
        )
        .returns::<SandboxView>(StatusCode::CREATED, "The sandbox is running.")
        .header("Location", "Path of the sandbox.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed, or the image is unknown"),
            (ErrorCode::SnapshotNotFound, "`image` is the id of a snapshot that does not exist"),
            (ErrorCode::TemplateNotFound, "`image` is the id of a template that does not exist"),
            (ErrorCode::ExecutionError, "The start command of the template did not become ready"),
            (ErrorCode::InvalidState, "Another sandbox of the account has the name"),
            (ErrorCode::IsolationMismatch, "This host cannot continue the processes of the snapshot"),
        ])
        .handler(create)
}

async fn create(call: Call<Caller, JsonBody<CreateBody>>) -> Result<Json<SandboxView>, ApiError> {
    let Call { service, caller, path, parts, body, .. } = call;
    let key = idempotency::key_of(&parts.headers)?;
    let body = read::unreported_body(&service, &caller, &parts.headers, body).await?;
    let (shared, account, received) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |header| async move { create_sandbox(&shared, &account, received, header).await };
    let endpoint = format!("{} {path}", parts.method);
    let bytes = body.bytes.clone();
    // Only a body whose response is replayed is still needed here.
    let unread = key.is_some().then_some(body);
    let response = service.idempotency.run(&caller, &endpoint, key, bytes, work).await;
    // Also of a replayed error.
    if let Some(body) = unread {
        body.report_ignored();
    }
    with_location(response?).await.map(Json::written)
}

/// What a create begins with.
enum CreateOrigin {
    Template(Arc<Template>),
    Snapshot(SnapshotId),
    Image,
}

impl CreateOrigin {
    /// What an account names as the image of a create.
    fn named(service: &Service, account: &str, image: &str) -> Result<Self, ApiError> {
        if let Some(template) = templates::named(service, account, image)? {
            return Ok(Self::Template(template));
        }
        Ok(snapshots::named(service, account, image)?.map_or(Self::Image, Self::Snapshot))
    }
}

async fn create_sandbox(
    service: &Service,
    account: &str,
    body: Received<CreateBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let content = body.parse()?;
    let origin = CreateOrigin::named(service, account, &content.image)?;
    let (config, template) = match &origin {
        CreateOrigin::Template(template) => templates::create_from(service, account, content, template)?,
        CreateOrigin::Snapshot(snapshot) => {
            snapshots::create_from(service, account, content, snapshot).await?
        }
        CreateOrigin::Image => {
            let config = CreateBody::check(content, &service.create_rules(account))?;
            let wait = PullWait::of_request(service.pull_timeout);
            let image = find_image(service, account, &config.image, wait).await?;
            (config, images::template(&image))
        }
    };
    // Its memory also counts for the content, which has no bounds before it is checked.
    drop(body);
    // The start command of a template runs after the create, which fails if that does. So the response is recorded later.
    let starts = match origin {
        CreateOrigin::Template(built)
            if built.content.start.is_some() && template.processes_from.is_none() =>
        {
            Some(built)
        }
        _ => None,
    };
    let to_response = match header {
        Some(_) if starts.is_none() => ReplayableResponse::committed,
        _ => ReplayableResponse::new,
    };
    let pending = header.filter(|_| starts.is_none()).map(|header| {
        header.into_pending(|record: &SandboxRecord| {
            // Serializing a view cannot fail: it is text and numbers.
            let content = serialize(&view::sandbox(record)).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let created = service.engine.create(account, config, template, pending).await;
    let status = created.map_err(|error| of_engine(error, None, OperationKind::Other))?;
    if let Some(built) = starts {
        templates::run_start(service, &built, &status.record.id).await?;
    }
    let response = to_response(StatusCode::CREATED, serialize(&view::sandbox(&status.record))?);
    Ok(response.at(&location_of(&status.record.id)).of_sandboxes([status.record.id.clone()]))
}

fn location_of(id: &SandboxId) -> String {
    format!("/v1/sandboxes/{id}")
}

/// Sets `Location`, and the sandbox for the log, of a response that an earlier request has recorded: the record has only its body.
async fn with_location(response: Response) -> Result<Response, ApiError> {
    if response.status() != StatusCode::CREATED || response.headers().contains_key(header::LOCATION) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let content = body.collect().await.map_err(ApiError::internal)?.to_bytes();
    let created: CreatedSandbox = serde_json::from_slice(&content).map_err(ApiError::internal)?;
    let location = HeaderValue::try_from(location_of(&created.id)).map_err(ApiError::internal)?;
    parts.headers.insert(header::LOCATION, location);
    parts.extensions.insert(CreatedSandboxes(vec![created.id]));
    Ok(Response::from_parts(parts, content.into()))
}

#[derive(Deserialize)]
struct CreatedSandbox {
    id: SandboxId,
}
