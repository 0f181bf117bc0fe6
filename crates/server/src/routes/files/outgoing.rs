//! The response body of a file operation. It is read from the sandbox as the client reads it, so a slow client costs no more than
//! a chunk.
//!
//! After a failure the body ends early, which the client detects by its length or the missing last chunk.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use engine::FileOperation;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

struct Outgoing {
    work: FileOperation,
    /// Bytes of the announced length that are not sent yet.
    left: Option<u64>,
    stopping: CancellationToken,
}

/// The body. With a length it has exactly that many bytes, whatever the sandbox sends.
pub fn body(work: FileOperation, length: Option<u64>, stopping: CancellationToken) -> Body {
    let outgoing = Some(Outgoing { work, left: length, stopping });
    Body::from_stream(stream::unfold(outgoing, |outgoing| async move {
        let mut outgoing = outgoing?;
        match outgoing.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(outgoing))),
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(%error, "a file was cut on its way out");
                Some((Err(error), None))
            }
        }
    }))
}

impl Outgoing {
    async fn next(&mut self) -> Result<Option<Bytes>, io::Error> {
        let stopping = self.stopping.clone();
        let bytes = tokio::select! {
            biased;
            () = stopping.cancelled() => return Err(io::Error::other("the daemon is stopping")),
            bytes = self.work.bytes() => bytes.map_err(io::Error::other)?,
        };
        let Some(left) = self.left else { return Ok(bytes) };
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match left.checked_sub(length) {
            Some(rest) if length > 0 || rest == 0 => self.left = Some(rest),
            _ => {
                return Err(io::Error::other(
                    "the sandbox sent another number of bytes than it had promised",
                ));
            }
        }
        Ok(bytes)
    }
}
