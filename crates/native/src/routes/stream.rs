//! The output of a command as Server-Sent Events (docs/api.md).
//!
//! hyper requests the next chunk when the last one is on its way, and only then output is read from the engine. So a slow client
//! slows the command and costs no more memory than a chunk. A chunk has all output that is available, without waiting for more.
//! When the client disconnects, hyper drops the body, which ends the command.

use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{Done, StreamEvent};
use axum::response::Response;
use bytes::Bytes;
use engine::{Execution, ExecutionEvent, Finished};
use futures_util::FutureExt;
use reader::OutputForm;
use service::error::{OperationKind, of_engine};
use service::output::Pieces;
use tokio_util::sync::CancellationToken;

use crate::sse::{self, Chunk, KEEP_ALIVE};

/// The size at which a chunk is sent even if more output is available.
const CHUNK_BYTES: usize = 64 << 10;
const COMMENT: &str = "still running";

/// The response with the stream.
pub fn response(
    execution: Execution,
    form: OutputForm,
    request_id: RequestId,
    stopping: CancellationToken,
) -> Response {
    let events = Events {
        execution: Some(execution),
        unsplit: None,
        stdout: Pieces::new(form),
        stderr: Pieces::new(form),
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
    /// `None` after the last event.
    execution: Option<Execution>,
    /// Output that is not in events yet.
    unsplit: Option<(Channel, Bytes)>,
    stdout: Pieces,
    stderr: Pieces,
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
                    let error = of_engine(error, None, OperationKind::Execute);
                    self.end_with(&mut chunk, &error);
                    return Some(chunk.into_bytes());
                }
            }
        }
    }
}

impl Events {
    fn pieces(&mut self, channel: Channel) -> &mut Pieces {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    /// Writes events until the chunk is full or nothing is left.
    fn split_into(&mut self, chunk: &mut Chunk) {
        let Some((channel, bytes)) = self.unsplit.take() else { return };
        let mut left = &bytes[..];
        while chunk.len() < CHUNK_BYTES {
            let Some(piece) = self.pieces(channel).next(&mut left) else { return };
            chunk.output(None, channel.event(), &piece);
        }
        let used = bytes.len() - left.len();
        self.unsplit = Some((channel, bytes.slice(used..)));
    }

    fn write_rests(&mut self, chunk: &mut Chunk) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            while let Some(piece) = self.pieces(channel).next_remainder() {
                chunk.output(None, channel.event(), &piece);
            }
        }
    }

    fn end(&mut self, chunk: &mut Chunk, finished: &Finished) {
        self.execution = None;
        if let Some(note) = &finished.outcome.stderr_note {
            let mut note = note.as_bytes();
            while let Some(piece) = self.stderr.next(&mut note) {
                chunk.output(None, StreamEvent::Stderr, &piece);
            }
        }
        self.write_rests(chunk);
        let done = Done {
            exit_code: finished.outcome.exit_code,
            duration_ms: finished.duration_ms,
            signal: finished.outcome.signal.as_deref().map(str::to_owned),
            reason: finished.outcome.reason,
            message: finished.outcome.message.clone(),
        };
        chunk.json(None, StreamEvent::Done, &done);
    }

    /// Also ends the command if it is running.
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
    ApiError::stopping("the daemon is stopping and ended the command; the sandbox keeps running")
}
