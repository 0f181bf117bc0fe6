//! The bodies of requests and responses. A request's body has a time budget while a handler waits for it; a body
//! below the minimum rate ends with an error for the handler. A response's body records whether the connection waits
//! for the client or for the handler, which tells an unread response from an event stream without events.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::activity::{InFlight, WaitsFor};
use crate::settings::Limits;
use crate::unread;

/// A request body that is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(
        "the request body arrived too slowly: at least {bytes_per_second} bytes per second are required after {limit_ms} ms"
    )]
    TooSlow { bytes_per_second: u32, limit_ms: u64 },
    #[error("the request body is truncated or has invalid framing: {0}")]
    Broken(#[from] hyper::Error),
}

/// The time budget of a request's body, an extension of every request that has a body. A handler may lift it.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    leisurely: Arc<AtomicBool>,
}

impl Pace {
    /// Lifts the time budget: the handler bounds the wait itself.
    pub fn take_time(&self) {
        self.leisurely.store(true, Ordering::Relaxed);
    }
}

/// Whether the client waits for `100 Continue` before it sends the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    Continue,
    Nothing,
}

/// What of a body has not been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    Nothing,
    /// As many bytes, by `Content-Length`.
    Bytes(u64),
    /// An unknown number of bytes.
    Chunks,
    /// The client still waits for `100 Continue`.
    NotRequested,
    /// It was too slow or is broken.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyProgress {
    /// The client waits for `100 Continue`, which hyper sends when the body is first polled.
    NotRequested,
    Reading,
    Ended,
    Failed,
}

/// A request's body with its time budget. Waiting spends the budget, received bytes refill it.
pub struct TimedBody {
    body: Incoming,
    progress: BodyProgress,
    full: Duration,
    left: Duration,
    bytes_per_second: u32,
    pace: Pace,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub fn new(body: Incoming, expectation: Expectation, limits: &Limits, pace: Pace) -> Self {
        let progress = match expectation {
            Expectation::Continue => BodyProgress::NotRequested,
            Expectation::Nothing => BodyProgress::Reading,
        };
        let (full, bytes_per_second) = (limits.body_timeout, limits.body_min_bytes_per_second.max(1));
        Self { body, progress, full, left: full, bytes_per_second, pace, waiting_since: None, timer: None }
    }

    /// What is left of the body when the response is made.
    pub fn unread(&self) -> Unread {
        match self.progress {
            BodyProgress::Ended => Unread::Nothing,
            BodyProgress::NotRequested => Unread::NotRequested,
            BodyProgress::Failed => Unread::Failed,
            BodyProgress::Reading if self.body.is_end_stream() => Unread::Nothing,
            BodyProgress::Reading => self.body.size_hint().exact().map_or(Unread::Chunks, Unread::Bytes),
        }
    }

    /// The body without a time budget, for a reader with a bound of its own.
    pub fn into_incoming(self) -> Incoming {
        self.body
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let until = *self.waiting_since.get_or_insert(now) + self.left;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx)
    }

    fn arrived(&mut self, bytes: usize) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let earned = Duration::from_secs(1) * bytes / self.bytes_per_second;
        self.left = (self.left + earned).min(self.full);
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.progress == BodyProgress::NotRequested {
            self.progress = BodyProgress::Reading;
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.arrived(frame.data_ref().map_or(0, Bytes::len));
                if frame.is_trailers() {
                    self.progress = BodyProgress::Ended;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.progress = BodyProgress::Failed;
                Poll::Ready(Some(Err(BodyError::Broken(error))))
            }
            Poll::Ready(None) => {
                // hyper ends a body after its error.
                if self.progress == BodyProgress::Reading {
                    self.progress = BodyProgress::Ended;
                }
                Poll::Ready(None)
            }
            Poll::Pending if self.pace.leisurely.load(Ordering::Relaxed) => Poll::Pending,
            Poll::Pending => {
                ready!(self.wait(cx));
                self.progress = BodyProgress::Failed;
                let limit_ms = base::millis(self.full);
                let slow = BodyError::TooSlow { bytes_per_second: self.bytes_per_second, limit_ms };
                Poll::Ready(Some(Err(slow)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Size of the chunks in which an HTTP/2 response is passed to its stream. Each chunk that the client reads restarts
/// the unread timeout.
const STREAM_CHUNK_BYTES: usize = 16 * 1024;
/// Size of the last chunk of an HTTP/2 response. hyper ends the stream's task, and with it the timeout, once this
/// chunk is queued. So a client that does not open its window makes the connection hold at most this much.
const LAST_CHUNK_BYTES: usize = 1024;

/// A response's body, during which its request counts as open. An error is returned one poll later, after the
/// previous bytes were flushed: hyper discards bytes that an HTTP/1 connection has not flushed yet.
pub struct ResponseBody {
    body: Body,
    /// The rest of a frame that is passed on in chunks.
    rest: Bytes,
    in_flight: Option<InFlight>,
    broken: Option<axum::Error>,
}

impl ResponseBody {
    /// Called in the task of the stream. From here on an HTTP/2 response waits for its client, so that the unread timeout does not
    /// depend on hyper polling the body: a client whose window is 0 can keep it from doing so.
    pub fn new(body: Body, in_flight: InFlight) -> Self {
        let mut body = Self { body, rest: Bytes::new(), in_flight: Some(in_flight), broken: None };
        if !body.is_end_stream() {
            body.set_waits_for(WaitsFor::Clients);
        }
        body
    }

    fn set_waits_for(&mut self, waits_for: WaitsFor) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.set_waits_for(waits_for);
        }
        unread::with_stream(|progress| match waits_for {
            WaitsFor::Ours => progress.frame_requested(),
            WaitsFor::Clients => progress.wait_for_client(),
        });
    }

    /// The next piece of `data`, of which the rest waits for the next poll.
    fn next_chunk(&mut self, mut data: Bytes) -> Bytes {
        let is_last = self.body.is_end_stream();
        let limit = if data.len() > STREAM_CHUNK_BYTES {
            STREAM_CHUNK_BYTES
        } else if is_last && data.len() > LAST_CHUNK_BYTES {
            data.len() - LAST_CHUNK_BYTES
        } else {
            data.len()
        };
        let next_chunk = data.split_to(limit);
        // A copy, so that the last chunk does not hold the whole body in memory.
        self.rest = if data.len() <= LAST_CHUNK_BYTES { Bytes::copy_from_slice(&data) } else { data };
        next_chunk
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(error) = self.broken.take() {
            self.in_flight = None;
            return Poll::Ready(Some(Err(error)));
        }
        self.set_waits_for(WaitsFor::Ours);
        match ready!(self.poll_rest(cx)) {
            Some(Err(error)) => {
                self.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Ok(frame)) => {
                let frame = match frame.into_data() {
                    Ok(data) if unread::with_stream(|_| ()).is_some() => Frame::data(self.next_chunk(data)),
                    Ok(data) => Frame::data(data),
                    Err(frame) => frame,
                };
                self.set_waits_for(WaitsFor::Clients);
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                self.in_flight = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // hyper asks before the first frame, when there is no rest.
        self.body.size_hint()
    }
}
