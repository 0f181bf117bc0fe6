//! A command's events as Server-Sent Events (section 6.1, decision 13).
//!
//! One task pulls: hyper asks for the next chunk when the last is on its way, this asks the engine for the next output, and what
//! is not pulled waits inside the sandbox. So a slow reader slows the command, and no reader costs more than a chunk. What is
//! there already goes into one chunk; nothing waits for more to come. hyper drops the body when the client goes away, which
//! ends the command.

use api::{Done, ErrorCode, StreamEvent};
use axum::response::Response;
use bytes::Bytes;
use engine::{Execution, ExecutionEvent, Finished};
use futures_util::FutureExt;
use rules::LineSplitter;
use tokio_util::sync::CancellationToken;

use crate::error::{ApiError, During, of_engine};
use crate::request_id::RequestId;
use crate::sse::{self, Chunk, KEEP_ALIVE};

/// A chunk is sent when it is this long, or when nothing more is there.
const CHUNK_BYTES: usize = 64 << 10;
const COMMENT: &str = "still running";
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
    sse::response(events)
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

impl sse::Source for Events {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Chunk::default();
        loop {
            self.split_into(&mut chunk);
            let execution = self.execution.as_mut()?;
            if chunk.len() >= CHUNK_BYTES {
                return Some(chunk.into_bytes());
            }
            let event = if chunk.is_empty() {
                tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => {
                        self.end_with(&mut chunk, &stopping());
                        return Some(chunk.into_bytes());
                    }
                    event = execution.next() => event,
                    () = tokio::time::sleep(KEEP_ALIVE) => return Some(Chunk::comment(COMMENT).into_bytes()),
                }
            } else {
                match execution.next().now_or_never() {
                    Some(event) => event,
                    None => return Some(chunk.into_bytes()),
                }
            };
            match event {
                ExecutionEvent::Stdout(bytes) => self.unsplit = Some((Channel::Stdout, bytes)),
                ExecutionEvent::Stderr(bytes) => self.unsplit = Some((Channel::Stderr, bytes)),
                ExecutionEvent::Done(finished) => {
                    self.end(&mut chunk, &finished);
                    return Some(chunk.into_bytes());
                }
                ExecutionEvent::Failed(error) => {
                    let error = of_engine(error, None, During::Execute);
                    self.end_with(&mut chunk, &error);
                    return Some(chunk.into_bytes());
                }
            }
        }
    }
}

impl Events {
    fn splitter(&mut self, channel: Channel) -> &mut LineSplitter {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    /// Takes lines until the chunk is full or none is left.
    fn split_into(&mut self, chunk: &mut Chunk) {
        let Some((channel, bytes)) = self.unsplit.take() else { return };
        let mut left = &bytes[..];
        while chunk.len() < CHUNK_BYTES {
            let Some(line) = self.splitter(channel).next_piece(&mut left) else { return };
            self.write_line(chunk, channel, &line);
        }
        let used = bytes.len() - left.len();
        self.unsplit = Some((channel, bytes.slice(used..)));
    }

    fn write_rests(&mut self, chunk: &mut Chunk) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            while let Some(piece) = self.splitter(channel).next_rest() {
                self.write_line(chunk, channel, &piece);
            }
        }
    }

    /// The one that was split off last.
    fn write_line(&mut self, chunk: &mut Chunk, channel: Channel, line: &str) {
        let end = self.splitter(channel).last_end().name().filter(|_| self.line_ends);
        chunk.event(None, channel.event(), line, end);
    }

    fn end(&mut self, chunk: &mut Chunk, finished: &Finished) {
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
        chunk.json(None, StreamEvent::Done, &done);
    }

    /// Ends the command as well, if it still runs.
    fn end_with(&mut self, chunk: &mut Chunk, error: &ApiError) {
        self.execution = None;
        self.write_rests(chunk);
        chunk.error(None, error, &self.request_id);
    }
}

impl Channel {
    fn event(self) -> StreamEvent {
        match self {
            Self::Stdout => StreamEvent::Stdout,
            Self::Stderr => StreamEvent::Stderr,
        }
    }
}

fn stopping() -> ApiError {
    let message = "the daemon is stopping, which ended the command; the sandbox lives on";
    ApiError::new(ErrorCode::ResourceExhausted, message).with_detail("retryAfter", RETRY_AFTER_S)
}
