//! Forwards a request body to a file operation, a few chunks at a time: the client is read at the speed of the sandbox's disk.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use admission::error::ApiError;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use engine::FileOperation;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::FileRequest;
use crate::routes::read::{broken_body, values};

/// Large enough to make the cost per frame of the link negligible; a body arrives in TLS records of 16 KiB.
const PIECE: usize = 192 * 1024;
/// Parts below this size are joined.
const SMALL_PART: usize = 8 * 1024;
/// How long received bytes wait for more.
const LINGER: Duration = Duration::from_millis(2);

/// Checks the headers of the body.
pub fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let encodings = values(headers, header::CONTENT_ENCODING);
    Ok(reader::raw_content(encodings, values(headers, header::CONTENT_RANGE))?)
}

/// Forwards the whole body. If the agent stops reading, the rest is left unread, and the agent's next response has the reason.
pub async fn forward(
    request: &FileRequest,
    work: &mut FileOperation,
    mut body: Body,
) -> Result<(), ApiError> {
    let mut waiting = Waiting::default();
    // One timer for all waits: to postpone it costs nothing, while each new one wakes the runtime's timer thread.
    let mut linger = pin!(tokio::time::sleep(LINGER));
    loop {
        let next = tokio::select! {
            biased;
            next = body.frame() => next,
            () = &mut linger, if waiting.bytes > 0 => {
                if !waiting.send(request, work).await? {
                    return Ok(());
                }
                continue;
            }
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|fault| broken_body(&fault))?;
        let Ok(data) = frame.into_data() else { continue };
        if waiting.bytes == 0 {
            linger.as_mut().reset(Instant::now() + LINGER);
        }
        waiting.push(data);
        if waiting.bytes >= PIECE && !waiting.send(request, work).await? {
            return Ok(());
        }
    }
    if waiting.bytes > 0 && !waiting.send(request, work).await? {
        return Ok(());
    }
    work.finish().await.map(drop).map_err(|error| request.fault(error))
}

/// Received parts of a body that are sent together.
#[derive(Default)]
struct Waiting {
    parts: VecDeque<Bytes>,
    /// Copies of small parts, which follow `parts`.
    small: BytesMut,
    bytes: usize,
}

impl Waiting {
    /// A part holds the buffer into which it was read, so small ones are copied: otherwise a client that sends single bytes would
    /// make the service hold much more memory than it sends.
    fn push(&mut self, part: Bytes) {
        self.bytes += part.len();
        if part.len() < SMALL_PART {
            self.small.extend_from_slice(&part);
        } else {
            self.collect_small();
            self.parts.push_back(part);
        }
    }

    fn collect_small(&mut self) {
        if !self.small.is_empty() {
            self.parts.push_back(self.small.split().freeze());
        }
    }

    /// `false` if the agent stopped reading.
    async fn send(&mut self, request: &FileRequest, work: &mut FileOperation) -> Result<bool, ApiError> {
        self.bytes = 0;
        self.collect_small();
        let parts = std::mem::take(&mut self.parts);
        work.send_upload(parts).await.map_err(|error| request.fault(error))
    }
}
