//! `GET /files`: the content of a file, or a range of it.
//!
//! The content is read from the sandbox as the client reads it. After a failure the body ends early, which the client detects by its
//! length or the missing last chunk.

use std::io::{self, Write as _};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::{EngineError, FileContent, FileInfo, FileOperation, FileRange, FileResponse, UserFileOp};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use rules::AutoResume;

use super::content_type;
use super::encoding::{Encoding, choose};
use super::range::{Condition, condition, http_date, range_applies, requested};
use crate::envd::connect::Code;
use crate::envd::failure::{Failure, http_error};
use crate::envd::filesystem::of_files;
use crate::envd::target::Target;

/// An open file.
struct Found {
    operation: FileOperation,
    content: FileSlice,
}

/// What is sent of a file.
struct FileSlice {
    info: FileInfo,
    offset: u64,
    /// `None` for files without a known length, such as many in `/proc`.
    length: Option<u64>,
}

pub async fn answer(
    target: &Target,
    user: &str,
    path: &str,
    parts: &request::Parts,
) -> Result<Response, Failure> {
    let headers = &parts.headers;
    let Some(encoding) = choose(headers) else {
        return Ok(http_error(
            StatusCode::NOT_ACCEPTABLE,
            "no encoding is acceptable; supported: identity, gzip",
        ));
    };
    let mut range =
        requested(headers).filter(|_| parts.method == Method::GET && encoding == Encoding::Identity);
    if range.is_some() && headers.contains_key(header::IF_RANGE) {
        // A range past the end of another version of the file is not an error.
        let now = open(target, user, path, None).await?;
        range = range.filter(|_| range_applies(headers, seconds(&now.content.info)));
    }
    let mut found = match open(target, user, path, range).await {
        Err(failure) if failure.code() == Some(Code::OutOfRange) => {
            return Ok(not_satisfiable(open(target, user, path, None).await?.content.info.size));
        }
        opened => opened?,
    };
    match condition(headers, seconds(&found.content.info)) {
        Condition::Send => {}
        Condition::NotModified => return Ok(StatusCode::NOT_MODIFIED.into_response()),
        Condition::Failed => return Ok(http_error(StatusCode::PRECONDITION_FAILED, "the file was modified")),
    }
    if range.is_some() && found.content.length.is_none() {
        // The size is unknown.
        range = None;
        found = open(target, user, path, None).await?;
    }
    if range.is_some() && found.content.length == Some(0) {
        return Ok(not_satisfiable(found.content.info.size));
    }
    let (extent, status) = match range {
        Some(_) => (Extent::Part, StatusCode::PARTIAL_CONTENT),
        None => (Extent::Whole, StatusCode::OK),
    };
    let headers = content_headers(path, &found.content, extent, encoding);
    // Without a body, the file operation is dropped here.
    let body = if parts.method == Method::HEAD { Body::empty() } else { body(found, encoding) };
    Ok((status, headers, body).into_response())
}

async fn open(target: &Target, user: &str, path: &str, range: Option<FileRange>) -> Result<Found, Failure> {
    let op = UserFileOp::Read { path: path.as_bytes().to_vec(), range: range.unwrap_or(FileRange::ALL) };
    let opened = async {
        let mut operation = target.sandbox().user_file_op(AutoResume::Forbidden, user, &op).await?;
        let response = operation.next_response().await?;
        Ok::<_, EngineError>((operation, response))
    };
    let (operation, response) = opened.await.map_err(|error| {
        of_files(error, user).reworded(Code::NotFound, || format!("path '{path}' does not exist"))
    })?;
    match response {
        FileResponse::Content { info, offset, length } => {
            Ok(Found { operation, content: FileSlice { info, offset, length } })
        }
        _ => Err(Failure::new(Code::Internal, "the sandbox gave an unexpected response")),
    }
}

fn seconds(info: &FileInfo) -> i64 {
    info.modified_ns.div_euclid(1_000_000_000)
}

fn not_satisfiable(size: u64) -> Response {
    let mut response =
        http_error(StatusCode::RANGE_NOT_SATISFIABLE, "the range begins after the end of the file");
    put(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
    response
}

fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    // Digits and ASCII letters: always a valid header value.
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// How much of a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Part,
}

