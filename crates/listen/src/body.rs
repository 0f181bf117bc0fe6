//! Bodies on their way through. A request's body has to keep coming while somebody waits for it; an answer's body says whose
//! turn it is, so that the connection's driver can tell a client that does not read from an answer that has nothing to say yet.
//! A body that is too slow ends with an error for its reader, who answers it; nothing else is left behind.

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

use crate::activity::{InFlight, Turn};
use crate::settings::Limits;

/// A request body that ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(
        "the request body came too slowly: at least {bytes_per_second} bytes a second are expected after {limit_ms} ms"
    )]
    TooSlow { bytes_per_second: u32, limit_ms: u64 },
    #[error("the request body broke off or is not framed as it should be: {0}")]
    Broken(#[from] hyper::Error),
}

/// How a request's body may come. Extension of a request that has one: who knows better may let it take its time.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    leisurely: Arc<AtomicBool>,
}

impl Pace {
    /// Waits for the body as long as its reader does.
    pub fn take_time(&self) {
        self.leisurely.store(true, Ordering::Relaxed);
    }
}

/// A request's body with the time it may still be waited for. Waiting uses the time up, bytes that arrive earn some back.
///
/// Where nobody wants the rest of it, it is still taken for a while: many clients send all of it before they look for the answer.
/// With HTTP/1 the connection does that at its end; a stream of HTTP/2 has no such end, so its body does.
pub struct Received {
    body: Option<Incoming>,
    lingers: Option<Duration>,
    full: Duration,
    left: Duration,
    bytes_per_second: u32,
    pace: Pace,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Received {
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

impl HttpBody for Received {
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

impl Drop for Received {
    fn drop(&mut self) {
        if let (Some(patience), Some(body)) = (self.lingers, self.body.take())
            && !body.is_end_stream()
            && let Ok(runtime) = Handle::try_current()
        {
            // It ends with its connection at the latest.
            runtime.spawn(timeout(patience, swallow(body)));
        }
    }
}

async fn swallow(mut body: Incoming) {
    while let Some(Ok(_)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}

/// An answer's body, which keeps its request counted as open. One that breaks off does so a turn later, when what it had said
/// before is on its way: HTTP/1 throws away what is not.
pub struct Sent {
    body: Body,
    flight: Option<InFlight>,
    broken: Option<axum::Error>,
}

impl Sent {
    pub fn new(body: Body, flight: InFlight) -> Self {
        Self { body, flight: Some(flight), broken: None }
    }

    fn turn(&mut self, turn: Turn) {
        if let Some(flight) = &mut self.flight {
            flight.turn(turn);
        }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(error) = self.broken.take() {
            self.flight = None;
            return Poll::Ready(Some(Err(error)));
        }
        self.turn(Turn::Ours);
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Err(error)) => {
                self.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Ok(frame)) => {
                self.turn(Turn::Clients);
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                self.flight = None;
                Poll::Ready(None)
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
