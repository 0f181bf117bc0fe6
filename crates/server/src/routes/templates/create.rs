//! `POST /v1/templates`: accepts the build of a template, once per idempotency key.

use std::sync::Arc;

use api::{BuildContextId, ErrorCode, TemplateBody, TemplateView};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use builder::{NewTemplate, Start, StoredContext, Template};
use rules::{DockerfileSource, TemplateRequest};
use serde_json::json;

use super::{bases, upload, view};
use crate::endpoint::{CREATE, Call, Content, Endpoint, Json, JsonBody, Parameter, Received, Tag, serialize};
use crate::error::{ApiError, of_builder};
use crate::idempotency::{self, RecordHeader, ReplayableResponse};
use crate::keyring::Caller;
use crate::routes::read;
use crate::service::Service;

/// A context in base64 is held in memory.
const MOST: usize = 16 << 20;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/templates", CREATE)
        .describe(
            "createTemplate",
            Tag::Templates,
            "Build a template",
            "Accepts a build and responds at once; the build runs in the background. Its steps run in sandboxes \
             with the quotas of the account and the network policy of the request. Steps that an earlier build of \
             the account has carried out with the same files are not repeated. When the template is ready, its name \
             can be the `image` of a create.",
        )
        .parameters([Parameter::IDEMPOTENCY_KEY])
        .json_body::<TemplateBody>(
            MOST,
            Content::json::<TemplateBody>().example(json!({
                "name": "web",
                "dockerfile": "FROM ubuntu:24.04\nRUN echo hello > /greeting\n",
            })),
            "Unknown fields are ignored; a repeated or `null` field is an error.",
        )
        .returns::<TemplateView>(StatusCode::CREATED, "The build is accepted.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (
                ErrorCode::InvalidConfig,
                "A value is not allowed, or the Dockerfile has an instruction that is not supported",
            ),
        ])
        .handler(create)
}

async fn create(call: Call<Caller, JsonBody<TemplateBody>>) -> Result<Json<TemplateView>, ApiError> {
    let Call { service, caller, path, parts, body, .. } = call;
    let key = idempotency::key_of(&parts.headers)?;
    let body = read::json_body(&service, &caller, &parts.headers, body).await?;
    let (shared, account, received) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |header| async move { carry_out(&shared, &account, &received, header).await };
    let endpoint = format!("{} {path}", parts.method);
    service.idempotency.run(&caller, &endpoint, key, body.bytes, work).await.map(Json::written)
}

async fn carry_out(
    service: &Arc<Service>,
    account: &str,
    body: &Received<TemplateBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let request = body.read(&service.create_rules(account))?;
    let new = new_template(service, account, request).await?;
    let to_response = if header.is_some() { ReplayableResponse::committed } else { ReplayableResponse::new };
    let pending = header.map(|header| {
        header.into_pending(|template: &Template| {
            // Serializing a view cannot fail: it is text and numbers.
            let content = serialize(&view::template(template)).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let accepted = service.builder.create(account, new, &bases(service), pending).await;
    let template = accepted.map_err(of_builder)?;
    Ok(to_response(StatusCode::CREATED, serialize(&view::template(&template))?))
}

async fn new_template(
    service: &Service,
    account: &str,
    request: TemplateRequest,
) -> Result<NewTemplate, ApiError> {
    let TemplateRequest { name, dockerfile, context, args, start, mut config, isolation, no_cache, metadata } =
        request;
    let context = match context {
        Some(context) => Some(stored_context(service, account, &context).await?),
        None => None,
    };
    let dockerfile = match (dockerfile, &context) {
        (DockerfileSource::Text(text), _) => text,
        (DockerfileSource::Path(path), Some(context)) => {
            context.text(path, dockerfile::MAX_BYTES as u64).await.map_err(of_builder)?
        }
        // The rules accept a path only with a context.
        (DockerfileSource::Path(_), None) => String::new(),
    };
    let base = dockerfile::parse(&dockerfile).and_then(|file| file.base(&args));
    let base = base.map_err(|error| of_builder(error.into()))?.name;
    let isolation = service.create_rules(account).isolation.choose(isolation, &base);
    config.isolation = isolation.map_err(reader::Refusal::from)?;
    let start = start.map(|start| Start {
        command: start.command,
        ready: start.ready,
        timeout_ms: start.timeout_ms,
        settles_ms: None,
    });
    let (id, tags) = (None, Vec::new());
    Ok(NewTemplate { id, name, tags, dockerfile, args, start, config, no_cache, metadata, context })
}

/// An uploaded context by its id, or one in base64.
async fn stored_context(service: &Service, account: &str, text: &str) -> Result<StoredContext, ApiError> {
    if text.starts_with(BuildContextId::PREFIX) {
        let refused = |message: String| {
            ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "context")
        };
        let id = text.parse().map_err(|error: api::BadBuildContextId| refused(error.to_string()))?;
        return service.builder.context(account, &id).map_err(of_builder);
    }
    let content = STANDARD.decode(text).map_err(|error| {
        let message = format!("context is neither an id 'ctx_…' nor base64: {error}");
        ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "context")
    })?;
    upload::store(&service.builder, content).await
}