fn content_headers(path: &str, content: &FileSlice, extent: Extent, encoding: Encoding) -> HeaderMap {
    let mut headers = HeaderMap::new();
    put(&mut headers, header::CONTENT_TYPE, content_type::of(path));
    put(&mut headers, header::VARY, "Accept-Encoding");
    // Content of a sandbox must not run in the origin of this service.
    put(&mut headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(&mut headers, header::CONTENT_SECURITY_POLICY, "sandbox");
    if let Some(date) = http_date(seconds(&content.info)) {
        put(&mut headers, header::LAST_MODIFIED, &date);
    }
    if encoding == Encoding::Gzip {
        put(&mut headers, header::CONTENT_ENCODING, "gzip");
        return headers;
    }
    put(&mut headers, header::ACCEPT_RANGES, "bytes");
    if let Some(length) = content.length {
        put(&mut headers, header::CONTENT_LENGTH, &length.to_string());
        if extent == Extent::Part {
            let last = content.offset.saturating_add(length).saturating_sub(1);
            let size = content.info.size.max(last.saturating_add(1));
            put(&mut headers, header::CONTENT_RANGE, &format!("bytes {}-{last}/{size}", content.offset));
        }
    }
    headers
}

/// The content on its way to the client.
struct Outgoing {
    content: FileContent,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

fn body(found: Found, encoding: Encoding) -> Body {
    let gzip = (encoding == Encoding::Gzip).then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let outgoing = Outgoing { content: FileContent::new(found.operation, found.content.length), gzip };
    Body::from_stream(stream::unfold(Some(outgoing), |outgoing| async move {
        let mut outgoing = outgoing?;
        match outgoing.next().await {
            Ok(Some((bytes, is_last))) => Some((Ok(bytes), (!is_last).then_some(outgoing))),
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(%error, "a download was cut");
                Some((Err(error), None))
            }
        }
    }))
}

impl Outgoing {
    /// The next bytes, and whether they are the last.
    async fn next(&mut self) -> io::Result<Option<(Bytes, bool)>> {
        loop {
            let bytes = self.content.next().await?;
            let Some(gzip) = &mut self.gzip else { return Ok(bytes.map(|bytes| (bytes, false))) };
            match bytes {
                Some(bytes) => gzip.write_all(&bytes)?,
                None => {
                    gzip.try_finish()?;
                    return Ok(Some((std::mem::take(gzip.get_mut()).into(), true)));
                }
            }
            let compressed = std::mem::take(gzip.get_mut());
            if !compressed.is_empty() {
                return Ok(Some((compressed.into(), false)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::FileKind;

    fn content(offset: u64, length: Option<u64>, size: u64) -> FileSlice {
        let info = FileInfo {
            kind: FileKind::File,
            mode: 0o644,
            size,
            modified_ns: 1_700_000_000_999_999_999,
            inode: 1,
            target: None,
        };
        FileSlice { info, offset, length }
    }

    fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn content_cannot_run_in_the_origin_of_the_service() {
        for encoding in [Encoding::Identity, Encoding::Gzip] {
            let headers = content_headers("/a/page.HTML", &content(0, Some(3), 3), Extent::Whole, encoding);
            assert_eq!(text(&headers, header::CONTENT_TYPE), Some("text/html; charset=utf-8"));
            assert_eq!(text(&headers, header::X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
            assert_eq!(text(&headers, header::CONTENT_SECURITY_POLICY), Some("sandbox"));
            assert_eq!(text(&headers, header::VARY), Some("Accept-Encoding"));
            assert_eq!(text(&headers, header::LAST_MODIFIED), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
        }
    }

    #[test]
    fn the_length_and_the_range_are_those_of_what_is_sent() {
        let headers =
            |content: &FileSlice, extent| content_headers("/a", content, extent, Encoding::Identity);
        for (content, extent, length, range) in [
            (content(0, Some(10), 10), Extent::Whole, Some("10"), None),
            (content(2, Some(3), 10), Extent::Part, Some("3"), Some("bytes 2-4/10")),
            (content(0, Some(0), 0), Extent::Whole, Some("0"), None),
            // It became shorter since its size was read.
            (content(2, Some(3), 4), Extent::Part, Some("3"), Some("bytes 2-4/5")),
            // Many files in /proc have no known length.
            (content(0, None, 0), Extent::Whole, None, None),
        ] {
            let headers = headers(&content, extent);
            assert_eq!(text(&headers, header::CONTENT_LENGTH), length);
            assert_eq!(text(&headers, header::CONTENT_RANGE), range);
            assert_eq!(text(&headers, header::ACCEPT_RANGES), Some("bytes"));
            assert_eq!(text(&headers, header::CONTENT_ENCODING), None);
        }
    }

    #[test]
    fn compressed_content_has_neither_length_nor_ranges() {
        let headers = content_headers("/a", &content(0, Some(10), 10), Extent::Whole, Encoding::Gzip);
        assert_eq!(text(&headers, header::CONTENT_ENCODING), Some("gzip"));
        assert_eq!(text(&headers, header::CONTENT_LENGTH), None);
        assert_eq!(text(&headers, header::ACCEPT_RANGES), None);
    }

    #[test]
    fn a_range_behind_the_end_is_answered_with_the_size() {
        let response = not_satisfiable(7);
        assert_eq!(response.status(), StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(text(response.headers(), header::CONTENT_RANGE), Some("bytes */7"));
    }

    #[test]
    fn seconds_are_rounded_down_before_1970_too() {
        let at = |modified_ns| seconds(&FileInfo { modified_ns, ..content(0, None, 0).info });
        assert_eq!([at(0), at(999_999_999), at(-1), at(-1_000_000_000)], [0, 0, -1, -1]);
    }
}
