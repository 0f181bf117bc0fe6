//! Buffered output: memory for the output of commands until clients have read the response, and its encoding.
//!
//! A command without a stream is answered when it has ended, so its output is held until the client has read the response.
//! [`OutputMemory`] bounds those bytes for each account and for all accounts together; a reservation grows with the output.
//! The JSON of a response is encoded from the raw bytes in small pieces while the client reads ([`body`]), because escaping
//! can make six bytes of one.
//!
//! ```text
//! start (1 KiB reserved, else 503: not started) -> output grows -> reserve, wait -> 503: the command is ended
//!   -> response: pieces of JSON -> the last byte is read or the client is gone -> released
//! ```

mod body;
mod pieces;
mod record;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{ExecutionOutput, ExecutionResult, OutputEncoding};
use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use engine::{EngineError, Execution, ExecutionEvent};
use rules::{CappedOutput, ReachedLimit};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::error::{ApiError, RefusalCode};
use crate::memory::{Exhausted, MemoryBudget, Reservation};

use body::JsonBody;

pub use body::Holding;
pub use pieces::{Piece, Pieces};

/// The part of a response that comes from the budget for small outputs, which large outputs never use: a command that prints
/// little works whatever other responses hold.
const SMALL_BYTES: usize = 64 << 10;
/// Reserved before a command starts. An output of this size needs no more.
const START_BYTES: usize = 1 << 10;
/// Output up to this size becomes JSON at once.
const INLINE_BYTES: usize = 1 << 10;
/// From here on counting the bytes of the JSON would take an async worker too long.
const LARGE_BYTES: usize = 256 << 10;
/// Responses of other endpoints from this size on count towards the budget.
const COUNTED_RESPONSE_BYTES: usize = 64 << 10;
/// The total time that a response waits for memory. It is shorter if more responses wait, so that they do not all fail at the
/// same time.
const MAX_WAIT: Duration = Duration::from_secs(10);
const WAIT_STEP: Duration = Duration::from_millis(250);
const MIN_WAIT: Duration = Duration::from_secs(1);
const RETRY_S: u64 = 10;

/// The memory for outputs that clients have not read yet.
pub struct OutputMemory {
    small: MemoryBudget,
    large: MemoryBudget,
    large_responses: Arc<AtomicUsize>,
    /// For copying a large output into the database: one at a time.
    copying: Semaphore,
    /// For reading a record, whose size is not known before: one at a time, until its memory is reserved.
    reading: Semaphore,
    /// The most that one response can reserve.
    largest: usize,
    limits: OutputLimits,
}

/// The configured sizes, for the messages of refusals.
#[derive(Debug, Clone, Copy)]
struct OutputLimits {
    all_bytes: usize,
    account_bytes: usize,
}

impl OutputMemory {
    /// A quarter is for small outputs. The rest holds at least one command with `max_output_bytes` on both streams.
    pub fn new(all_bytes: usize, account_bytes: usize, max_output_bytes: usize) -> Self {
        let least = max_output_bytes.saturating_mul(2).saturating_add(SMALL_BYTES) / 3 * 4;
        let account = account_bytes.max(least);
        let all = all_bytes.max(account);
        Self {
            small: MemoryBudget::new(all / 4, account / 4),
            large: MemoryBudget::new(all - all / 4, account - account / 4),
            large_responses: Arc::default(),
            copying: Semaphore::new(1),
            reading: Semaphore::new(1),
            largest: account - account / 4,
            limits: OutputLimits { all_bytes: all, account_bytes: account },
        }
    }

    /// For the response to one request.
    pub fn response(&self, account: &Arc<str>) -> OutputReservation {
        OutputReservation {
            small: self.small.reservation(account, MIN_WAIT),
            large: self.large.reservation(account, Duration::ZERO),
            large_responses: Arc::clone(&self.large_responses),
            is_large: false,
            covered: 0,
            limits: self.limits,
        }
    }

    /// Lets a large body of another endpoint count until it is read. Fails if the memory does not suffice.
    pub fn count(&self, account: &Arc<str>, response: Response) -> Result<Response, ApiError> {
        let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let is_counted = response.extensions().get::<Counted>().is_some();
        let Some(length) = length.filter(|length| *length >= COUNTED_RESPONSE_BYTES && !is_counted) else {
            return Ok(response);
        };
        let mut reservation = self.large.reservation(account, Duration::ZERO);
        reservation.try_grow(length).map_err(|exhausted| self.limits.too_large_response(exhausted))?;
        Ok(response.map(|body| Body::new(Holding::new(body, reservation))))
    }

