//! The bodies of requests and responses. A request's body has a time budget while a handler waits for it; a body
//! below the minimum rate ends with an error for the handler. A response's body records whether the connection waits
//! for the client or for the handler, which tells an unread response from an event stream without events.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::Version;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

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

/// A request's body with its time budget. Waiting spends the budget, received bytes refill it.
///
/// When a handler drops the body early, the rest is read and discarded for a while, because many clients send the
/// whole body before they read the response. An HTTP/1 connection does that when it closes; for an HTTP/2 stream the
/// body does it on drop.
pub struct RequestBody {
    body: Option<Incoming>,
    lingers: Option<Duration>,
    full: Duration,
    left: Duration,
    bytes_per_second: u32,
    pace: Pace,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    pub fn new(body: Incoming, version: Version, limits: &Limits, pace: Pace) -> Self {
        let lingers = (version == Version::HTTP_2).then_some(limits.linger_timeout);
        let body = Some(body);
        let (full, bytes_per_second) = (limits.body_timeout, limits.body_min_bytes_per_second.max(1));
        Self { body, lingers, full, left: full, bytes_per_second, pace, waiting_since: None, timer: None }
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

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    self.arrived(bytes);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
            }
            Poll::Pending if self.pace.leisurely.load(Ordering::Relaxed) => Poll::Pending,
            Poll::Pending => {
                ready!(self.wait(cx));
                let limit_ms = u64::try_from(self.full.as_millis()).unwrap_or(u64::MAX);
                let slow = BodyError::TooSlow { bytes_per_second: self.bytes_per_second, limit_ms };
                Poll::Ready(Some(Err(slow)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(linger_time), Some(body)) = (self.lingers, self.body.take())
            && !body.is_end_stream()
            && let Ok(runtime) = Handle::try_current()
        {
            // The task ends when its connection ends, if not before.
            runtime.spawn(timeout(linger_time, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    while let Some(Ok(_)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
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
