//! A command's events as Server-Sent Events (section 6.1, decision 13).
//!
//! One task pulls: hyper asks for the next chunk when the last is on its way, this asks the engine for the next output, and what
//! is not pulled waits inside the sandbox. So a slow reader slows the command, and no reader costs more than a chunk. What is
//! there already goes into one chunk; nothing waits for more to come. hyper drops the body when the client goes away, which
//! ends the command.

use std::time::Duration;

use api::{Done, ErrorCode, ErrorObject};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use engine::{Execution, ExecutionEvent, Finished};
use futures_util::{FutureExt, stream};
use rules::LineSplitter;
use tokio_util::sync::CancellationToken;

use crate::error::{ApiError, During, of_engine};
use crate::request_id::RequestId;

/// A chunk is sent when it is this long, or when nothing more is there.
const CHUNK_BYTES: usize = 64 << 10;
/// Proxies drop connections on which nothing happens for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const COMMENT: &[u8] = b": still running\n\n";
const RETRY_AFTER_S: u64 = 5;

/// The streaming answer to a command that was let in. With `line_ends` its events tell how their lines end.
pub fn response(
    execution: Execution,
    line_ends: bool,
    request_id: RequestId,
    stopping: CancellationToken,
) -> Response {
    let events = Events {
        execution: Some(execution),
        unsplit: None,
        stdout: LineSplitter::new(),
        stderr: LineSplitter::new(),
        line_ends,
        request_id,
        stopping,
    };
    let chunks = stream::unfold(events, |mut events| async move {
        let chunk = events.next_chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), events))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Asks nginx and its like to pass lines on as they come.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    Stdout,
    Stderr,
}

struct Events {
    /// None when the last event is out.
    execution: Option<Execution>,
    /// Output that came and is not split into lines yet.
    unsplit: Option<(Channel, Bytes)>,
    stdout: LineSplitter,
    stderr: LineSplitter,
    /// Whether events tell how their lines end.
    line_ends: bool,
    request_id: RequestId,
    stopping: CancellationToken,
}

impl Events {
    /// Whole events, at least one; nothing after the last.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = BytesMut::new();
        loop {
            self.split_into(&mut chunk);
            let execution = self.execution.as_mut()?;
            if chunk.len() >= CHUNK_BYTES {
                return Some(chunk.freeze());
            }
            let event = if chunk.is_empty() {
                tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => {
                        self.end_with(&mut chunk, &stopping());
                        return Some(chunk.freeze());
                    }
                    event = execution.next() => event,
                    () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(COMMENT)),
                }
            } else {
                match execution.next().now_or_never() {
                    Some(event) => event,
                    None => return Some(chunk.freeze()),
                }
            };
            match event {
                ExecutionEvent::Stdout(bytes) => self.unsplit = Some((Channel::Stdout, bytes)),
                ExecutionEvent::Stderr(bytes) => self.unsplit = Some((Channel::Stderr, bytes)),
                ExecutionEvent::Done(finished) => {
                    self.end(&mut chunk, &finished);
                    return Some(chunk.freeze());
                }
                ExecutionEvent::Failed(error) => {
                    let error = of_engine(error, None, During::Execute);
                    self.end_with(&mut chunk, &error);
                    return Some(chunk.freeze());
                }
            }
        }
    }

    fn splitter(&mut self, channel: Channel) -> &mut LineSplitter {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    /// Takes lines until the chunk is full or none is left.
    fn split_into(&mut self, chunk: &mut BytesMut) {
        let Some((channel, bytes)) = self.unsplit.take() else { return };
        let mut left = &bytes[..];
        while chunk.len() < CHUNK_BYTES {
            let Some(line) = self.splitter(channel).next_piece(&mut left) else { return };
            self.write_line(chunk, channel, &line);
        }
        let used = bytes.len() - left.len();
        self.unsplit = Some((channel, bytes.slice(used..)));
    }

    fn write_rests(&mut self, chunk: &mut BytesMut) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            while let Some(piece) = self.splitter(channel).next_rest() {
                self.write_line(chunk, channel, &piece);
            }
        }
    }

    /// The one that was split off last.
    fn write_line(&mut self, chunk: &mut BytesMut, channel: Channel, line: &str) {
        let end = self.splitter(channel).last_end().name().filter(|_| self.line_ends);
        write_event(chunk, channel.name(), line, end);
    }

    fn end(&mut self, chunk: &mut BytesMut, finished: &Finished) {
        self.execution = None;
        if let Some(note) = &finished.outcome.stderr_note {
            let mut note = note.as_bytes();
            while let Some(line) = self.stderr.next_piece(&mut note) {
                self.write_line(chunk, Channel::Stderr, &line);
            }
        }
        self.write_rests(chunk);
        let done = Done {
            exit_code: finished.outcome.exit_code,
            duration_ms: finished.duration_ms,
            signal: finished.outcome.signal.as_deref().map(str::to_owned),
        };
        // A struct of numbers and text has a JSON.
        write_event(chunk, "done", &serde_json::to_string(&done).unwrap_or_default(), None);
    }

    /// Ends the command as well, if it still runs.
    fn end_with(&mut self, chunk: &mut BytesMut, error: &ApiError) {
        self.execution = None;
        self.write_rests(chunk);
        if let Some(cause) = &error.cause {
            tracing::error!(request_id = %self.request_id.0, cause, "a streamed command failed");
        }
        let object = ErrorObject {
            code: error.code,
            message: error.message.clone(),
            details: error.details.clone(),
            request_id: self.request_id.0.to_string(),
        };
        write_event(chunk, "error", &serde_json::to_string(&object).unwrap_or_default(), None);
    }
}

impl Channel {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

fn stopping() -> ApiError {
    let message = "the daemon is stopping, which ended the command; the sandbox lives on";
    ApiError::new(ErrorCode::ResourceExhausted, message).with_detail("retryAfter", RETRY_AFTER_S)
}

/// A carriage return ends a line of a stream, so it begins another `data:` line: the client reads a line feed in its place.
fn write_event(chunk: &mut BytesMut, name: &str, data: &str, end: Option<&str>) {
    chunk.extend_from_slice(b"event: ");
    chunk.extend_from_slice(name.as_bytes());
    for line in data.split('\r') {
        chunk.extend_from_slice(b"\ndata: ");
        chunk.extend_from_slice(line.as_bytes());
    }
    if let Some(end) = end {
        chunk.extend_from_slice(b"\nend: ");
        chunk.extend_from_slice(end.as_bytes());
    }
    chunk.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests;
