//! `GET /v1/openapi.json`: the OpenAPI document of the declared endpoints.

use std::sync::LazyLock;

use admission::endpoint::{Content, READ, Tag};
use admission::error::ApiError;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;

use super::view;
use crate::endpoint::{Call, Endpoint};
use crate::openapi;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().into());

/// The document as text, with a line feed at its end.
pub fn document() -> String {
    openapi::document(&super::endpoints())
}

pub fn content() -> Bytes {
    DOCUMENT.clone()
}

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/openapi.json", READ)
        .describe("openapi", Tag::Service, "Get this document", "")
        .responds(StatusCode::OK, "The API as an OpenAPI 3.1 document.", [Content::any_json()])
        .handler(openapi)
}

async fn openapi(_: Call) -> Result<Response, ApiError> {
    Ok(view::typed("application/json; charset=utf-8", content()))
}
