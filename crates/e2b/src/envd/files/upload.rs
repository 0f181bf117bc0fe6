//! `POST /files`: writes files in place.
//!
//! A body is forwarded while it arrives and never held as a whole. If the client disconnects, the file keeps what was written; that is
//! what programs that watch the file expect of writes in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use engine::{FileAttributes, FileOperation, PathDetails, UserFileOp};
use futures_util::{Stream, stream};
use multer::{Field, Multipart};
use rules::AutoResume;
use serde_json::{Value, json};

use super::inflate::DecodedBody;
use super::metadata;
use crate::envd::connect::{Code, RpcError};
use crate::envd::failure::Failure;
use crate::envd::filesystem::entry;
use crate::envd::filesystem::of_files;
use crate::envd::target::Target;

/// Large enough to make the cost per frame of the link negligible.
const PIECE: usize = 192 * 1024;
/// Most files in one request.
const MAX_FILES: usize = 1000;
/// Most bytes before a part begins: its headers, and what precedes the first boundary.
const MAX_HEAD: usize = 64 * 1024;
/// The name of the parts that are files.
const FILE_PART: &str = "file";

/// Where uploads go.
struct Destination<'a> {
    target: &'a Target,
    user: &'a str,
    attributes: FileAttributes,
}

/// Writes the files of a request; returns their entries in order.
pub async fn answer(
    target: &Target,
    user: &str,
    path: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Value, Failure> {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_gzip = match text(header::CONTENT_ENCODING) {
        None | Some("identity" | "") => false,
        Some("gzip" | "x-gzip") => true,
        Some(other) => {
            let message = format!("Content-Encoding is '{other}'; allowed: gzip, identity");
            return Err(RpcError::invalid(message).into());
        }
    };
    let body = DecodedBody::new(body, is_gzip);
    let destination = Destination { target, user, attributes: metadata::attributes(headers)? };
    let content_type = text(header::CONTENT_TYPE).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/octet-stream") {
        if path.is_empty() {
            return Err(RpcError::invalid("the parameter 'path' is required").into());
        }
        let written = destination.write_body(path, body).await?;
        return Ok(json!([upload_entry(&written)]));
    }
    let Ok(boundary) = multer::parse_boundary(content_type) else {
        let message = "Content-Type is not multipart/form-data with a boundary, nor application/octet-stream";
        return Err(RpcError::invalid(message).into());
    };
    let head = Arc::new(AtomicUsize::new(0));
    let body = limited(body, Arc::clone(&head));
    destination.write_parts(path, Parts { multipart: Multipart::new(body, boundary), head }).await
}

/// The body, which ends with an error if the parser takes [`MAX_HEAD`] bytes and finds no part in them: it keeps them all, and
/// searches them again with each piece.
fn limited(
    body: DecodedBody,
    head: Arc<AtomicUsize>,
) -> impl Stream<Item = Result<Bytes, RpcError>> + Send + 'static {
    stream::unfold((body, head), |(mut body, head)| async move {
        if head.load(Ordering::Relaxed) >= MAX_HEAD {
            // The parser takes all that is ready before it searches.
            tokio::task::yield_now().await;
        }
        if head.load(Ordering::Relaxed) >= MAX_HEAD {
            let error = RpcError::invalid(format!("more than {MAX_HEAD} bytes of the form precede a part"));
            return Some((Err(error), (body, head)));
        }
        let next = body.next().await.transpose()?;
        head.fetch_add(next.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
        Some((next, (body, head)))
    })
}

/// The parts of a form.
struct Parts {
    multipart: Multipart<'static>,
    /// Bytes that the parser took since it was called.
    head: Arc<AtomicUsize>,
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Field<'static>>, Failure> {
        self.head.store(0, Ordering::Relaxed);
        self.multipart.next_field().await.map_err(|error| malformed(&error))
    }

    /// The next piece of a part.
    async fn chunk(&self, part: &mut Field<'static>) -> Result<Option<Bytes>, Failure> {
        self.head.store(0, Ordering::Relaxed);
        part.chunk().await.map_err(|error| malformed(&error))
    }
}

