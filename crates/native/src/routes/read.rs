//! Reads the parts of a request: its body, with a size limit, its headers, and the sandbox id in its path.

use std::error::Error as _;

use admission::endpoint::{JsonBody, Received};
use admission::error::ApiError;
use admission::keyring::Caller;
use admission::memory::GrowingBody;
use api::{ErrorCode, RunId, SandboxId};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use listen::BodyError;
use reader::{RequestBody, RequestRefusal};

use service::Service;
use service::error;
use service::idempotency;

/// Reads a JSON body without checking it.
pub async fn json_body<T: RequestBody>(
    service: &Service,
    caller: &Caller,
    headers: &HeaderMap,
    body: JsonBody<T>,
) -> Result<Received<T>, ApiError> {
    let received = unreported_body(service, caller, headers, body).await?;
    if headers.contains_key(idempotency::HEADER) {
        received.report_ignored();
    }
    Ok(received)
}

/// As [`json_body`], for a handler that reports the ignored fields itself.
pub async fn unreported_body<T: RequestBody>(
    service: &Service,
    caller: &Caller,
    headers: &HeaderMap,
    body: JsonBody<T>,
) -> Result<Received<T>, ApiError> {
    let JsonBody { body, most, ignored, .. } = body;
    Ok(Received::new(json_bytes(service, caller, headers, body, most).await?, ignored))
}

/// The bytes of a JSON body of at most `most` bytes. They count towards the account's request memory.
pub async fn json_bytes(
    service: &Service,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Bytes, ApiError> {
    let memory = service.gate.request_memory.body(&caller.account, most);
    let bytes = whole_body(headers, body, memory).await?;
    json_content(headers)?;
    Ok(bytes)
}

/// Whether the body is JSON, by its headers.
pub fn json_content(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    reader::json_content(values(headers, header::CONTENT_TYPE), values(headers, header::CONTENT_ENCODING))
}

const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");

/// The run id in the request header, if any.
pub fn run_id(headers: &HeaderMap) -> Result<Option<RunId>, ApiError> {
    let refuse =
        |message: String| ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", "X-Run-Id");
    let mut found = values(headers, RUN_ID);
    let Some(value) = found.next() else { return Ok(None) };
    if found.next().is_some() {
        return Err(refuse("header X-Run-Id was sent more than once; send it once".to_owned()));
    }
    rules::run_header(value).map(Some).map_err(|error| refuse(error.to_string()))
}

/// All values of a header, as bytes.
pub fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).into_iter().map(axum::http::HeaderValue::as_bytes)
}

/// A body that is too large is left unread; the listener drains it, so that a client that is still sending gets the response.
async fn whole_body(headers: &HeaderMap, mut body: Body, mut read: GrowingBody) -> Result<Bytes, ApiError> {
    let max = read.most();
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > max as u64) {
        return Err(too_large(announced, max));
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| broken_body(&fault))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.received() + data.len() > max {
            return Err(too_large(None, max));
        }
        read.add(&data).await?;
    }
    Ok(read.done())
}

/// The body ended early or arrived too slowly.
pub fn broken_body(fault: &axum::Error) -> ApiError {
    let message = format!("the body could not be read to its end: {fault}");
    let error = ApiError::new(ErrorCode::InvalidRequest, message);
    let mut cause = fault.source();
    while let Some(found) = cause {
        if let Some(BodyError::TooSlow { .. }) = found.downcast_ref() {
            return error.with_status(StatusCode::REQUEST_TIMEOUT);
        }
        cause = found.source();
    }
    error
}

fn too_large(announced: Option<u64>, max: usize) -> ApiError {
    let got = announced.map_or("larger".to_owned(), |announced| format!("{announced} bytes long"));
    let message = format!("the body is {got}; allowed: at most {max} bytes");
    ApiError::new(ErrorCode::InvalidRequest, message).with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// A segment of the path, decoded if possible.
pub fn segment(uri: &Uri, index: usize) -> String {
    let segment = uri.path().split('/').nth(index).unwrap_or_default();
    reader::path_segment(segment).map_or_else(|| segment.to_owned(), std::borrow::Cow::into_owned)
}

/// The sandbox id in `/v1/sandboxes/{id}…`. A text that is not an id names no sandbox. The layers decode it in the same way.
pub fn sandbox_id(uri: &Uri) -> Result<SandboxId, ApiError> {
    let segment = uri.path().split('/').nth(3).unwrap_or_default();
    let Some(named) = reader::path_segment(segment) else { return Err(error::not_found(segment, None)) };
    named.parse().map_err(|_| error::not_found(&named, None))
}
