//! `GET /v1/sandboxes/{id}/files`: a file's content, or a range of it.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use engine::{FileInfo, FileOp, FileOperation, FileRange, FileResponse};
use reader::ByteRange;

use super::{Asked, outgoing, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::read::values;
use crate::service::Service;

/// Read a file
///
/// Its bytes as they are. With the header `Range: bytes=FIRST-LAST`, one range, the answer is `206` with that part. `ETag` names the content;
/// a range under `If-Range` with another name gets all of the new content. `HEAD` tells the same without the content. Files that do not
/// know their length, as many in `/proc`, come without `Content-Length`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files", operation_id = "readFile", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.txt"),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to."),
        ("Range" = Option<String>, Header, nullable = false, description = "The bytes that are wanted, one range. What is no such range is passed over, as RFC 9110 has it.", example = "bytes=0-1023"),
        ("If-Range" = Option<String>, Header, nullable = false, description = "The `ETag` that the range is of.")
    ),
    responses(
        (status = 200, description = "The content.", content((String = "application/octet-stream")),
            headers(("ETag" = String, description = "Names the content."), ("Last-Modified" = String, description = "When it was changed."))),
        (status = 206, description = "The part that was asked for.", content((String = "application/octet-stream")),
            headers(("Content-Range" = String, description = "Which part of how much."), ("ETag" = String, description = "Names the content."))),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at the path: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. It is a directory, a device, a fifo or a socket: `NOT_A_FILE`. Something on the way is no directory: `NOT_A_DIRECTORY`."),
        (status = 416, description = "The range begins behind the end: `INVALID_REQUEST`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn read(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?.to("read").in_run(&headers)?;
    let path = asked.query.path("path")?;
    let mut range = reader::byte_range(values(&headers, header::RANGE)).filter(|_| method == Method::GET);
    let is_other = |info: &FileInfo| {
        let wanted = headers.get(header::IF_RANGE);
        wanted.is_some_and(|tag| tag.as_bytes() != shown::etag(info).as_bytes())
    };
    if range.is_some() && headers.contains_key(header::IF_RANGE) {
        // That a range begins behind the end of another content is nobody's mistake.
        let now = open(&asked, &path, None).await?;
        range = range.filter(|_| !is_other(&now.info));
    }
    let mut found = open(&asked, &path, range).await?;
    let mut is_part = range.is_some();
    if is_part && (is_other(&found.info) || found.length.is_none()) {
        // The range is of another content, or its end cannot be told.
        found = open(&asked, &path, None).await?;
        is_part = false;
    }
    if is_part && found.length == Some(0) {
        return Err(nothing_of(&found.info));
    }
    if method == Method::GET {
        asked.tell_read(&found.work.paths[0], &found.info);
    }
    Ok(answer(&asked, found, is_part, &method))
}

/// A file whose bytes wait.
struct Found {
    work: FileOperation,
    info: FileInfo,
    offset: u64,
    length: Option<u64>,
}

async fn open(asked: &Asked, path: &[u8], range: Option<ByteRange>) -> Result<Found, ApiError> {
    let range = match range {
        None => FileRange::ALL,
        Some(ByteRange::From { offset, length }) => FileRange { offset, from_end: false, length },
        Some(ByteRange::Last(bytes)) => FileRange { offset: bytes, from_end: true, length: None },
    };
    let mut work = asked.begin_as(&FileOp::Read { path: path.to_vec(), range }).await?;
    match work.next_response().await.map_err(|error| asked.fault(error))? {
        FileResponse::Content { info, offset, length } => Ok(Found { work, info, offset, length }),
        _ => Err(ApiError::internal("an errand read a file and said something else")),
    }
}

fn nothing_of(info: &FileInfo) -> ApiError {
    let message = format!("the file has {} bytes; nothing of them is in the range", info.size);
    ApiError::new(api::ErrorCode::InvalidRequest, message).with_status(StatusCode::RANGE_NOT_SATISFIABLE)
}

fn answer(asked: &Asked, found: Found, is_part: bool, method: &Method) -> Response {
    let Found { work, info, offset, length } = found;
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, text: String| {
        // Digits and plain letters, every one of them.
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    put(header::CONTENT_TYPE, "application/octet-stream".to_owned());
    put(header::ACCEPT_RANGES, "bytes".to_owned());
    // Whatever the file says of itself, it runs in nobody's browser.
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    put(header::LAST_MODIFIED, shown::modified(&info).http_date());
    if let Some(length) = length {
        put(header::ETAG, shown::etag(&info));
        put(header::CONTENT_LENGTH, length.to_string());
        if is_part {
            let last = offset.saturating_add(length).saturating_sub(1);
            put(
                header::CONTENT_RANGE,
                format!("bytes {offset}-{last}/{}", info.size.max(last.saturating_add(1))),
            );
        }
    }
    let status = if is_part { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    // Who wants no content lets go of the errand here.
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        outgoing::body(work, length, asked.service.stopping.clone())
    };
    (status, headers, body).into_response()
}