    #[cfg(test)]
    pub fn reserved_bytes(&self) -> usize {
        self.small.reserved_bytes() + self.large.reserved_bytes()
    }
}

/// Marks a response whose body has a reservation.
#[derive(Clone)]
struct Counted;

/// The memory of one response.
pub struct OutputReservation {
    small: Reservation,
    large: Reservation,
    large_responses: Arc<AtomicUsize>,
    is_large: bool,
    covered: usize,
    limits: OutputLimits,
}

impl OutputReservation {
    /// Before a command starts.
    pub async fn start(&mut self) -> Result<(), ApiError> {
        let limits = self.limits;
        self.cover(START_BYTES).await.map_err(|exhausted| limits.not_started(exhausted))
    }

    /// Reserves until `bytes` are covered.
    async fn cover(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let small = bytes.min(SMALL_BYTES).saturating_sub(self.covered);
        if small > 0 {
            self.small.grow(small).await?;
            self.covered += small;
        }
        let large = bytes.saturating_sub(self.covered);
        if large > 0 {
            if !self.is_large {
                self.is_large = true;
                let before = self.large_responses.fetch_add(1, Ordering::Relaxed);
                let less = WAIT_STEP.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
                self.large.set_max_wait(MAX_WAIT.saturating_sub(less).max(MIN_WAIT));
            }
            self.large.grow(large).await?;
            self.covered += large;
        }
        Ok(())
    }

    /// As [`OutputReservation::cover`], without waiting.
    fn try_cover(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let more = bytes.saturating_sub(self.covered);
        if more > 0 {
            self.large.try_grow(more)?;
            self.covered += more;
        }
        Ok(())
    }
}

impl Drop for OutputReservation {
    fn drop(&mut self) {
        if self.is_large {
            self.large_responses.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

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
        let limits = memory.limits;
        let covered = memory.cover(needed).await;
        covered.map_err(|exhausted| CollectError::Refused(limits.ended(exhausted, needed)))?;
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

/// Reserves memory for `bytes` of a response that can be asked for again.
pub async fn cover(memory: &mut OutputReservation, bytes: usize) -> Result<(), ApiError> {
    let limits = memory.limits;
    memory.cover(bytes).await.map_err(|exhausted| limits.too_large_response(exhausted))
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

impl OutputLimits {
    fn refused(self, exhausted: Exhausted, why: impl Display) -> ApiError {
        let (bytes, counts, key) = match exhausted {
            Exhausted::OfAccount => (
                self.account_bytes,
                "bytes of unread responses of an account",
                "limits.buffered_output_bytes_per_account",
            ),
            Exhausted::OfAll => {
                (self.all_bytes, "bytes of unread responses of all accounts", "limits.buffered_output_bytes")
            }
        };
        let limit = ReachedLimit::set_by_operator(bytes as u64, counts, key);
        ApiError::refused(RefusalCode::ResourceExhausted, why, limit, RETRY_S)
    }

    fn not_started(self, exhausted: Exhausted) -> ApiError {
        let why = "the command was not started: the memory for buffered output is full of unread responses; read them, or wait";
        self.refused(exhausted, why).with_detail("commandStarted", false)
    }

    fn ended(self, exhausted: Exhausted, bytes: usize) -> ApiError {
        let why = format!(
            "the command was started, then killed: its output needed {bytes} bytes so far, and the memory for buffered output is full of unread responses; read them, redirect the output to a file, or request a stream with 'Accept: text/event-stream'"
        );
        self.refused(exhausted, why).with_detail("commandStarted", true)
    }

    fn too_large_response(self, exhausted: Exhausted) -> ApiError {
        self.refused(
            exhausted,
            "the memory for buffered output is full of unread responses; read them, or wait",
        )
    }
}

/// For tests of other modules.
#[cfg(any(test, feature = "testing"))]
impl Default for OutputMemory {
    fn default() -> Self {
        Self::new(64 << 20, 48 << 20, 16 << 20)
    }
}

#[cfg(test)]
mod tests;
