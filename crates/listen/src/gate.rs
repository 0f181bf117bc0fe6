//! Stands between an HTTP/1 connection and hyper, which otherwise answers a head that it cannot read with a bare status line, and
//! one that comes too slowly with nothing. The gate collects each head, checks it (`head`), and only then lets hyper read it; it
//! follows the body (`chunks`) to know where the next head begins. A head that fails is never seen by hyper: once the answers
//! before it are sent, hyper reads the end of the connection, hands the connection back, and the refusal is answered here.
//!
//! ```text
//! Head ──whole──> Pass ──chunked──> Body ──its end──> Head
//!  │                └────its end──────────────────────┘
//!  └─refused, too slow, idle too long, closed──> Ended          Body ──badly framed──> error to the reader, and Ended
//! ```

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::activity::Activity;
use crate::answers::Fault;
use crate::settings::Limits;
use crate::wire::{Alarm, Wire};

mod chunks;
mod head;

use chunks::Chunks;
use head::{Framing, Verdict};
pub use head::{HostRule, Refusal};

/// What is read at once. It lies on the stack, so that a connection which waits holds no buffer.
const READ_BYTES: usize = 8192;

enum State {
    /// `until` is there once the head has begun to come.
    Head {
        examined: usize,
        until: Option<Instant>,
    },
    Pass {
        left: u64,
        chunked: bool,
    },
    Body(Chunks),
    Ended,
}

pub struct Gate {
    wire: Wire,
    /// What came from the client and was not let through yet.
    held: BytesMut,
    state: State,
    alarm: Alarm,
    refusal: Option<Refusal>,
    closed: bool,
    activity: Arc<Activity>,
    limits: Arc<Limits>,
    host: HostRule,
}

/// What a connection leaves when hyper has done with it.
pub struct Rest {
    pub wire: Wire,
    pub refusal: Option<Refusal>,
    /// The client may still be sending.
    pub unfinished: bool,
}

impl Gate {
    pub fn new(wire: Wire, activity: Arc<Activity>, limits: Arc<Limits>, host: HostRule) -> Self {
        let alarm = Alarm::new(Instant::now() + limits.idle_timeout);
        let state = State::Head { examined: 0, until: None };
        Self {
            wire,
            held: BytesMut::new(),
            state,
            alarm,
            refusal: None,
            closed: false,
            activity,
            limits,
            host,
        }
    }

    pub fn into_rest(self) -> Rest {
        let between = matches!(self.state, State::Head { .. } | State::Ended) && self.held.is_empty();
        let unfinished = !self.closed && (!between || self.refusal.is_some());
        Rest { wire: self.wire, refusal: self.refusal, unfinished }
    }

    /// The bytes below, with what was read of them and not let through; `after` is what came through and was not used.
    pub fn into_wire(self, after: &[u8]) -> Wire {
        let Self { mut wire, held, .. } = self;
        wire.unread([after, &held].concat());
        wire
    }

    fn next_head(&mut self) {
        self.state = State::Head { examined: 0, until: None };
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }

