//! `GET /v1/sandboxes/{id}/executions/{execution}/attach`: a terminal over a websocket. The handshake is here, the conversation in
//! `socket`.

use std::sync::Arc;

use api::ErrorCode;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use engine::{EngineError, ExecutionState};
use listen::Takeover;
use reader::Place;
use rules::OutputPosition;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Asked;
use super::output::past_the_end;
use super::socket::{Session, Source, converse};
use crate::error::{ApiError, not_a_terminal};
use crate::keyring::Caller;
use crate::layers::RequestId;
use crate::routes::read::values;
use crate::service::Service;

/// Of RFC 6455, the only one there is.
const WEBSOCKET_VERSION: &[u8] = b"13";
/// 16 bytes in base64.
const KEY_CHARS: usize = 24;
/// What a client may speak, and has to hear again if it said so.
const PROTOCOL: &str = "sandboxd.terminal";

/// Attach to a terminal
///
/// By websocket (RFC 6455, over HTTP/1.1). Binary messages are bytes, both ways: what is typed, and what the terminal shows, first all that
/// it showed after `after`. Messages in text are JSON. The service says `{"position": N}` where bytes begin (the first message; N bytes
/// came before them), and last `{"ended": …}`, the execution, or `{"error": …}`. The client may say `{"resize": {"cols": 120, "rows": 40}}`
/// and `{"signal": "SIGINT"}`. Any number may be attached and see the same. Whoever does not read is cut off when its connection is full
/// for too long; what it missed is there when it comes back with `after`. Where a client cannot set headers, the key may come among the
/// subprotocols as `sandboxd.key.KEY`, beside `sandboxd.terminal`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/executions/{execution}/attach", operation_id = "attachTerminal", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("execution" = api::ExecutionId, Path, description = "Id of the execution."),
        ("after" = inline(Option<api::OutputPlace>), Query, nullable = false, description = "How many bytes of it were seen; `end` for what comes from now on."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    responses(
        (status = 101, description = "The connection is a websocket now."),
        (status = 400, description = "A place that is none, or past the end of the output: `INVALID_REQUEST`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. It has no such execution: `EXECUTION_NOT_FOUND`."),
        (status = 409, description = "The execution has no terminal: `NOT_A_TERMINAL`. The sandbox is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 426, description = "The request does not ask for a websocket: `INVALID_REQUEST`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn attach(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, request.uri()).await?;
    let status = asked.status().await?;
    if status.terminal.is_none() {
        return Err(not_a_terminal(&status.id).with_detail("sandboxId", asked.id.as_str()));
    }
    let query = reader::execution_query(request.uri().query())?;
    let from = match query.after {
        None => OutputPosition::default(),
        Some(Place::End) => status.output,
        Some(Place::At(position)) if status.output.covers(position) => position,
        Some(Place::At(position)) => return Err(past_the_end("after", &position.to_string(), &status)),
    };
    let accept = handshake(&request)?;
    let source = source(&asked, from, status.state, query.auto_resume).await?;
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if listed(request.headers(), header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    let (service, sandbox) = (asked.service, asked.id);
    let (auto_resume, key_id) = (query.auto_resume, caller.key_id);
    let session = Session { service, sandbox, source, from, auto_resume, key_id, request_id };
    response.extensions_mut().insert(Takeover::new(move |taken| converse(taken, session)));
    Ok(response)
}

/// One that has ended still has what it showed.
async fn source(
    asked: &Asked,
    from: OutputPosition,
    state: ExecutionState,
    auto_resume: bool,
) -> Result<Source, ApiError> {
    let (engine, account, id, execution) =
        (&asked.service.engine, &asked.account, &asked.id, &asked.execution);
    if state == ExecutionState::Running {
        match engine.sandbox(account, id).attach(execution, from, auto_resume).await {
            Ok(attachment) => return Ok(Source::Attached(attachment)),
            // It ended in between.
            Err(EngineError::ExecutionEnded { .. }) => {}
            Err(error) => return Err(asked.fault(error)),
        }
    }
    let reader = engine.sandbox(account, id).follow(execution, from).await;
    reader.map(Source::Over).map_err(|error| asked.fault(error))
}

/// What the client has to hear, if it asked for a websocket.
fn handshake(request: &Request) -> Result<HeaderValue, ApiError> {
    let headers = request.headers();
    let refuse = |why: &str| {
        let message = format!("this is a websocket over HTTP/1.1, and {why}");
        Err(ApiError::new(ErrorCode::InvalidRequest, message).with_status(StatusCode::UPGRADE_REQUIRED))
    };
    if request.method() != Method::GET {
        return refuse("the request is no GET");
    }
    if request.version() != Version::HTTP_11 {
        return refuse("the request came in another version of HTTP");
    }
    if !listed(headers, header::CONNECTION, "upgrade") || !listed(headers, header::UPGRADE, "websocket") {
        return refuse("the request has not 'Connection: Upgrade' and 'Upgrade: websocket'");
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

/// Whether one of the words of a header is this.
fn listed(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let texts = values(headers, name).filter_map(|value| std::str::from_utf8(value).ok());
    let mut words = texts.flat_map(|text| text.split(','));
    words.any(|found| found.trim().eq_ignore_ascii_case(word))
}
