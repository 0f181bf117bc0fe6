//! One request to a program, and the head of its answer.
//!
//! What a program says that is no HTTP, or has no end, or does not come, is told as a fault of the program: the status is 502 or 504,
//! and nothing of what it sent is in it.

use std::pin::pin;
use std::task::Poll;

use api::ErrorCode;
use axum::extract::Request;
use axum::http::header::TRANSFER_ENCODING;
use axum::http::response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::carried::Carried;
use super::inside::{Driver, Inside, Why};
use crate::error::{ApiError, nobody, silent};

/// Of an answer; more than any program has to say.
const MAX_HEADERS: usize = 128;
/// The longest head of an answer, and what is read of a body at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// An answer whose head is there.
pub struct Answer {
    pub head: response::Parts,
    pub body: Incoming,
    pub driver: Driver,
    /// It has no more to do, and may not be asked again.
    pub driven: bool,
    pub state: std::sync::Arc<super::inside::State>,
}

impl Answer {
    /// With the rest as a body.
    pub fn carried(self) -> (response::Parts, Carried) {
        let driver = if self.driven { None } else { Some(self.driver) };
        (self.head, Carried { body: self.body, driver, state: self.state })
    }
}

pub async fn exchange(request: Request, inside: Inside) -> Result<Answer, ApiError> {
    let state = std::sync::Arc::clone(&inside.state);
    let mut builder = http1::Builder::new();
    builder.max_headers(MAX_HEADERS).max_buf_size(BUFFER_BYTES);
    let (mut sender, mut driver) =
        builder.handshake(TokioIo::new(inside)).await.map_err(|error| bad_answer("").with_cause(error))?;
    let mut driven = false;
    let mut answering = pin!(sender.send_request(request));
    let answered = std::future::poll_fn(|cx| {
        if let Poll::Ready(answered) = answering.as_mut().poll(cx) {
            return Poll::Ready(answered);
        }
        // Whatever ends it, the answer knows of it then.
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
                return Err(bad_answer("it is in a transfer coding that is not chunked"));
            }
            Ok(Answer { head, body, driver, driven, state })
        }
        Err(error) => Err(fault(&error, state.why())),
    }
}

fn fault(error: &hyper::Error, why: Option<Why>) -> ApiError {
    let told = match why {
        Some(Why::Idle(idle)) => silent(format!(
            "the program did not answer: nothing moved for {} s (ports.idle_seconds)",
            idle.as_secs()
        )),
        Some(Why::Closed) => nobody(),
        Some(Why::Stopping) => ApiError::new(ErrorCode::ResourceExhausted, "the daemon is stopping"),
        Some(Why::EndlessHead) => bad_answer("its head has no end"),
        None if error.is_parse_too_large() => bad_answer("its head is too large"),
        None if error.is_parse() => bad_answer("it is not HTTP/1.1"),
        None if error.is_user() || error.is_body_write_aborted() => {
            ApiError::new(ErrorCode::InvalidRequest, "the request's body could not be read to its end")
        }
        None => bad_answer("it closed the connection before its answer was complete"),
    };
    told.with_cause(error)
}

/// The program answered with something that cannot be passed on.
pub fn bad_answer(why: &str) -> ApiError {
    let message = format!("the program in the sandbox gave no answer that can be passed on: {why}");
    ApiError::new(ErrorCode::PortUnreachable, message)
}