impl Destination<'_> {
    async fn write_parts(&self, path: &str, mut parts: Parts) -> Result<Value, Failure> {
        let mut written = Vec::new();
        while let Some(mut part) = parts.next().await? {
            if part.name() != Some(FILE_PART) {
                while parts.chunk(&mut part).await?.is_some() {}
                continue;
            }
            if written.len() >= MAX_FILES || (!path.is_empty() && !written.is_empty()) {
                let message =
                    "there are too many files: with the parameter 'path' one, otherwise at most 1000";
                return Err(RpcError::invalid(message).into());
            }
            let name = match path {
                "" => part.file_name().map(unescape).unwrap_or_default(),
                path => path.to_owned(),
            };
            if name.is_empty() {
                return Err(
                    RpcError::invalid("a file has neither a file name nor the parameter 'path'").into()
                );
            }
            written.push(upload_entry(&self.write_part(&name, &parts, part).await?));
        }
        if written.is_empty() {
            return Err(RpcError::invalid("the body has no part named 'file'").into());
        }
        Ok(Value::Array(written))
    }

    async fn write_part(
        &self,
        path: &str,
        parts: &Parts,
        mut part: Field<'static>,
    ) -> Result<PathDetails, Failure> {
        let mut upload = self.open(path).await?;
        while let Some(bytes) = parts.chunk(&mut part).await? {
            if !upload.push(&bytes).await? {
                break;
            }
        }
        upload.finish().await
    }

    async fn write_body(&self, path: &str, mut body: DecodedBody) -> Result<PathDetails, Failure> {
        let mut upload = self.open(path).await?;
        while let Some(bytes) = body.next().await? {
            if !upload.push(&bytes).await? {
                break;
            }
        }
        upload.finish().await
    }

    async fn open(&self, path: &str) -> Result<Upload<'_>, Failure> {
        let op = UserFileOp::WriteInPlace {
            path: path.as_bytes().to_vec(),
            attributes: Some(self.attributes.clone()),
        };
        let started = self.target.sandbox().user_file_op(AutoResume::Forbidden, self.user, &op).await;
        let operation = started.map_err(|error| of_files(error, self.user))?;
        Ok(Upload { operation, user: self.user, joined: BytesMut::new() })
    }
}

/// One file that is being written.
struct Upload<'a> {
    operation: FileOperation,
    user: &'a str,
    joined: BytesMut,
}

impl Upload<'_> {
    /// False if the operation accepts no more; [`Upload::finish`] has the reason.
    async fn push(&mut self, bytes: &Bytes) -> Result<bool, Failure> {
        self.joined.extend_from_slice(bytes);
        if self.joined.len() < PIECE { Ok(true) } else { self.send().await }
    }

    async fn send(&mut self) -> Result<bool, Failure> {
        let sent = self.operation.send_upload([self.joined.split().freeze()].into()).await;
        sent.map_err(|error| of_files(error, self.user))
    }

    async fn finish(mut self) -> Result<PathDetails, Failure> {
        if self.joined.is_empty() || self.send().await? {
            self.operation.finish().await.map_err(|error| of_files(error, self.user))?;
        }
        self.operation.details().await.map_err(|error| of_files(error, self.user))
    }
}

/// The entry of a written file. Clients compare it exactly.
fn upload_entry(details: &PathDetails) -> Value {
    let mut entry =
        json!({ "name": entry::text(details.name()), "path": entry::text(&details.path), "type": "file" });
    if let (Some(metadata), Some(entry)) = (entry::metadata(details), entry.as_object_mut()) {
        entry.insert("metadata".to_owned(), metadata);
    }
    entry
}

/// Undoes the escapes of file names in forms: only these three characters have one.
fn unescape(name: &str) -> String {
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

fn malformed(error: &multer::Error) -> Failure {
    if let multer::Error::StreamReadFailed(cause) = error
        && let Some(cause) = cause.downcast_ref::<RpcError>()
    {
        return cause.clone().into();
    }
    Failure::new(Code::InvalidArgument, format!("the form is malformed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn first_part(content: Vec<u8>) -> Result<Option<String>, String> {
        let pieces =
            content.chunks(16 << 10).map(|piece| Ok::<_, axum::Error>(Bytes::copy_from_slice(piece)));
        let body = Body::from_stream(stream::iter(pieces.collect::<Vec<_>>()));
        let head = Arc::new(AtomicUsize::new(0));
        let stream = limited(DecodedBody::new(body, false), Arc::clone(&head));
        let mut parts = Parts { multipart: Multipart::new(stream, "B"), head };
        let part = parts.next().await.map_err(|failure| failure.to_string())?;
        let Some(mut part) = part else { return Ok(None) };
        let mut bytes = 0;
        while let Some(piece) = parts.chunk(&mut part).await.map_err(|failure| failure.to_string())? {
            bytes += piece.len();
        }
        Ok(Some(format!("{} {bytes}", part.name().unwrap_or_default())))
    }

    #[tokio::test]
    async fn what_precedes_a_part_is_limited_and_its_content_is_not() {
        let part = |content: usize| {
            let head = b"--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
            [&head[..], &vec![b'x'; content], b"\r\n--B--\r\n"].concat()
        };
        assert_eq!(first_part(part(3 << 20)).await, Ok(Some(format!("file {}", 3 << 20))));
        let preamble = |bytes: usize| [vec![b'z'; bytes], b"\r\n".to_vec(), part(1)].concat();
        assert_eq!(first_part(preamble(1000)).await, Ok(Some("file 1".to_owned())));
        for endless in [vec![b'z'; 1 << 20], [b"--B\r\nX-Y: ".to_vec(), vec![b'z'; 1 << 20]].concat()] {
            let refused = first_part(endless).await.unwrap_err();
            assert!(refused.contains("precede a part"), "{refused}");
        }
    }

    #[test]
    fn names_in_forms_are_unescaped_once() {
        assert_eq!(unescape("/tmp/a%22b%0Ac%20d%2522"), "/tmp/a\"b\nc%20d%2522");
    }
}
