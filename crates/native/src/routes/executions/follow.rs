//! The output of an execution as Server-Sent Events: stored output after an offset, then new output.
//!
//! The events are those of execute. Each has an id: the number of bytes of each stream up to its end. A part of a line that has not
//! ended is neither sent nor counted, so a client that reconnects with the last id gets whole lines, and every byte once. hyper
//! requests the next chunk when the last one is on its way, and only then more is read from the log.

use std::fmt::Display;
use std::sync::Arc;

use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{Done, ErrorCode, StreamEvent};
use axum::response::Response;
use bytes::Bytes;
use engine::{Channel, DaemonError, EngineError, ExecutionState, ExecutionStatus, OutputEvent, OutputReader};
use futures_util::FutureExt;
use reader::OutputForm;
use rules::OutputPosition;
use serde_json::json;
use service::Service;
use service::error::{OperationKind, key_ended, of_engine};
use service::output::Pieces;

use crate::sse::{self, Chunk, KEEP_ALIVE};

/// The size at which a chunk is sent even if more output is available.
const CHUNK_BYTES: usize = 64 << 10;
/// The id of the last event.
const END: &str = "end";

/// The parameters of a stream.
pub struct StreamStart {
    pub reader: OutputReader,
    pub from: OutputPosition,
    pub form: OutputForm,
    pub key_id: Arc<str>,
    pub request_id: RequestId,
}

/// The response with the stream.
pub fn response(service: Arc<Service>, start: StreamStart) -> Response {
    let StreamStart { reader, from, form, key_id, request_id } = start;
    let following = OutputStream {
        service,
        key_id,
        request_id,
        reader,
        unsplit: None,
        stdout: Stream { pieces: Pieces::new(form), read: from.stdout },
        stderr: Stream { pieces: Pieces::new(form), read: from.stderr },
        stage: Stage::First,
    };
    sse::response(following)
}

struct OutputStream {
    service: Arc<Service>,
    key_id: Arc<str>,
    request_id: RequestId,
    reader: OutputReader,
    /// Output that is not in events yet.
    unsplit: Option<(Channel, Bytes)>,
    stdout: Stream,
    stderr: Stream,
    stage: Stage,
}

/// One of the two streams.
struct Stream {
    pieces: Pieces,
    /// Bytes of the stream that went into the pieces, from the start of the output.
    read: u64,
}

impl Stream {
    /// Bytes of the stream that were sent.
    fn sent_bytes(&self) -> u64 {
        self.read - self.pieces.held_bytes() as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Following,
    Ended,
}

impl sse::Source for OutputStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        match self.stage {
            Stage::First => {
                self.stage = Stage::Following;
                return Some(Chunk::opening(&self.position()).into_bytes());
            }
            Stage::Ended => return None,
            Stage::Following => {}
        }
        let mut chunk = Chunk::default();
        if !self.service.gate.keyring.has(&self.key_id) {
            self.end_with(&mut chunk, &key_ended());
            return Some(chunk.into_bytes());
        }
        while self.stage == Stage::Following {
            self.split_into(&mut chunk);
            if chunk.len() >= CHUNK_BYTES {
                break;
            }
            let followed = if chunk.is_empty() {
                tokio::select! {
                    biased;
                    () = self.service.stopping.cancelled() => Err(EngineError::Daemon(DaemonError::Stopping)),
                    followed = self.reader.next() => followed,
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        return Some(Chunk::comment("nothing new").into_bytes());
                    }
                }
            } else {
                match self.reader.next().now_or_never() {
                    Some(followed) => followed,
                    None => break,
                }
            };
            self.take(&mut chunk, followed);
        }
        Some(chunk.into_bytes())
    }
}

impl OutputStream {
    fn take(&mut self, chunk: &mut Chunk, followed: Result<OutputEvent, EngineError>) {
        match followed {
            Ok(OutputEvent::Output { channel, bytes, .. }) => self.unsplit = Some((channel, bytes)),
            Ok(OutputEvent::Dropped { position }) => self.skip_to(chunk, position),
            Ok(OutputEvent::Ended(status)) => self.end(chunk, *status),
            Err(EngineError::Daemon(DaemonError::Stopping)) => self.end_with(chunk, &stopping()),
            Err(error) => self.end_with(chunk, &of_engine(error, None, OperationKind::Execute)),
        }
    }

    fn stream(&mut self, channel: Channel) -> &mut Stream {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    fn position(&self) -> OutputPosition {
        OutputPosition { stdout: self.stdout.sent_bytes(), stderr: self.stderr.sent_bytes() }
    }

    /// Writes events until the chunk is full or nothing is left.
    fn split_into(&mut self, chunk: &mut Chunk) {
        let Some((channel, bytes)) = self.unsplit.take() else { return };
        let mut left = &bytes[..];
        while chunk.len() < CHUNK_BYTES {
            let stream = self.stream(channel);
            let before = left.len();
            let piece = stream.pieces.next(&mut left);
            stream.read += (before - left.len()) as u64;
            let Some(piece) = piece else { return };
            chunk.output(Some(&self.position()), name(channel), &piece);
        }
        let used = bytes.len() - left.len();
        self.unsplit = Some((channel, bytes.slice(used..)));
    }

    /// Writes the rest of lines without an end.
    fn write_rests(&mut self, chunk: &mut Chunk) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            while let Some(piece) = self.stream(channel).pieces.next_remainder() {
                chunk.output(Some(&self.position()), name(channel), &piece);
            }
        }
    }

    /// The output in between was dropped.
    fn skip_to(&mut self, chunk: &mut Chunk, position: OutputPosition) {
        self.write_rests(chunk);
        let at = self.position();
        let missing = json!({
            "stdout": position.stdout.saturating_sub(at.stdout),
            "stderr": position.stderr.saturating_sub(at.stderr),
        });
        (self.stdout.read, self.stderr.read) = (position.stdout, position.stderr);
        chunk.json(Some(&position), StreamEvent::Dropped, &missing);
    }

    fn end(&mut self, chunk: &mut Chunk, status: ExecutionStatus) {
        self.write_rests(chunk);
        if status.state == ExecutionState::Lost {
            let why =
                status.message.unwrap_or_else(|| "its processes ended with those of the sandbox".to_owned());
            let message = format!("the result of the execution is unknown: {why}");
            return self.end_as(chunk, &ApiError::new(ErrorCode::ExecutionError, message), Some(&END));
        }
        self.stage = Stage::Ended;
        let done = Done {
            exit_code: status.exit_code,
            duration_ms: status.duration_ms.unwrap_or_default(),
            signal: status.signal,
            reason: status.reason,
            // Otherwise it says why the command could not start, as the output does.
            message: status.reason.and(status.message),
        };
        chunk.json(Some(&END), StreamEvent::Done, &done);
    }

    /// The execution continues: an incomplete line is sent by the next stream.
    fn end_with(&mut self, chunk: &mut Chunk, error: &ApiError) {
        self.end_as(chunk, error, None);
    }

    fn end_as(&mut self, chunk: &mut Chunk, error: &ApiError, id: Option<&dyn Display>) {
        self.stage = Stage::Ended;
        let position = self.position();
        chunk.error(Some(id.unwrap_or(&position)), error, &self.request_id);
    }
}

fn name(channel: Channel) -> StreamEvent {
    match channel {
        Channel::Stdout => StreamEvent::Stdout,
        Channel::Stderr => StreamEvent::Stderr,
    }
}

fn stopping() -> ApiError {
    ApiError::stopping(
        "the daemon is stopping; the execution continues: reconnect with Last-Event-ID to continue without loss",
    )
}