    /// Reads some more from the client; `false` is its end.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut space = [MaybeUninit::<u8>::uninit(); READ_BYTES];
        let mut fresh = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.wire).poll_read(cx, &mut fresh))?;
        self.held.extend_from_slice(fresh.filled());
        self.closed |= fresh.filled().is_empty();
        Poll::Ready(Ok(!fresh.filled().is_empty()))
    }

    /// Between requests, and in a head. Ready when the state has changed.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.activity.is_busy() {
                return self.poll_gone(cx);
            }
            let State::Head { examined, until } = &mut self.state else {
                return Poll::Ready(Ok(()));
            };
            if !self.held.is_empty() {
                until.get_or_insert_with(|| Instant::now() + self.limits.head_timeout);
                // Looking again is worth it only when a line was completed or much has come: whoever sends byte by byte must
                // not make us read the same head a thousand times.
                let worth = *examined == 0
                    || self.held.len() >= 2 * *examined
                    || self.held.len() > self.limits.max_head_bytes
                    || self.held[*examined..].contains(&b'\n');
                if worth {
                    *examined = self.held.len();
                    match head::check(&self.held, self.limits.max_head_bytes, self.host) {
                        Ok(Verdict::Whole { bytes, framing }) => return self.let_through(bytes, framing),
                        Ok(Verdict::Partial) => {}
                        Err(refusal) => return self.refuse(refusal),
                    }
                }
            }
            let deadline = until
                .unwrap_or_else(|| Instant::from_std(self.activity.moved_at()) + self.limits.idle_timeout);
            match self.fill(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) if self.held.is_empty() => return self.end(),
                Poll::Ready(Ok(false)) => {
                    return self.refuse(Fault::Malformed("it ended in the middle of its head").into());
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    ready!(self.alarm.poll(deadline, cx));
                    if self.held.is_empty() {
                        return self.end();
                    }
                    let limit_ms = u64::try_from(self.limits.head_timeout.as_millis()).unwrap_or(u64::MAX);
                    return self.refuse(Fault::HeadTooSlow { limit_ms }.into());
                }
            }
        }
    }

    /// While a request is answered hyper reads only to notice that the client has gone. Requests that the client sends ahead
    /// meanwhile are held, up to the size of one head. hyper relies on being woken when the answer is out.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < self.limits.max_head_bytes {
            match self.fill(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return self.end(),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => break,
            }
        }
        // Whatever comes next wakes us, if only the alarm; unless it is here already.
        let idle = Instant::now() + self.limits.idle_timeout;
        let _ = self.alarm.poll(idle, cx);
        if !self.held.is_empty() {
            self.activity.wake_at_end(cx.waker());
            if !self.activity.is_busy() {
                // It ended between the question and the registration, perhaps on another thread.
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    fn let_through(&mut self, bytes: usize, framing: Framing) -> Poll<io::Result<()>> {
        let head = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.state = match framing {
            Framing::Length(length) => State::Pass { left: head.saturating_add(length), chunked: false },
            Framing::Chunked => State::Pass { left: head, chunked: true },
        };
        Poll::Ready(Ok(()))
    }

    fn refuse(&mut self, refusal: Refusal) -> Poll<io::Result<()>> {
        self.refusal = Some(refusal);
        self.end()
    }

    fn end(&mut self) -> Poll<io::Result<()>> {
        self.state = State::Ended;
        Poll::Ready(Ok(()))
    }

    /// Hands on `count` bytes of what is held.
    fn hand(&mut self, count: usize, out: &mut ReadBuf<'_>) {
        out.put_slice(&self.held[..count]);
        self.held.advance(count);
    }
}

impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Head { .. } => ready!(this.poll_head(cx))?,
                State::Ended => return Poll::Ready(Ok(())),
                State::Pass { left: 0, chunked: false } => this.next_head(),
                State::Pass { left: 0, chunked: true } => this.state = State::Body(Chunks::new()),
                State::Body(chunks) if chunks.ended() => this.next_head(),
                State::Pass { .. } | State::Body(_) if this.held.is_empty() => {
                    if !ready!(this.fill(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                State::Pass { left, .. } => {
                    let most = this.held.len().min(out.remaining());
                    let count = usize::try_from(*left).map_or(most, |left| left.min(most));
                    *left -= u64::try_from(count).unwrap_or(0);
                    this.hand(count, out);
                    return Poll::Ready(Ok(()));
                }
                State::Body(chunks) => {
                    let most = this.held.len().min(out.remaining());
                    let Ok(count) = chunks.walk(&this.held[..most]) else {
                        this.state = State::Ended;
                        return Poll::Ready(Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "the body is not chunked as it should be",
                        )));
                    };
                    this.hand(count, out);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}
