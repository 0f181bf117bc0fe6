//! `GET /v1/sandboxes/{id}/files`: a file's content, or a range of it.

use admission::endpoint::parameter::text;
use admission::endpoint::{Content, INSPECT, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{FileInfo, FileOp, FileOperation, FileRange, FileResponse};
use reader::ByteRange;

use super::{COMMON_ERRORS, FileRequest, outgoing, view};
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::values;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files", INSPECT)
        .describe(
            "readFile",
            Tag::Files,
            "Read a file",
            "Returns the content unchanged. With a single `Range: bytes=FIRST-LAST` the response \
         is `206` with that part. `ETag` identifies the content; if `If-Range` names another, \
         the response is the whole content. `HEAD` returns the headers only. A file without a \
         known length, such as many in `/proc`, has no `Content-Length`.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/notes.txt"),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
            Parameter::header(
                "Range",
                "A single range of bytes. Any other value is ignored (RFC 9110).",
                text,
            )
            .example("bytes=0-1023"),
            Parameter::header("If-Range", "The `ETag` to which the range applies.", text),
        ])
        .responds(StatusCode::OK, "The content.", [Content::raw("application/octet-stream")])
        .header("ETag", "Identifies the content.")
        .header("Last-Modified", "Time of the last modification.")
        .responds(
            StatusCode::PARTIAL_CONTENT,
            "The requested part.",
            [Content::raw("application/octet-stream")],
        )
        .header("Content-Range", "The part and the total length.")
        .header("ETag", "Identifies the content.")
        .error_as(
            StatusCode::RANGE_NOT_SATISFIABLE,
            ErrorCode::InvalidRequest,
            "The range begins after the end of the file",
        )
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::NotAFile, "The path is a directory, a device, a FIFO or a socket"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
        ])
        .handler(read)
}

async fn read(call: Call) -> Result<Response, ApiError> {
    let request = FileRequest::to("read", &call).await?;
    let parts = &call.parts;
    let path = request.query.path("path")?;
    let mut range =
        reader::byte_range(values(&parts.headers, header::RANGE)).filter(|_| parts.method == Method::GET);
    let is_other = |info: &FileInfo| {
        let wanted = parts.headers.get(header::IF_RANGE);
        wanted.is_some_and(|tag| tag.as_bytes() != view::etag(info).as_bytes())
    };
    if range.is_some() && parts.headers.contains_key(header::IF_RANGE) {
        // A range past the end of another version of the file is not an error.
        let now = open(&request, &path, None).await?;
        range = range.filter(|_| !is_other(&now.info));
    }
    let mut found = open(&request, &path, range).await?;
    if found.extent == Extent::Part && (is_other(&found.info) || found.length.is_none()) {
        // The range is of another version of the file, or the file's size is unknown.
        found = open(&request, &path, None).await?;
    }
    if found.extent == Extent::Part && found.length == Some(0) {
        return Err(range_not_satisfiable(&found.info));
    }
    if parts.method == Method::GET {
        request.record_read(&found.work.paths[0], &found.info);
    }
    Ok(answer(&request, found, &parts.method))
}

/// How much of a file is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Part,
}

/// An open file.
struct Found {
    extent: Extent,
    work: FileOperation,
    info: FileInfo,
    offset: u64,
    length: Option<u64>,
}

async fn open(request: &FileRequest, path: &[u8], range: Option<ByteRange>) -> Result<Found, ApiError> {
    let (extent, range) = match range {
        None => (Extent::Whole, FileRange::ALL),
        Some(ByteRange::From { offset, length }) => {
            (Extent::Part, FileRange { offset, from_end: false, length })
        }
        Some(ByteRange::Last(bytes)) => {
            (Extent::Part, FileRange { offset: bytes, from_end: true, length: None })
        }
    };
    let mut work = request.begin_as(&FileOp::Read { path: path.to_vec(), range }).await?;
    match work.next_response().await.map_err(|error| request.fault(error))? {
        FileResponse::Content { info, offset, length } => Ok(Found { extent, work, info, offset, length }),
        _ => Err(ApiError::internal("the agent gave an unexpected response to a read operation")),
    }
}

fn range_not_satisfiable(info: &FileInfo) -> ApiError {
    let message = format!("the range starts after the end of the file, which has {} bytes", info.size);
    ApiError::new(api::ErrorCode::InvalidRequest, message).with_status(StatusCode::RANGE_NOT_SATISFIABLE)
}

fn answer(request: &FileRequest, found: Found, method: &Method) -> Response {
    let Found { extent, work, info, offset, length } = found;
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, text: String| {
        // Digits and ASCII letters: always a valid header value.
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    put(header::CONTENT_TYPE, "application/octet-stream".to_owned());
    put(header::ACCEPT_RANGES, "bytes".to_owned());
    // No browser may interpret the content, whatever its type.
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    put(header::LAST_MODIFIED, view::modified(&info).http_date());
    if let Some(length) = length {
        put(header::ETAG, view::etag(&info));
        put(header::CONTENT_LENGTH, length.to_string());
        if extent == Extent::Part {
            let last = offset.saturating_add(length).saturating_sub(1);
            put(
                header::CONTENT_RANGE,
                format!("bytes {offset}-{last}/{}", info.size.max(last.saturating_add(1))),
            );
        }
    }
    let status = match extent {
        Extent::Whole => StatusCode::OK,
        Extent::Part => StatusCode::PARTIAL_CONTENT,
    };
    // Without a body, the file operation is dropped here.
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        outgoing::body(work, length, request.sandbox.service.stopping.clone())
    };
    (status, headers, body).into_response()
}
