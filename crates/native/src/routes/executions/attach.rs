//! `GET /v1/sandboxes/{id}/executions/{execution}/attach`: the websocket handshake of a terminal. `socket` serves the connection.

use admission::endpoint::parameter::inline;
use admission::endpoint::{INTERACT, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use engine::{EngineError, ExecutionError, ExecutionState};
use listen::Takeover;
use reader::OutputOffset;
use rules::{AutoResume, OutputPosition};
use service::error::not_a_terminal;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::ExecutionRequest;
use super::output::past_the_end;
use super::socket::{OutputSource, Session, serve_websocket};
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::values;

/// The version of RFC 6455.
const WEBSOCKET_VERSION: &[u8] = b"13";
/// 16 bytes in base64.
const KEY_CHARS: usize = 24;
/// The subprotocol. If a client offers it, the response must name it.
const PROTOCOL: &str = "sandboxd.terminal";

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/executions/{execution}/attach", INTERACT)
        .describe(
            "attachTerminal",
            Tag::Executions,
            "Attach to a terminal",
            "Opens a websocket (RFC 6455, over HTTP/1.1). Binary messages are terminal input and \
             output; output starts after `after`. Text messages are JSON. The service sends \
             `{\"position\": N}` first, and again after dropped output: the following bytes start \
             at offset N. It sends `{\"warning\": {\"message\": …, \"expiresAt\": …}}` a minute before \
             the sandbox's timeout ends. Its last message is `{\"ended\": …}` with the execution, or \
             `{\"error\": …}`. The client may send `{\"resize\": {\"cols\": 120, \"rows\": 40}}` \
             and `{\"signal\": \"SIGINT\"}`. Several clients may attach to one terminal; all see \
             the same output. A client that does not read is disconnected; it can reconnect with \
             `after` and misses nothing that is still stored. A client that cannot set headers \
             offers the subprotocols `sandboxd.terminal` and `sandboxd.key.KEY`.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::EXECUTION_ID,
            Parameter::query(
                "after",
                "The offset in bytes to start from; `end` for new output only.",
                inline::<api::OutputOffset>,
            ),
            Parameter::AUTO_RESUME,
        ])
        .responds(StatusCode::SWITCHING_PROTOCOLS, "The connection is now a websocket.", [])
        .error_as(
            StatusCode::UPGRADE_REQUIRED,
            ErrorCode::InvalidRequest,
            "The request is not a websocket upgrade, or was sent over HTTP/2",
        )
        .errors([
            (ErrorCode::InvalidRequest, "The offset is malformed or past the end of the output"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
            (ErrorCode::NotATerminal, "The execution has no terminal"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(attach)
}

async fn attach(call: Call) -> Result<Response, ApiError> {
    let request = ExecutionRequest::find(&call).await?;
    let Call { caller, request_id, parts, .. } = call;
    let status = request.status().await?;
    if status.terminal.is_none() {
        return Err(not_a_terminal(&status.id).with_detail("sandboxId", request.sandbox.id.as_str()));
    }
    let query = reader::execution_query(parts.uri.query())?;
    let from = match query.after {
        None => OutputPosition::default(),
        Some(OutputOffset::End) => status.output,
        Some(OutputOffset::At(position)) if status.output.covers(position) => position,
        Some(OutputOffset::At(position)) => {
            return Err(past_the_end("after", &position.to_string(), &status));
        }
    };
    let accept = handshake(&parts)?;
    let source = source(&request, from, status.state, query.auto_resume).await?;
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if listed(&parts.headers, header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    let warnings = match source {
        // Without a sandbox the session ends at once.
        OutputSource::Attached(_) => request.sandbox.handle().expiry_warnings().await.ok(),
        OutputSource::Ended(_) => None,
    };
    let (service, sandbox) = (request.sandbox.service, request.sandbox.id);
    let (auto_resume, key_id) = (query.auto_resume, caller.key_id);
    let session = Session { service, sandbox, source, from, warnings, auto_resume, key_id, request_id };
    response.extensions_mut().insert(Takeover::new(move |stream| serve_websocket(stream, session)));
    Ok(response)
}

/// The output of an ended execution is still readable.
async fn source(
    request: &ExecutionRequest,
    from: OutputPosition,
    state: ExecutionState,
    auto_resume: AutoResume,
) -> Result<OutputSource, ApiError> {
    let (sandbox, execution) = (&request.sandbox, &request.execution);
    if state == ExecutionState::Running {
        match sandbox.handle().attach(execution, from, auto_resume).await {
            Ok(attachment) => return Ok(OutputSource::Attached(attachment)),
            // It ended since the check above.
            Err(EngineError::Execution(ExecutionError::Ended { .. })) => {}
            Err(error) => return Err(sandbox.fault(error)),
        }
    }
    let reader = sandbox.handle().follow(execution, from).await;
    reader.map(OutputSource::Ended).map_err(|error| sandbox.fault(error))
}

/// Checks the websocket handshake and returns the value of `Sec-WebSocket-Accept`.
fn handshake(parts: &Parts) -> Result<HeaderValue, ApiError> {
    let headers = &parts.headers;
    let refuse = |why: &str| {
        let message = format!("this endpoint needs a websocket handshake over HTTP/1.1, but {why}");
        Err(ApiError::new(ErrorCode::InvalidRequest, message).with_status(StatusCode::UPGRADE_REQUIRED))
    };
    if parts.method != Method::GET {
        return refuse("the method is not GET");
    }
    if parts.version != Version::HTTP_11 {
        return refuse("the request uses another version of HTTP");
    }
    if !listed(headers, header::CONNECTION, "upgrade") || !listed(headers, header::UPGRADE, "websocket") {
        return refuse("the request lacks 'Connection: Upgrade' and 'Upgrade: websocket'");
    }
    if !values(headers, header::SEC_WEBSOCKET_VERSION).eq([WEBSOCKET_VERSION]) {
        return refuse("the header Sec-WebSocket-Version is not 13");
    }
    let mut keys = values(headers, header::SEC_WEBSOCKET_KEY);
    match (keys.next(), keys.next()) {
        (Some(key), None) if key.len() == KEY_CHARS && key.is_ascii() => {
            HeaderValue::try_from(derive_accept_key(key)).map_err(ApiError::internal)
        }
        _ => refuse("the header Sec-WebSocket-Key is missing or malformed"),
    }
}

/// Whether a comma-separated header contains the word.
fn listed(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let texts = values(headers, name).filter_map(|value| std::str::from_utf8(value).ok());
    let mut words = texts.flat_map(|text| text.split(','));
    words.any(|found| found.trim().eq_ignore_ascii_case(word))
}
