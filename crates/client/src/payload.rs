//! What a call sends: nothing, bytes that are there, or bytes that come while they are sent. A piece is asked for when the last one
//! is on its way, so a body costs no more than a piece, however long it is.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use hyper::body::{Body, Frame, SizeHint};

/// Bytes as they come.
pub type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// The body of a call, as often as it is sent.
#[derive(Clone, Default)]
pub enum Payload {
    #[default]
    None,
    Whole(Bytes),
    /// Can be had once: when a try has begun to send it, there is no second one.
    Once(Arc<Mutex<Option<Pieces>>>),
    /// Begun anew for each try.
    Again(Arc<dyn Fn() -> Pieces + Send + Sync>),
}

impl Payload {
    pub fn once(pieces: Pieces) -> Self {
        Self::Once(Arc::new(Mutex::new(Some(pieces))))
    }

    pub fn again(begin: impl Fn() -> Pieces + Send + Sync + 'static) -> Self {
        Self::Again(Arc::new(begin))
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether it takes as long as whoever makes it.
    pub fn is_streamed(&self) -> bool {
        matches!(self, Self::Once(_) | Self::Again(_))
    }

    /// Whether another try would find it whole.
    pub fn is_left(&self) -> bool {
        match self {
            Self::Once(pieces) => pieces.lock().unwrap_or_else(PoisonError::into_inner).is_some(),
            _ => true,
        }
    }

    /// For one try.
    pub fn body(&self, meter: &Arc<Meter>) -> Outgoing {
        let (whole, source) = match self {
            Self::None => (None, None),
            Self::Whole(bytes) => (Some(bytes.clone()).filter(|bytes| !bytes.is_empty()), None),
            Self::Once(_) | Self::Again(_) => (None, Some(self.clone())),
        };
        Outgoing { whole, source, pieces: None, meter: Arc::clone(meter) }
    }

    fn open(&self) -> Option<Pieces> {
        match self {
            Self::Once(pieces) => pieces.lock().unwrap_or_else(PoisonError::into_inner).take(),
            Self::Again(begin) => Some(begin()),
            Self::None | Self::Whole(_) => None,
        }
    }
}

/// How far a body has come, for whoever waits for the answer.
#[derive(Default)]
pub struct Meter {
    pieces: AtomicU64,
    starved: AtomicBool,
    fault: Mutex<Option<String>>,
}

impl Meter {
    /// A number that grows with every piece.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// Whether the next piece is not there yet: then it is not the service that is slow.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Why the next piece could not be had, where that ended it.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A body on its way out.
pub struct Outgoing {
    whole: Option<Bytes>,
    /// Opened by the first poll: what was never sent can be sent by the next try.
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
                return Poll::Ready(Some(Err(io::Error::other("the content was sent already"))));
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
