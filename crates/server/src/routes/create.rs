//! `POST /v1/sandboxes`: makes a sandbox, once for each idempotency key.
//!
//! The answer under a key is committed together with the sandbox's record, so that no death of the daemon lies between. An
//! image that is not on this host is fetched; who does not want to wait so long is told to come back, and the fetch goes on.

use std::sync::Arc;

use api::{CreateBody, ErrorCode, SandboxView};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use engine::Template;
use http_body_util::BodyExt;
use image::{ImageError, Source};
use serde::Deserialize;
use serde_json::json;

use super::{read, view};
use crate::app;
use crate::endpoint::{CREATE, Call, Content, Endpoint, Json, JsonBody, Parameter, Received, Tag};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::once::{self, Answer, Claim};
use crate::service::Service;

const ENDPOINT: &str = "POST /v1/sandboxes";
const FETCHING_RETRY_S: u64 = 10;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes", CREATE)
        .describe(
            "createSandbox",
            Tag::Sandboxes,
            "Create a sandbox",
            "Responds when the sandbox runs. Every field but `image` has a default. The server \
         pulls an image that it does not have; if the pull takes too long, the response is \
         `503` with `Retry-After` and the pull continues.",
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
            (ErrorCode::InvalidConfig, "A value is out of its range or set, or the image is unknown"),
        ])
        .handler(create)
}

async fn create(call: Call<Caller, JsonBody<CreateBody>>) -> Result<Json<SandboxView>, ApiError> {
    let Call { service, caller, parts, body, .. } = call;
    let key = once::key_of(&parts.headers)?;
    let body = read::json_body(&service, &caller, &parts.headers, body).await?;
    let (shared, account, asked) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |claim| async move { make(&shared, &account, asked, claim).await };
    let response = service.once.run(&caller, ENDPOINT, key, body.bytes, work).await?;
    with_location(response).await.map(Json::written)
}

async fn make(
    service: &Service,
    account: &str,
    body: Received<CreateBody>,
    claim: Option<Claim>,
) -> Result<Answer, ApiError> {
    let config = body.read(&service.config_rules)?;
    drop(body);
    let template = find_image(service, &config.image).await?;
    let answer = match claim {
        Some(_) => Answer::committed,
        None => Answer::new,
    };
    let remember = claim.map(|claim| {
        claim.remember(|record| {
            // A view is text and numbers: it has a JSON. Were there none, an empty answer would be kept, and read as broken.
            let content = view::json(&view::sandbox(record)).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let made = service.engine.create(account, config, template, remember).await;
    let status = made.map_err(|error| of_engine(error, None, During::Other))?;
    Ok(answer(StatusCode::CREATED, view::json(&view::sandbox(&status.record))?))
}

async fn find_image(service: &Service, name: &str) -> Result<Template, ApiError> {
    if let Some(image) = service.images.get(name) {
        return Ok(app::template(&image));
    }
    let fetching = fetch(service, name);
    match tokio::time::timeout(service.pull_patience, fetching).await {
        Ok(image) => {
            let image = image?;
            Ok(app::template(&image))
        }
        Err(_) => {
            let message = format!("image {} is being fetched and is not here yet", rules::shown(name));
            Err(ApiError::new(ErrorCode::ResourceExhausted, message)
                .with_detail("field", "image")
                .retry_after(FETCHING_RETRY_S))
        }
    }
}

async fn fetch(service: &Service, name: &str) -> Result<Arc<image::Image>, ImageError> {
    match service.images.ensure(name, Arc::new(|_| {})).await {
        Err(ImageError::UnknownName { .. }) if service.allow_any_image => match name.parse() {
            Ok(source @ Source::Registry { .. }) => {
                service.images.import(name, source, Arc::new(|_| {})).await
            }
            // A client names images of registries and never files of this host.
            Ok(_) => Err(ImageError::BadName {
                name: name.to_owned(),
                reason:
                    "allowed are names of the catalogue and references such as 'docker.io/library/debian:12'"
                        .to_owned(),
            }),
            Err(error) => Err(error),
        },
        image => image,
    }
}

/// `Location` names the sandbox that the body shows, on a replayed answer too.
async fn with_location(response: Response) -> Result<Response, ApiError> {
    if response.status() != StatusCode::CREATED {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let content = body.collect().await.map_err(ApiError::internal)?.to_bytes();
    let made: Made = serde_json::from_slice(&content).map_err(ApiError::internal)?;
    let location = HeaderValue::try_from(format!("/v1/sandboxes/{}", made.id)).map_err(ApiError::internal)?;
    parts.headers.insert(header::LOCATION, location);
    Ok(Response::from_parts(parts, content.into()))
}

#[derive(Deserialize)]
struct Made {
    id: api::SandboxId,
}
