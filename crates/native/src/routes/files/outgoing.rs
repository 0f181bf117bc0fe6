//! The response body of a file operation. It is read from the sandbox as the client reads it, so a slow client costs no more than
//! a chunk.
//!
//! After a failure the body ends early, which the client detects by its length or the missing last chunk.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use engine::{FileContent, FileOperation};
use futures_util::stream;
use tokio_util::sync::CancellationToken;

struct Outgoing {
    content: FileContent,
    stopping: CancellationToken,
}

/// The body. With a length it has exactly that many bytes, whatever the sandbox sends.
pub fn body(work: FileOperation, length: Option<u64>, stopping: CancellationToken) -> Body {
    let outgoing = Some(Outgoing { content: FileContent::new(work, length), stopping });
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
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let stopping = self.stopping.clone();
        tokio::select! {
            biased;
            () = stopping.cancelled() => Err(io::Error::other("the daemon is stopping")),
            bytes = self.content.next() => bytes,
        }
    }
}
