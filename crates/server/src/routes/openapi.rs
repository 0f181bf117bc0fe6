//! `GET /v1/openapi.json`: the interface as a document, put together from what stands at each handler.

use std::sync::LazyLock;

use api::{Done, ErrorBody, ErrorCode, ErrorObject, EventBody, EventKinds, RuntimeEvent};
use axum::http::Method;
use axum::response::Response;
use bytes::Bytes;
use utoipa::OpenApi;

use super::{
    create, events, execute, executions, files, get, health, images, list, network, pause, ports,
    post_events, resume, rule, terminate, view,
};
use crate::layers::Access;
use crate::openapi::{self, Needs};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "sandboxd",
        version = "1",
        description = "Isolated Linux sandboxes on your own machines: create one, run commands in it, pause it, resume it, terminate it.\n\nEvery answer carries `X-Request-Id` and the three headers of the rate limit that is nearest to its end. Every error has the body of the schema `ErrorBody`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        create::create, list::list, get::get, pause::pause, resume::resume, terminate::terminate,
        execute::execute, events::of_account, events::of_sandbox, post_events::post, network::get, network::change,
        images::list, health::health, openapi,
        executions::terminal::open, executions::list::list, executions::get::get, executions::output::output,
        executions::stdin::write, executions::signal::send, executions::cancel::cancel, executions::attach::attach,
        files::read::read, files::write::write, files::delete::delete, files::list::list, files::stat::stat,
        ports::expose::expose, ports::list::list, ports::close::close, ports::token::token,
        files::exists::exists, files::mkdir::mkdir, files::relocate::relocate, files::pack::pack, files::unpack::unpack
    ),
    components(schemas(ErrorBody, ErrorObject, ErrorCode, Done, api::ExecuteBody, api::DetachedBody, RuntimeEvent, EventBody, EventKinds)),
    tags(
        (name = "Sandboxes", description = "Their life, from create to terminate."),
        (name = "Commands", description = "Work inside of a sandbox."),
        (name = "Executions", description = "Commands that go on by themselves, and terminals: their output, their input, their end."),
        (name = "Network", description = "What a sandbox may reach, and what it sent and received."),
        (name = "Files", description = "Files of a sandbox, as its root sees them. Every parameter is in the query; a body is content."),
        (name = "Ports", description = "Ports of a sandbox that are reached from outside, each under a name of its own."),
        (name = "Events", description = "What happened, as a list or as a stream, and what a client says of its run."),
        (name = "Images", description = "What sandboxes can be made of at once, and what is on its way."),
        (name = "Service", description = "The service itself.")
    )
)]
struct Interface;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().into());

/// The document as text, with a line's end.
pub fn document() -> String {
    openapi::complete(Interface::openapi(), needs)
}

/// What a request needs, by the table that the layers go by.
fn needs(method: &str, path: &str) -> Needs {
    // A template is a path: its parameter is a segment as any other.
    let found = Method::from_bytes(method.as_bytes()).ok().and_then(|method| rule::rule(&method, path));
    match found.map(|rule| rule.access) {
        Some(Access::Key { scope, .. }) => Needs::Scope(scope),
        Some(Access::Open) | None => Needs::Nothing,
    }
}

pub fn content() -> Bytes {
    DOCUMENT.clone()
}

/// This document
#[utoipa::path(
    get, path = "/v1/openapi.json", operation_id = "openapi", tag = "Service",
    responses((status = 200, description = "The interface as an OpenAPI 3.1 document.", body = inline(serde_json::Map<String, serde_json::Value>)))
)]
pub async fn openapi() -> Response {
    view::typed("application/json; charset=utf-8", content())
}
