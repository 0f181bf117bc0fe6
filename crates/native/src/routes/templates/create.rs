//! `POST /v1/templates`: accepts the build of a template, once per idempotency key.

use std::sync::Arc;

use admission::endpoint::{CREATE, Content, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{BuildContextId, ErrorCode, TemplateBody, TemplateView};
use axum::http::StatusCode;
use builder::{NewTemplate, OtherBuilds, StartCommand, StoredContext, Template};
use rules::{DockerfileSource, TemplateRequest};
use serde_json::{Value, json};
use service::Service;
use service::error::of_builder;
use service::idempotency::{self, RecordHeader, ReplayableResponse};

use service::bases::bases;

use super::view;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read;

/// With a context in base64, which is in memory until it is on the disk.
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
            Content::json::<TemplateBody>().combinations(combinations()).example(json!({
                "name": "web",
                "dockerfile": "FROM ubuntu:24.04\nRUN echo hello > /greeting\n",
            })),
            "A repeated or `null` field is an error.",
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
    let work = move |header| async move { carry_out(&shared, &account, received, header).await };
    let endpoint = format!("{} {path}", parts.method);
    service.idempotency.run(&caller, &endpoint, key, body.bytes, work).await.map(Json::written)
}

/// The Dockerfile comes from one place, and what decides whether a start command is ready needs one.
fn combinations() -> Value {
    json!({
        "oneOf": [
            { "required": ["dockerfile"], "not": { "required": ["dockerfilePath"] } },
            { "required": ["context"], "not": { "required": ["dockerfile"] } },
        ],
        "dependentRequired": { "readyCommand": ["startCommand"], "readyTimeoutMs": ["startCommand"] },
    })
}

async fn carry_out(
    service: &Arc<Service>,
    account: &str,
    body: Received<TemplateBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let mut request = body.read(&service.create_rules(account))?;
    let context = match request.context.take() {
        None => None,
        Some(id) if id.starts_with(BuildContextId::PREFIX) => Some(uploaded(service, account, &id)?),
        Some(text) => {
            let incoming = service.builder.incoming(account).map_err(of_builder)?;
            let incoming = incoming.write_base64(text.into()).await.map_err(of_builder)?;
            // The body is not in memory while its archive waits to be read and has an index.
            drop(body);
            Some(incoming.finish().await.map_err(of_builder)?)
        }
    };
    let new = new_template(service, account, request, context).await?;
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
    context: Option<StoredContext>,
) -> Result<NewTemplate, ApiError> {
    let TemplateRequest { name, dockerfile, args, start, mut config, isolation, no_cache, metadata, .. } =
        request;
    let dockerfile = match (dockerfile, &context) {
        (DockerfileSource::Text(text), _) => text,
        (DockerfileSource::Path(path), Some(context)) => {
            let most = dockerfile::MAX_BYTES as u64;
            service.builder.context_text(account, context, path, most).await.map_err(of_builder)?
        }
        // The rules accept a path only with a context.
        (DockerfileSource::Path(_), None) => String::new(),
    };
    let base = dockerfile::parse(&dockerfile).and_then(|file| file.base(&args));
    let base = base.map_err(|error| of_builder(error.into()))?.name;
    let isolation = service.create_rules(account).isolation.choose(isolation, &base);
    config.isolation = isolation.map_err(reader::RequestRefusal::from)?;
    let start = start.map(|start| StartCommand {
        command: start.command,
        ready: start.ready,
        timeout_ms: start.timeout_ms,
        settles_ms: None,
    });
    let (id, tags, others) = (None, Vec::new(), OtherBuilds::Kept);
    Ok(NewTemplate { id, name, tags, dockerfile, args, start, config, no_cache, metadata, context, others })
}

fn uploaded(service: &Service, account: &str, id: &str) -> Result<StoredContext, ApiError> {
    let refused =
        |message: String| ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "context");
    let id = id.parse().map_err(|error: api::BadBuildContextId| refused(error.to_string()))?;
    service.builder.context(account, &id).map_err(of_builder)
}
