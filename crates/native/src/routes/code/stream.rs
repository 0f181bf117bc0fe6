//! The output of code as Server-Sent Events.
//!
//! As for commands, a chunk is built when the client has taken the last one, so a slow client slows the reading. When it
//! disconnects, hyper drops the body, which interrupts the code.

use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{CodeDone, CodeEvent, CodeText};
use axum::response::Response;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::running::{CodeStep, Running};
use crate::interpreter::{self, Event};
use crate::sse::{self, Chunk, KEEP_ALIVE};

/// The size at which a chunk is sent even if more output is available.
const CHUNK_BYTES: usize = 64 << 10;

pub fn response(mut running: Running, request_id: RequestId, stopping: CancellationToken) -> Response {
    running.run.streamed();
    sse::response(Events { running: Some(running), request_id, stopping })
}

struct Events {
    /// `None` after the last event.
    running: Option<Running>,
    request_id: RequestId,
    stopping: CancellationToken,
}

impl sse::Source for Events {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Chunk::default();
        let running = self.running.as_mut()?;
        let mut step = tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(stopping()),
            step = running.step() => step,
            () = tokio::time::sleep(KEEP_ALIVE) => return Some(Chunk::comment("still running").into_bytes()),
        };
        loop {
            let written = match step {
                Ok(step) => write(&mut chunk, running, step),
                Err(error) => Err(error),
            };
            match written {
                Ok(false) => {}
                Ok(true) => {
                    self.running = None;
                    break;
                }
                Err(error) => {
                    self.running = None;
                    chunk.error(None, &error, &self.request_id);
                    break;
                }
            }
            if chunk.len() >= CHUNK_BYTES {
                break;
            }
            match running.ready() {
                Some(ready) => step = ready,
                None => break,
            }
        }
        if chunk.is_empty() {
            // A message of the program inside that is not for clients.
            return Some(Chunk::comment("still running").into_bytes());
        }
        Some(chunk.into_bytes())
    }
}

/// Writes a step; true if it is the last.
fn write(chunk: &mut Chunk, running: &Running, step: CodeStep) -> Result<bool, ApiError> {
    match step {
        CodeStep::Event(Event::Stdout { text }) => chunk.json(None, CodeEvent::Stdout, &CodeText { text }),
        CodeStep::Event(Event::Stderr { text }) => chunk.json(None, CodeEvent::Stderr, &CodeText { text }),
        CodeStep::Event(Event::Result(result)) => {
            chunk.json(None, CodeEvent::Result, &interpreter::result(result)?);
        }
        CodeStep::Event(Event::Error(exception)) => chunk.json(None, CodeEvent::Exception, &exception),
        CodeStep::Event(_) => {}
        CodeStep::End(duration_ms) => {
            let context_id = running.context_id.clone();
            let (execution_count, output_truncated) = (running.execution_count, running.truncated);
            let done = CodeDone { execution_count, context_id, duration_ms, output_truncated };
            chunk.json(None, CodeEvent::Done, &done);
            return Ok(true);
        }
    }
    Ok(false)
}

fn stopping() -> ApiError {
    ApiError::stopping(
        "the daemon is stopping and interrupted the code; the sandbox and its contexts keep their state",
    )
}
