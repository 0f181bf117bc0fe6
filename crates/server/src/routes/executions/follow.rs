//! The output of an execution as Server-Sent Events, from a place on and then as it comes.
//!
//! The events are those of execute, and each has an id: how many bytes of either stream were told with it and before it. A part of
//! a line that has not ended is not told and not counted, so whoever comes back with the last id gets the line as a whole, and
//! every byte once. hyper asks for the next chunk when the last is on its way, and only then more is read from the log.

use std::fmt::Display;
use std::sync::Arc;

use api::{Done, ErrorCode, StreamEvent};
use axum::response::Response;
use bytes::Bytes;
use engine::{Channel, EngineError, ExecutionState, ExecutionStatus, OutputEvent, OutputReader};
use futures_util::FutureExt;
use rules::{LineSplitter, OutputPosition};
use serde_json::json;

use crate::error::{ApiError, During, of_engine};
use crate::request_id::RequestId;
use crate::service::Service;
use crate::sse::{self, Chunk, KEEP_ALIVE};

/// A chunk is sent when it is this long, or when nothing more is there.
const CHUNK_BYTES: usize = 64 << 10;
const STOPPING_RETRY_S: u64 = 5;
/// The id of the last event, behind which there is nothing.
const END: &str = "end";

/// What a stream begins with.
pub struct Begin {
    pub reader: OutputReader,
    pub from: OutputPosition,
    /// Events tell how their lines end.
    pub line_ends: bool,
    pub key_id: Arc<str>,
    pub request_id: RequestId,
}

/// The stream.
pub fn response(service: Arc<Service>, begin: Begin) -> Response {
    let Begin { reader, from, line_ends, key_id, request_id } = begin;
    let following = Following {
        service,
        key_id,
        request_id,
        reader,
        line_ends,
        unsplit: None,
        stdout: Line { splitter: LineSplitter::new(), read: from.stdout },
        stderr: Line { splitter: LineSplitter::new(), read: from.stderr },
        stage: Stage::First,
    };
    sse::response(following)
}

struct Following {
    service: Arc<Service>,
    key_id: Arc<str>,
    request_id: RequestId,
    reader: OutputReader,
    line_ends: bool,
    /// Output that came and is not split into lines yet.
    unsplit: Option<(Channel, Bytes)>,
    stdout: Line,
    stderr: Line,
    stage: Stage,
}

/// One stream of the two.
struct Line {
    splitter: LineSplitter,
    /// Its bytes that went into the splitter, from the beginning of the output.
    read: u64,
}

impl Line {
    /// Its bytes that were told.
    fn told(&self) -> u64 {
        self.read - self.splitter.held_bytes() as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Following,
    Over,
}

impl sse::Source for Following {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        match self.stage {
            Stage::First => {
                self.stage = Stage::Following;
                return Some(Chunk::opening(&self.place()).into_bytes());
            }
            Stage::Over => return None,
            Stage::Following => {}
        }
        let mut chunk = Chunk::default();
        if !self.service.keyring.has(&self.key_id) {
            let error = ApiError::new(ErrorCode::Unauthorized, "the API key was revoked");
            self.end_with(&mut chunk, &error);
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
                    () = self.service.stopping.cancelled() => Err(EngineError::Stopping),
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

impl Following {
    fn take(&mut self, chunk: &mut Chunk, followed: Result<OutputEvent, EngineError>) {
        match followed {
            Ok(OutputEvent::Output { channel, bytes, .. }) => self.unsplit = Some((channel, bytes)),
            Ok(OutputEvent::Dropped { position }) => self.skip_to(chunk, position),
            Ok(OutputEvent::Ended(status)) => self.end(chunk, status),
            Err(EngineError::Stopping) => self.end_with(chunk, &stopping()),
            Err(error) => self.end_with(chunk, &of_engine(error, None, During::Execute)),
        }
    }

    fn line(&mut self, channel: Channel) -> &mut Line {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    fn place(&self) -> OutputPosition {
        OutputPosition { stdout: self.stdout.told(), stderr: self.stderr.told() }
    }

    /// Takes lines until the chunk is full or none is left.
    fn split_into(&mut self, chunk: &mut Chunk) {
        let Some((channel, bytes)) = self.unsplit.take() else { return };
        let mut left = &bytes[..];
        while chunk.len() < CHUNK_BYTES {
            let line = self.line(channel);
            let before = left.len();
            let piece = line.splitter.next_piece(&mut left);
            line.read += (before - left.len()) as u64;
            let Some(piece) = piece else { return };
            self.write_line(chunk, channel, &piece);
        }
        let used = bytes.len() - left.len();
        self.unsplit = Some((channel, bytes.slice(used..)));
    }

    /// Lines that have no end.
    fn write_rests(&mut self, chunk: &mut Chunk) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            while let Some(piece) = self.line(channel).splitter.next_rest() {
                self.write_line(chunk, channel, &piece);
            }
        }
    }

    /// The one that was split off last.
    fn write_line(&mut self, chunk: &mut Chunk, channel: Channel, line: &str) {
        let end = self.line(channel).splitter.last_end().name().filter(|_| self.line_ends);
        let place = self.place();
        chunk.event(Some(&place), name(channel), line, end);
    }

    /// What was between is not kept any more.
    fn skip_to(&mut self, chunk: &mut Chunk, position: OutputPosition) {
        self.write_rests(chunk);
        let at = self.place();
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
                status.message.unwrap_or_else(|| "its processes went with those of the sandbox".to_owned());
            let message = format!("how the execution ended is not known: {why}");
            return self.end_as(chunk, &ApiError::new(ErrorCode::ExecutionError, message), Some(&END));
        }
        self.stage = Stage::Over;
        let done = Done {
            exit_code: status.exit_code,
            duration_ms: status.duration_ms.unwrap_or_default(),
            signal: status.signal,
        };
        chunk.json(Some(&END), StreamEvent::Done, &done);
    }

    /// The execution goes on: what is held of a line comes with the next stream.
    fn end_with(&mut self, chunk: &mut Chunk, error: &ApiError) {
        self.end_as(chunk, error, None);
    }

    fn end_as(&mut self, chunk: &mut Chunk, error: &ApiError, id: Option<&dyn Display>) {
        self.stage = Stage::Over;
        let place = self.place();
        chunk.error(Some(id.unwrap_or(&place)), error, &self.request_id);
    }
}

fn name(channel: Channel) -> StreamEvent {
    match channel {
        Channel::Stdout => StreamEvent::Stdout,
        Channel::Stderr => StreamEvent::Stderr,
    }
}

fn stopping() -> ApiError {
    let message =
        "the daemon is stopping; the execution goes on, and with Last-Event-ID nothing of it is missed";
    ApiError::new(ErrorCode::ResourceExhausted, message).with_detail("retryAfter", STOPPING_RETRY_S)
}
