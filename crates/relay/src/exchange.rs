//! Sends one request to a program and reads the head of its response.
//!
//! A response that is not HTTP, has no end or does not arrive becomes an error with status 502 or 504, without any of its bytes.

use std::pin::pin;
use std::task::Poll;

use admission::error::ApiError;
use api::ErrorCode;
use axum::extract::Request;
use axum::http::header::TRANSFER_ENCODING;
use axum::http::response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use service::error::{gateway_timeout, unknown_host};

use super::response_body::ResponseBody;
use super::tunnel::{ConnectionDriver, EndReason, ProgramConnection};

/// The most headers of a response.
const MAX_HEADERS: usize = 128;
/// The longest head of a response, and the most body bytes of one read.
const BUFFER_BYTES: usize = 64 * 1024;

/// A response whose head is complete.
pub struct ProgramResponse {
    pub head: response::Parts,
    pub body: Incoming,
    pub driver: ConnectionDriver,
    /// The driver has finished and must not be polled again.
    pub driven: bool,
    pub state: std::sync::Arc<super::tunnel::ConnectionState>,
}

impl ProgramResponse {
    /// The head, and the rest as a body.
    pub fn into_body(self) -> (response::Parts, ResponseBody) {
        let driver = if self.driven { None } else { Some(self.driver) };
        (self.head, ResponseBody { body: self.body, driver, state: self.state })
    }
}

pub async fn exchange(request: Request, connection: ProgramConnection) -> Result<ProgramResponse, ApiError> {
    let state = std::sync::Arc::clone(&connection.state);
    let mut builder = http1::Builder::new();
    // Names arrive in lower case over HTTP/2; some programs expect the usual case of HTTP/1.1.
    builder.max_headers(MAX_HEADERS).max_buf_size(BUFFER_BYTES).title_case_headers(true);
    let (mut sender, mut driver) = builder
        .handshake(TokioIo::new(connection))
        .await
        .map_err(|error| invalid_response("").with_cause(error))?;
    let mut driven = false;
    let mut answering = pin!(sender.send_request(request));
    let answered = std::future::poll_fn(|cx| {
        if let Poll::Ready(answered) = answering.as_mut().poll(cx) {
            return Poll::Ready(answered);
        }
        // If the connection ends, the response future returns the error.
        driven = driven || driver.poll_without_shutdown(cx).is_ready();
        answering.as_mut().poll(cx)
    })
    .await;
    match answered {
        Ok(answer) => {
            state.got_head();
            let (head, body) = answer.into_parts();
            let coded = |value: &axum::http::HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"chunked");
            if head.headers.get_all(TRANSFER_ENCODING).iter().any(coded) {
                return Err(invalid_response("its Transfer-Encoding is not chunked"));
            }
            Ok(ProgramResponse { head, body, driver, driven, state })
        }
        Err(error) => Err(fault(error, state.why())),
    }
}

fn fault(error: hyper::Error, why: Option<EndReason>) -> ApiError {
    let api_error = match why {
        Some(EndReason::Idle(idle)) => gateway_timeout(format!(
            "the program did not respond: the connection was idle for {} s (ports.idle_seconds)",
            idle.as_secs()
        )),
        Some(EndReason::Closed) => unknown_host(),
        Some(EndReason::Stopping) => ApiError::stopping("the daemon is stopping"),
        Some(EndReason::EndlessHead) => invalid_response("its headers are incomplete"),
        None if error.is_parse_too_large() => invalid_response("its headers are too large"),
        None if error.is_parse() => invalid_response("it is not HTTP/1.1"),
        None if error.is_user() || error.is_body_write_aborted() => {
            ApiError::new(ErrorCode::InvalidRequest, "the request body is incomplete")
        }
        None => invalid_response("it closed the connection before its response was complete"),
    };
    api_error.with_cause(error)
}

/// The program's response cannot be forwarded.
pub fn invalid_response(why: &str) -> ApiError {
    let message = format!("the response of the program in the sandbox cannot be forwarded: {why}");
    ApiError::new(ErrorCode::PortUnreachable, message)
}
