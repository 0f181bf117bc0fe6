//! The headers of a call, and its only message.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::buffers::append;
use super::envelope::check_length;
use super::{Buffers, Code, Envelope, EnvelopeReader, RpcError};

/// The keepalive interval for clients that name none.
const DEFAULT_KEEPALIVE: Duration = Duration::from_secs(90);
const LONGEST_KEEPALIVE_S: u64 = 3600;
/// The protocol allows ten digits.
const MOST_TIMEOUT_DIGITS: usize = 10;

/// Whether messages are in envelopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Unary,
    Stream,
}

impl CallKind {
    /// The content type of requests.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Unary => "application/json",
            Self::Stream => "application/connect+json",
        }
    }

    /// By the declared content type of an endpoint. `None` if it is not one of the protocol.
    pub fn of_media_type(declared: Option<&str>) -> Option<Self> {
        [Self::Unary, Self::Stream].into_iter().find(|kind| declared == Some(kind.media_type()))
    }

    /// Whether a request is of this kind.
    pub fn is_of(self, headers: &HeaderMap) -> bool {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case(self.media_type())
    }
}

/// What the headers of a call ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOptions {
    /// `None` for no limit.
    pub timeout: Option<Duration>,
    pub keepalive: Duration,
}

/// Reads the headers. The inner error belongs into a response of the given kind.
pub fn call_options(headers: &HeaderMap, kind: CallKind) -> Result<CallOptions, RpcError> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("(not ASCII)"));
    if let Some(version) = text("connect-protocol-version")
        && version != "1"
    {
        return Err(RpcError::invalid(format!("Connect-Protocol-Version is '{version}'; allowed: '1'")));
    }
    let encoding = match kind {
        CallKind::Unary => "content-encoding",
        CallKind::Stream => "connect-content-encoding",
    };
    if let Some(encoding) = text(encoding)
        && encoding != "identity"
    {
        let message = format!("unknown compression '{encoding}'; supported encodings are identity");
        return Err(RpcError::new(Code::Unimplemented, message));
    }
    let timeout = match text("connect-timeout-ms") {
        None => None,
        Some(text) => Some(timeout(text)?),
    };
    let keepalive = text("keepalive-ping-interval").and_then(|text| text.parse::<u64>().ok());
    let keepalive = keepalive.filter(|seconds| (1..=LONGEST_KEEPALIVE_S).contains(seconds));
    Ok(CallOptions { timeout, keepalive: keepalive.map_or(DEFAULT_KEEPALIVE, Duration::from_secs) })
}

fn timeout(text: &str) -> Result<Duration, RpcError> {
    let is_valid = !text.is_empty()
        && text.len() <= MOST_TIMEOUT_DIGITS
        && text.bytes().all(|digit| digit.is_ascii_digit());
    match text.parse() {
        Ok(milliseconds) if is_valid => Ok(Duration::from_millis(milliseconds)),
        _ => Err(RpcError::invalid(format!("Connect-Timeout-Ms is '{text}'; allowed: at most 10 digits"))),
    }
}

/// Reads the body of a unary call, of at most `max_bytes`.
pub async fn unary_message(mut body: Body, buffers: &Buffers, max_bytes: usize) -> Result<Bytes, RpcError> {
    let mut message = buffers.message(max_bytes);
    while let Some(chunk) = next_chunk(&mut body).await? {
        check_length(message.received() + chunk.len(), max_bytes)?;
        append(&mut message, &chunk).await?;
    }
    Ok(message.done())
}

/// Reads the body of a call whose request is a stream of one message, of at most `max_bytes`.
pub async fn single_message(mut body: Body, buffers: &Buffers, max_bytes: usize) -> Result<Bytes, RpcError> {
    let mut reader = EnvelopeReader::new(buffers.clone(), max_bytes);
    let mut found = None;
    while let Some(mut chunk) = next_chunk(&mut body).await? {
        while let Some(envelope) = reader.next(&mut chunk).await? {
            match envelope {
                Envelope::Message(message) if found.is_none() => found = Some(message),
                Envelope::Message(_) => {
                    return Err(RpcError::invalid("the request has more than one message"));
                }
                Envelope::EndOfStream => {}
            }
        }
    }
    reader.finish()?;
    found.ok_or_else(|| RpcError::invalid("the request has no message"))
}

/// The next bytes of a body.
pub async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, RpcError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(RpcError::invalid(format!("the body could not be read: {error}")));
            }
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}
