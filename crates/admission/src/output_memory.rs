//! Memory for responses that clients have not read yet: a bound for each account and for all accounts together.
//!
//! A response that is collected before it is sent, such as the output of a command, gets an [`OutputReservation`], which grows with it.
//! Other large responses are counted when they are complete ([`OutputMemory::count`]).
//!
//! ```text
//! start (1 KiB reserved, else 503: not started) -> output grows -> reserve, wait -> 503: the command is ended
//!   -> response -> the last byte is read or the client is gone -> released
//! ```

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use rules::ReachedLimit;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::{ApiError, RefusalCode};
use crate::holding::Holding;
use crate::memory::{Exhausted, MemoryBudget, Reservation};

/// The part of a response that comes from the budget for small outputs, which large outputs never use: a command that prints
/// little works whatever other responses hold.
const SMALL_BYTES: usize = 64 << 10;
/// Reserved before a command starts. An output of this size needs no more.
const START_BYTES: usize = 1 << 10;
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

    /// For a response of so many bytes, without waiting. One that is larger than the budget gets all of it.
    pub fn reserve_now(&self, account: &Arc<str>, bytes: usize) -> Result<OutputReservation, ApiError> {
        let mut memory = self.response(account);
        let reserved = memory.try_reserve(bytes.min(self.largest));
        reserved.map_err(|exhausted| self.limits.too_large_response(exhausted))?;
        Ok(memory)
    }

    /// The right to copy a large output into the database.
    pub async fn copying(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.copying.acquire().await.ok()
    }

    /// The right to read a record and to count it.
    pub async fn reading(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.reading.acquire().await.ok()
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

    /// For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn reserved_bytes(&self) -> usize {
        self.small.reserved_bytes() + self.large.reserved_bytes()
    }
}

/// Marks a response whose body has a reservation: an extension of it.
#[derive(Debug, Clone, Copy)]
pub struct Counted;

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
        self.reserve(START_BYTES).await.map_err(|exhausted| self.limits.not_started(exhausted))
    }

    /// Reserves until `bytes` of a response that can be asked for again are covered.
    pub async fn cover(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.reserve(bytes).await.map_err(|exhausted| self.limits.too_large_response(exhausted))
    }

    /// Reserves until `bytes` of the output of a command are covered. If that fails, the command has to be ended.
    pub async fn cover_command(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.reserve(bytes).await.map_err(|exhausted| self.limits.ended(exhausted, bytes))
    }

    async fn reserve(&mut self, bytes: usize) -> Result<(), Exhausted> {
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

    /// As [`OutputReservation::reserve`], without waiting.
    fn try_reserve(&mut self, bytes: usize) -> Result<(), Exhausted> {
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
        let why = "the memory for buffered output is full of unread responses; read them, or wait";
        self.refused(exhausted, why)
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
