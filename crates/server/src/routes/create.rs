//! `POST /v1/sandboxes`: creates a sandbox, once per idempotency key.
//!
//! The idempotency record is committed together with the sandbox's record, so that a crash cannot separate them. An image that is
//! not on this host is pulled; if that takes too long, the create gets 503 and the pull continues.

use std::sync::Arc;
use std::time::Duration;

use api::{CreateBody, ErrorCode, SandboxView};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use engine::Template;
use http_body_util::BodyExt;
use image::{ImageError, Source};
use serde::Deserialize;
use serde_json::json;
use store::SandboxRecord;

use super::{read, snapshots, view};
use crate::app;
use crate::endpoint::{CREATE, Call, Content, Endpoint, Json, JsonBody, Parameter, Received, Tag, serialize};
use crate::error::{ApiError, OperationKind, of_engine};
use crate::idempotency::{self, RecordHeader, ReplayableResponse};
use crate::keyring::Caller;
use crate::service::Service;

const PULL_RETRY_S: u64 = 10;

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
            "Only `image` is required. Unknown fields are ignored; a repeated or `null` field is \
                     an error.",
        )
        .returns::<SandboxView>(StatusCode::CREATED, "The sandbox is running.")
        .header("Location", "Path of the sandbox.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed, or the image is unknown"),
            (ErrorCode::SnapshotNotFound, "`image` is the id of a snapshot that does not exist"),
            (ErrorCode::IsolationMismatch, "This host cannot continue the processes of the snapshot"),
        ])
        .handler(create)
}

async fn create(call: Call<Caller, JsonBody<CreateBody>>) -> Result<Json<SandboxView>, ApiError> {
    let Call { service, caller, path, parts, body, .. } = call;
    let key = idempotency::key_of(&parts.headers)?;
    let body = read::json_body(&service, &caller, &parts.headers, body).await?;
    let (shared, account, received) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |header| async move { create_sandbox(&shared, &account, received, header).await };
    let endpoint = format!("{} {path}", parts.method);
    let response = service.idempotency.run(&caller, &endpoint, key, body.bytes, work).await?;
    with_location(response).await.map(Json::written)
}

async fn create_sandbox(
    service: &Service,
    account: &str,
    body: Received<CreateBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let (config, template) = match snapshots::named_in(&body.bytes) {
        Some(snapshot) => snapshots::create_from(service, account, &body, &snapshot?)?,
        None => {
            let config = body.read(&service.create_rules(account))?;
            let template = find_image(service, &config.image, service.pull_timeout).await?;
            (config, template)
        }
    };
    drop(body);
    let to_response = match header {
        Some(_) => ReplayableResponse::committed,
        None => ReplayableResponse::new,
    };
    let pending = header.map(|header| {
        header.into_pending(|record: &SandboxRecord| {
            // Serializing a view cannot fail: it is text and numbers.
            let content = serialize(&view::sandbox(record)).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let created = service.engine.create(account, config, template, pending).await;
    let status = created.map_err(|error| of_engine(error, None, OperationKind::Other))?;
    Ok(to_response(StatusCode::CREATED, serialize(&view::sandbox(&status.record))?))
}

/// An image of this host, or one that is pulled within `wait`.
pub async fn find_image(service: &Service, name: &str, wait: Duration) -> Result<Template, ApiError> {
    if let Some(image) = service.images.get(name) {
        return Ok(app::template(&image));
    }
    let pull = pull(service, name);
    match tokio::time::timeout(wait, pull).await {
        Ok(image) => {
            let image = image?;
            Ok(app::template(&image))
        }
        Err(_) => {
            let message = format!("image {} is being pulled; try again later", rules::quoted(name));
            Err(ApiError::new(ErrorCode::ResourceExhausted, message)
                .with_detail("field", "image")
                .retry_after(PULL_RETRY_S))
        }
    }
}

async fn pull(service: &Service, name: &str) -> Result<Arc<image::Image>, ImageError> {
    match service.images.ensure(name, Arc::new(|_| {})).await {
        Err(ImageError::UnknownName { .. }) if service.allow_any_image => match name.parse() {
            Ok(source @ Source::Registry { .. }) => {
                service.images.import(name, source, Arc::new(|_| {})).await
            }
            // Clients may name images of registries, never files of this host.
            Ok(_) => Err(ImageError::BadName {
                name: name.to_owned(),
                reason:
                    "use a name in the catalogue or a registry reference such as 'docker.io/library/debian:12'"
                        .to_owned(),
            }),
            Err(error) => Err(error),
        },
        image => image,
    }
}

/// Sets `Location` from the body, so that a replayed response has it too.
async fn with_location(response: Response) -> Result<Response, ApiError> {
    if response.status() != StatusCode::CREATED {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let content = body.collect().await.map_err(ApiError::internal)?.to_bytes();
    let created: CreatedSandbox = serde_json::from_slice(&content).map_err(ApiError::internal)?;
    let location =
        HeaderValue::try_from(format!("/v1/sandboxes/{}", created.id)).map_err(ApiError::internal)?;
    parts.headers.insert(header::LOCATION, location);
    Ok(Response::from_parts(parts, content.into()))
}

#[derive(Deserialize)]
struct CreatedSandbox {
    id: api::SandboxId,
}
