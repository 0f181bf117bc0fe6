//! Talks to the code interpreter inside a sandbox: HTTP/1.1 on a connection through the agent. `program` starts it.
//!
//! Each request has its own connection. Everything from inside is hostile: hyper's client parses heads of a bounded size, a line of
//! the body and the whole body are bounded, and lines count towards the account's output memory. Dropping a [`Reply`] closes the
//! connection, which interrupts the code.

mod program;

use admission::error::{ApiError, Condition, RefusalCode};
use admission::output_memory::OutputReservation;
use api::{CodeException, CodeResult, ErrorCode};
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use axum::http::{HeaderValue, Method, Request, StatusCode, response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::task::AbortOnDropHandle;

use service::error::invalid_interpreter;

pub use program::{InterpreterConnection, connect, connect_port, is_disk_full};

const MAX_HEADERS: usize = 32;
const BUFFER_BYTES: usize = 64 << 10;
/// The longest event, which clients limit too. The program inside bounds its own events below this.
const LINE_BYTES: usize = 4 << 20;
/// All events of one execution.
const EVENTS_BYTES: usize = 96 << 20;
/// Responses that are not streams.
const DOCUMENT_BYTES: usize = 64 << 10;
/// Of an error's text.
const MESSAGE_BYTES: usize = 500;
/// Code is usually short.
const RETRY_S: u64 = 1;

/// A response whose head is complete.
pub struct Reply {
    pub head: response::Parts,
    body: Incoming,
    /// Ends with the reply.
    _driver: AbortOnDropHandle<()>,
    unread: BytesMut,
    /// Bytes of `unread` without a line end.
    searched: usize,
    received: usize,
    ended: bool,
}

/// An event of an execution.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    NumberOfExecutions {
        execution_count: Option<u64>,
    },
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    Result(Map<String, Value>),
    Error(CodeException),
    /// The program omits what the code prints from now on, because it is too much.
    OutputOmitted,
    EndOfExecution,
    /// Keepalives, and what a newer program sends.
    #[serde(other)]
    Other,
}

/// Sends a request and waits for the head of the response.
pub async fn request(
    connection: InterpreterConnection,
    method: Method,
    path: &str,
    body: Option<Bytes>,
) -> Result<Reply, ApiError> {
    let mut request = Request::new(body.map_or_else(Body::empty, Body::from));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(ApiError::internal)?;
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut builder = http1::Builder::new();
    builder.max_headers(MAX_HEADERS).max_buf_size(BUFFER_BYTES);
    let broken = |error: hyper::Error| invalid_interpreter("it does not answer with HTTP").with_cause(error);
    let InterpreterConnection { tunnel, permit } = connection;
    let (mut sender, driver) = builder.handshake(TokioIo::new(tunnel)).await.map_err(broken)?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        // A failure also ends the body, whose reader reports it.
        let _ = driver.await;
        drop(permit);
    }));
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    Ok(Reply { head, body, _driver: driver, unread: BytesMut::new(), searched: 0, received: 0, ended: false })
}

impl Reply {
    /// The next event; `None` at the end of the body. Cancel safe.
    pub async fn next(&mut self, memory: &mut OutputReservation) -> Result<Option<Event>, ApiError> {
        if self.ended {
            return Ok(Some(Event::EndOfExecution));
        }
        loop {
            if let Some(line) = self.take_line() {
                if !line.trim_ascii().is_empty() {
                    return parse(&line).map(Some);
                }
                continue;
            }
            if self.unread.len() > LINE_BYTES {
                return Err(invalid_interpreter("an event is too long"));
            }
            // The bytes, and what they are parsed into.
            memory.cover(self.unread.len() * 2).await?;
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.received += data.len();
                    if self.received > EVENTS_BYTES {
                        return Err(invalid_interpreter("its response is too long"));
                    }
                    self.unread.extend_from_slice(&data);
                }
                Some(Err(error)) => {
                    return Err(invalid_interpreter("its connection ended early").with_cause(error));
                }
                None if self.unread.is_empty() => return Ok(None),
                None => return Err(invalid_interpreter("its last event is incomplete")),
            }
        }
    }

    /// Bytes of the events so far.
    pub fn received(&self) -> usize {
        self.received
    }

    /// Whether an end of the body is one that the program announced, and not a connection that broke.
    pub fn announces_end(&self) -> bool {
        self.head.headers.get(TRANSFER_ENCODING).is_some_and(|encoding| encoding == "chunked")
    }

    /// Reads no more: the next event is the end of the execution.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// The next event if it is here already.
    pub fn ready(&mut self) -> Option<Result<Event, ApiError>> {
        let line = self.take_line()?;
        Some(parse(&line))
    }

    fn take_line(&mut self) -> Option<BytesMut> {
        if self.ended {
            return None;
        }
        let Some(end) = self.unread[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.unread.len();
            return None;
        };
        let line = self.unread.split_to(self.searched + end + 1);
        self.searched = 0;
        Some(line)
    }

    /// The whole body of a response that is not a stream.
    pub async fn document(mut self) -> Result<Bytes, ApiError> {
        let mut bytes = BytesMut::new();
        while let Some(frame) = self.body.frame().await {
            let broken = |error| invalid_interpreter("its connection ended early").with_cause(error);
            let Ok(data) = frame.map_err::<ApiError, _>(broken)?.into_data() else { continue };
            if bytes.len() + data.len() > DOCUMENT_BYTES {
                return Err(invalid_interpreter("its response is too long"));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    /// The error of a response whose status is not a success. `context` is the context in the request, if any.
    pub async fn refusal(self, context: Option<&str>) -> ApiError {
        let status = self.head.status;
        let text = match self.document().await {
            Ok(text) => text,
            Err(error) => return error,
        };
        let text = String::from_utf8_lossy(&text[..text.len().min(MESSAGE_BYTES)]);
        match (status, context) {
            (StatusCode::NOT_FOUND, Some(context)) => service::error::no_context(context),
            (StatusCode::BAD_REQUEST, _) => ApiError::new(
                ErrorCode::InvalidConfig,
                format!("the code interpreter refused: {}", rules::printable(text.trim())),
            ),
            (StatusCode::TOO_MANY_REQUESTS, _) => {
                let why = format!("the code interpreter refused: {}", rules::printable(text.trim()));
                ApiError::refused(RefusalCode::RateLimited, why, Condition::CodeInterpreter, RETRY_S)
            }
            (StatusCode::INSUFFICIENT_STORAGE, _) => service::error::interpreter_disk_full(),
            _ => invalid_interpreter(&format!(
                "it answered {}: {}",
                status.as_u16(),
                rules::printable(text.trim())
            )),
        }
    }
}

fn parse(line: &[u8]) -> Result<Event, ApiError> {
    serde_json::from_slice(line)
        .map_err(|error| invalid_interpreter("an event is malformed").with_cause(error))
}

/// The value that the code showed.
pub fn result(mut event: Map<String, Value>) -> Result<CodeResult, ApiError> {
    event.remove("type");
    if let Some(is_main) = event.remove("is_main_result") {
        event.insert("isMainResult".to_owned(), is_main);
    }
    serde_json::from_value(Value::Object(event))
        .map_err(|error| invalid_interpreter("a result is malformed").with_cause(error))
}
