//! Request bodies: none, bytes in memory, or a stream. A chunk is requested after the previous one was sent, so memory use is one
//! chunk, whatever the length.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use hyper::body::{Body, Frame, SizeHint};

/// A stream of chunks.
pub type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// The body of a call, for all attempts.
#[derive(Clone, Default)]
pub enum Payload {
    #[default]
    None,
    Whole(Bytes),
    /// Consumed by the first attempt that sends it; then no retry is possible.
    Once(Arc<Mutex<Option<Pieces>>>),
    /// Created anew for each attempt.
    Repeatable(Arc<dyn Fn() -> Pieces + Send + Sync>),
}

impl Payload {
    pub fn once(pieces: Pieces) -> Self {
        Self::Once(Arc::new(Mutex::new(Some(pieces))))
    }

    pub fn repeatable(begin: impl Fn() -> Pieces + Send + Sync + 'static) -> Self {
        Self::Repeatable(Arc::new(begin))
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether sending may be limited by the source.
    pub fn is_streamed(&self) -> bool {
        matches!(self, Self::Once(_) | Self::Repeatable(_))
    }

    /// Whether a retry can send the complete body.
    pub fn can_be_sent(&self) -> bool {
        match self {
            Self::Once(pieces) => pieces.lock().unwrap_or_else(PoisonError::into_inner).is_some(),
            _ => true,
        }
    }

    /// The body of one attempt.
    pub fn body(&self, meter: &Arc<Meter>) -> Outgoing {
        let (whole, source) = match self {
            Self::None => (None, None),
            Self::Whole(bytes) => (Some(bytes.clone()).filter(|bytes| !bytes.is_empty()), None),
            Self::Once(_) | Self::Repeatable(_) => (None, Some(self.clone())),
        };
        Outgoing { whole, source, pieces: None, meter: Arc::clone(meter) }
    }

    fn open(&self) -> Option<Pieces> {
        match self {
            Self::Once(pieces) => pieces.lock().unwrap_or_else(PoisonError::into_inner).take(),
            Self::Repeatable(begin) => Some(begin()),
            Self::None | Self::Whole(_) => None,
        }
    }
}

/// Progress of a body, for the timeout of the attempt.
#[derive(Default)]
pub struct Meter {
    pieces: AtomicU64,
    starved: AtomicBool,
    fault: Mutex<Option<String>>,
}

impl Meter {
    /// The number of chunks sent.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// Whether the source has no data, so that the service is not to blame for the delay.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// The error of the source, if it failed.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A body that is being sent.
pub struct Outgoing {
    whole: Option<Bytes>,
    /// Opened by the first poll, so that an attempt that never connects does not consume it.
    source: Option<Payload>,
    pieces: Option<Pieces>,
    meter: Arc<Meter>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if let Some(bytes) = this.whole.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(source) = this.source.take() {
            let Some(pieces) = source.open() else {
                return Poll::Ready(Some(Err(io::Error::other(
                    "the content was already consumed by an earlier attempt",
                ))));
            };
            this.pieces = Some(pieces);
        }
        let Some(pieces) = &mut this.pieces else { return Poll::Ready(None) };
        let polled = Pin::new(pieces).poll_next(cx);
        this.meter.starved.store(polled.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(next) = &polled {
            this.meter.pieces.fetch_add(1, Ordering::Relaxed);
            if let Some(Err(error)) = next {
                *this.meter.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        }
        polled.map(|next| next.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_none() && self.source.is_none() && self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.whole, self.is_end_stream()) {
            (Some(bytes), _) => SizeHint::with_exact(bytes.len() as u64),
            (None, true) => SizeHint::with_exact(0),
            (None, false) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt, stream};
    use http_body_util::BodyExt;

    fn pieces(texts: &'static [&'static str]) -> Pieces {
        stream::iter(texts.iter().map(|text| Ok(Bytes::from_static(text.as_bytes())))).boxed()
    }

    /// The next piece of a body that has one without waiting; `None` at its end.
    fn next(body: &mut Outgoing) -> Option<io::Result<Bytes>> {
        let frame = body.frame().now_or_never().expect("the source is ready");
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
    }

    #[test]
    fn a_source_that_can_be_read_once_is_consumed_by_the_first_attempt_that_sends_it() {
        let (payload, meter) = (Payload::once(pieces(&["a", "b"])), Arc::new(Meter::default()));
        let copy = payload.clone();
        assert!(payload.is_streamed() && payload.can_be_sent());
        // The attempt did not get a connection.
        drop(payload.body(&meter));
        assert!(payload.can_be_sent());
        let mut body = payload.body(&meter);
        assert_eq!(next(&mut body).unwrap().unwrap(), "a");
        assert!(!payload.can_be_sent() && !copy.can_be_sent());
        assert_eq!(next(&mut body).unwrap().unwrap(), "b");
        assert!(next(&mut body).is_none());
        let again = next(&mut payload.body(&meter)).unwrap().unwrap_err();
        assert_eq!(again.to_string(), "the content was already consumed by an earlier attempt");
    }

    #[test]
    fn a_repeatable_source_is_opened_anew_for_each_attempt() {
        let (payload, meter) = (Payload::repeatable(|| pieces(&["a"])), Arc::new(Meter::default()));
        for _ in 0..2 {
            let mut body = payload.body(&meter);
            assert_eq!(next(&mut body).unwrap().unwrap(), "a");
            assert!(payload.can_be_sent());
        }
    }

    #[test]
    fn only_content_in_memory_has_a_known_length() {
        let meter = Arc::new(Meter::default());
        for (payload, length) in [
            (Payload::None, Some(0)),
            (Payload::Whole(Bytes::new()), Some(0)),
            (Payload::Whole(Bytes::from_static(b"abc")), Some(3)),
            (Payload::repeatable(|| pieces(&[])), None),
        ] {
            let body = payload.body(&meter);
            assert_eq!(body.size_hint().exact(), length);
            assert_eq!(body.is_end_stream(), length == Some(0));
        }
        let mut whole = Payload::Whole(Bytes::from_static(b"abc")).body(&meter);
        assert_eq!(next(&mut whole).unwrap().unwrap(), "abc");
        assert!(whole.is_end_stream() && next(&mut whole).is_none());
        assert_eq!(meter.pieces(), 0, "the timeout of an attempt is that of a whole body");
    }

    #[test]
    fn the_meter_tells_a_slow_source_from_a_slow_service() {
        let meter = Arc::new(Meter::default());
        let silent = Payload::once(pieces(&["a"]).chain(stream::pending()).boxed());
        let mut body = silent.body(&meter);
        assert!(next(&mut body).is_some() && !meter.is_starved());
        assert!(body.frame().now_or_never().is_none() && meter.is_starved());
        assert_eq!((meter.pieces(), meter.fault()), (1, None));
        let failing = Payload::once(stream::iter([Err(io::Error::other("disk error"))]).boxed());
        assert!(next(&mut failing.body(&meter)).unwrap().is_err());
        assert_eq!((meter.is_starved(), meter.fault().as_deref()), (false, Some("disk error")));
    }
}
