//! `/mcp`: the MCP server over streamable HTTP.
//!
//! It is not part of the REST API and of its OpenAPI document. The layers authorize and count its requests like all others; its tools
//! call the REST API with the key of the request, so each call needs the scope of what it does.

use std::sync::Arc;

use ::mcp::{BODY_MAX, HttpServer, Owner, Refused};
use admission::endpoint::{READ, RawBody};
use admission::error::{ApiError, OwnBody, RefusalCode};
use api::ErrorCode;
use axum::body::Body;
use axum::http::{Method, Request, header};
use axum::response::Response;
use bytes::Bytes;
use listen::PeerAddr;
use rules::ReachedLimit;

use super::read;
use crate::endpoint::{Call, Endpoint};
use crate::in_process;
use crate::layers::Guarded;

const PATH: &str = "/mcp";
const RETRY_S: u64 = 30;
const SESSIONS_KEY: &str = "mcp.max_sessions";
/// Most values and names in a message: its parser takes some hundred bytes for each.
const VALUES_MAX: usize = 16_384;

/// The endpoints. `api` has those that the tools call.
pub fn endpoints(server: &Arc<HttpServer>, api: &Guarded) -> [Endpoint; 3] {
    let handler = || {
        let (server, api) = (Arc::clone(server), api.clone());
        move |call| answer(Arc::clone(&server), api.clone(), call)
    };
    [
        Endpoint::post(PATH, READ).raw_body("application/json", false, "").handler(handler()),
        Endpoint::get(PATH, READ).raw_body("application/json", false, "").handler(handler()),
        Endpoint::delete(PATH, READ).raw_body("application/json", false, "").handler(handler()),
    ]
}

async fn answer(
    server: Arc<HttpServer>,
    api: Guarded,
    call: Call<admission::keyring::Caller, RawBody>,
) -> Result<Response, ApiError> {
    let Call { service, caller, mut parts, body, .. } = call;
    if parts.headers.contains_key(header::ORIGIN) && service.allowed_origins.of(&parts.headers).is_none() {
        return Err(ApiError::new(
            ErrorCode::Forbidden,
            "the web page of this request may not call the service; the operator allows pages with http.allowed_origins",
        ));
    }
    let bytes = if parts.method == Method::POST {
        let bytes = read::json_bytes(&service, &caller, &parts.headers, body.0, BODY_MAX).await?;
        reader::check_shape(&bytes, VALUES_MAX)?;
        bytes
    } else {
        Bytes::new()
    };
    let peer = parts.extensions.get::<PeerAddr>().copied();
    // Only the tools' client needs the key from here on.
    let authorization = parts.headers.remove(header::AUTHORIZATION);
    let key = authorization.as_ref().and_then(|value| value.to_str().ok()?.split_once(' '));
    let key = key.map_or("", |(_, key)| key.trim_matches(' '));
    let client = in_process::client(api, key, peer).map_err(ApiError::internal)?;
    let owner = Owner { account: caller.account, key_id: caller.key_id };
    let response = server.answer(Request::from_parts(parts, bytes), owner, client).await;
    let mut response = response.map_err(refused)?.map(Body::new);
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        // The errors of the protocol have bodies of their own.
        response.extensions_mut().insert(OwnBody(code_of(status)));
    }
    Ok(response)
}

fn refused(refused: Refused) -> ApiError {
    match refused {
        Refused::NoSession => ApiError::new(
            ErrorCode::NotFound,
            "there is no MCP session with the id in the header Mcp-Session-Id; it may have ended: initialize a new one",
        ),
        Refused::TooManyOfAccount { most } => {
            too_many_sessions(most, "MCP sessions of an account, a quarter of those of all accounts")
        }
        Refused::TooManyOfAll { most } => too_many_sessions(most, "MCP sessions of all accounts"),
        Refused::Failed => ApiError::internal("an MCP session could not begin"),
    }
}

fn too_many_sessions(most: usize, counts: &'static str) -> ApiError {
    let why = "too many MCP sessions are open; end one with DELETE /mcp";
    let limit = ReachedLimit::set_by_operator(most as u64, counts, SESSIONS_KEY);
    ApiError::refused(RefusalCode::QuotaExceeded, why, limit, RETRY_S)
}

/// The code of an error of the protocol, for the log.
fn code_of(status: axum::http::StatusCode) -> ErrorCode {
    match status.as_u16() {
        403 => ErrorCode::Forbidden,
        404 => ErrorCode::NotFound,
        405 => ErrorCode::MethodNotAllowed,
        500.. => ErrorCode::InternalError,
        _ => ErrorCode::InvalidRequest,
    }
}
