//! Buffered output: memory for the output of commands until clients have read the response, and its encoding.
//!
//! A command without a stream is answered when it has ended, so its output is held until the client has read the response.
//! [`admission::output_memory`] bounds those bytes; a reservation grows with the output.
//! The JSON of a response is encoded from the raw bytes in small pieces while the client reads ([`body`]), because escaping
//! can make six bytes of one.

mod body;
mod pieces;
mod record;

use std::sync::Arc;

use admission::error::ApiError;
use admission::output_memory::{Counted, OutputReservation};
use api::{ExecutionOutput, ExecutionResult, OutputEncoding};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use engine::{EngineError, Execution, ExecutionEvent};
use rules::CappedOutput;
use serde::Serialize;

use body::JsonBody;

pub use pieces::{Piece, Pieces};

/// Output up to this size becomes JSON at once.
const INLINE_BYTES: usize = 1 << 10;
/// From here on counting the bytes of the JSON would take an async worker too long.
const LARGE_BYTES: usize = 256 << 10;

/// Why there is no output.
pub enum CollectError {
    Engine(EngineError),
    Refused(ApiError),
}

/// Runs a command to its end, keeping at most `max_output_bytes` of each stream.
pub async fn collect(
    mut execution: Execution,
    max_output_bytes: usize,
    encoding: OutputEncoding,
    mut memory: OutputReservation,
) -> Result<BufferedOutput, CollectError> {
    let (mut stdout, mut stderr) = (CappedOutput::new(max_output_bytes), CappedOutput::new(max_output_bytes));
    let finished = loop {
        let (output, other, bytes) = match execution.next().await {
            ExecutionEvent::Stdout(bytes) => (&mut stdout, &stderr, bytes),
            ExecutionEvent::Stderr(bytes) => (&mut stderr, &stdout, bytes),
            ExecutionEvent::Done(finished) => break finished,
            ExecutionEvent::Failed(error) => return Err(CollectError::Engine(error)),
        };
        let needed = output.memory_with(bytes.len()) + other.memory();
        // Not reading holds the command back. Dropping the execution ends it.
        memory.cover_command(needed).await.map_err(CollectError::Refused)?;
        output.push(&bytes);
    };
    if let Some(note) = &finished.outcome.stderr_note {
        stderr.push(note.as_bytes());
    }
    let (stdout, stderr) = (stdout.finish(), stderr.finish());
    let result = ExecutionResult {
        stdout: String::new(),
        stderr: String::new(),
        exit_code: finished.outcome.exit_code,
        duration_ms: finished.duration_ms,
        signal: finished.outcome.signal.map(std::borrow::Cow::into_owned),
        reason: finished.outcome.reason,
        message: finished.outcome.message,
        stdout_truncated: stdout.truncated,
        stderr_truncated: stderr.truncated,
        encoding,
    };
    BufferedOutput::new(stdout.segments, stderr.segments, encoding, &result, Some(memory))
        .await
        .map_err(CollectError::Refused)
}

/// The output of an execution so far, as [`BufferedOutput`]. `output` has its texts empty.
pub async fn snapshot(
    [stdout, stderr]: [Vec<u8>; 2],
    output: &ExecutionOutput,
    memory: OutputReservation,
) -> Result<BufferedOutput, ApiError> {
    BufferedOutput::new(vec![stdout], vec![stderr], output.encoding, output, Some(memory)).await
}

/// An output and the JSON around it.
pub struct BufferedOutput {
    stdout: Vec<Bytes>,
    stderr: Vec<Bytes>,
    encoding: OutputEncoding,
    /// The JSON behind the texts, from the quotation mark on.
    rest: Bytes,
    /// Bytes of the JSON.
    length: usize,
    _memory: Option<OutputReservation>,
}

/// The JSON before and between the texts.
const BEFORE: &[u8] = br#"{"stdout":""#;
const BETWEEN: &[u8] = br#"","stderr":""#;

impl BufferedOutput {
    /// `object` serializes with empty texts for `stdout` and `stderr`, which come first.
    async fn new(
        stdout: Vec<Vec<u8>>,
        stderr: Vec<Vec<u8>>,
        encoding: OutputEncoding,
        object: &impl Serialize,
        memory: Option<OutputReservation>,
    ) -> Result<Self, ApiError> {
        let json = serde_json::to_vec(object).map_err(ApiError::internal)?;
        let rest = json.strip_prefix(BEFORE).and_then(|json| json.strip_prefix(BETWEEN));
        let rest = Bytes::copy_from_slice(rest.ok_or_else(|| ApiError::internal("the texts come first"))?);
        let bytes = |segments: Vec<Vec<u8>>| segments.into_iter().map(Bytes::from).collect();
        let (stdout, stderr) = (bytes(stdout), bytes(stderr));
        Self { stdout, stderr, encoding, rest, length: 0, _memory: memory }.counted().await
    }

    /// With the length of its JSON.
    async fn counted(mut self) -> Result<Self, ApiError> {
        if self.bytes() < LARGE_BYTES {
            self.length = self.json_length();
            return Ok(self);
        }
        let counting = tokio::task::spawn_blocking(move || {
            self.length = self.json_length();
            self
        });
        counting.await.map_err(ApiError::internal)
    }

    /// Bytes of both streams.
    fn bytes(&self) -> usize {
        self.stdout.iter().chain(&self.stderr).map(Bytes::len).sum()
    }

    fn json_length(&self) -> usize {
        let texts = [&self.stdout, &self.stderr].map(|text| body::encoded_length(text, self.encoding));
        BEFORE.len() + BETWEEN.len() + self.rest.len() + texts[0] + texts[1]
    }
}

/// The content of a response: JSON as it is, or an output that becomes JSON while it is read.
#[derive(Clone)]
pub enum Content {
    Json(Bytes),
    Output(Arc<BufferedOutput>),
}

impl From<Bytes> for Content {
    fn from(json: Bytes) -> Self {
        Self::Json(json)
    }
}

impl From<BufferedOutput> for Content {
    fn from(output: BufferedOutput) -> Self {
        if output.bytes() <= INLINE_BYTES {
            return Self::Json(JsonBody::new(Arc::new(output)).whole());
        }
        Self::Output(Arc::new(output))
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(json) => f.debug_tuple("Json").field(json).finish(),
            Self::Output(output) => f.debug_tuple("Output").field(&output.bytes()).finish(),
        }
    }
}

impl Content {
    /// Makes it the body of a response.
    pub fn into_response(self, mut response: Response<()>) -> Response {
        match self {
            Self::Json(json) => response.map(|()| Body::from(json)),
            Self::Output(output) => {
                response.extensions_mut().insert(Counted);
                response.map(|()| Body::new(JsonBody::new(output)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
