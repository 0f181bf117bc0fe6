//! Checks HTTP/1 heads before hyper parses them. hyper responds to a malformed head with a bare status line, does not
//! respond to a slow head, and accepts some ambiguous framing (docs/adr/0015-heads-are-checked-before-hyper.md).
//!
//! The filter collects each head, checks it (`head`) and then lets hyper read it. It follows the body (`chunks`) to find the next head.
//! hyper never sees a refused head: after the responses before it, hyper reads the end of the connection, returns the connection, and
//! the caller answers the refusal.
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
#[cfg(any(test, feature = "fuzzing"))]
pub mod differential;
mod head;

use chunks::Chunks;
use head::{Framing, HeadVerdict};
pub use head::{HostRule, RefusedHead};

/// Bytes of one read. The buffer is on the stack, so that idle connections have no buffer.
const READ_BYTES: usize = 8192;

enum FilterState {
    /// `until` is set when the first byte of the head has arrived.
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

/// A connection of which hyper sees only acceptable heads.
pub struct HeadFilter<W> {
    wire: W,
    /// Bytes from the client that hyper has not read yet.
    buffered: BytesMut,
    state: FilterState,
    alarm: Alarm,
    refusal: Option<RefusedHead>,
    closed: bool,
    /// A failed read after content, which hyper gets first.
    failed: Option<io::Error>,
    activity: Arc<Activity>,
    limits: Arc<Limits>,
    host: HostRule,
}

/// A connection after hyper has finished with it.
pub struct Rest<W> {
    pub wire: W,
    pub refusal: Option<RefusedHead>,
    /// The client may still be sending.
    pub unfinished: bool,
}

impl HeadFilter<Wire> {
    /// The connection, with the bytes that hyper has not used: `after` is what hyper has read and not parsed.
    pub fn into_wire(self, after: &[u8]) -> Wire {
        let Self { mut wire, buffered, .. } = self;
        wire.push_back([after, &buffered].concat());
        wire
    }
}

impl<W: AsyncRead + Unpin> HeadFilter<W> {
    pub fn new(wire: W, activity: Arc<Activity>, limits: Arc<Limits>, host: HostRule) -> Self {
        let alarm = Alarm::new(Instant::now() + limits.idle_timeout);
        let state = FilterState::Head { examined: 0, until: None };
        Self {
            wire,
            buffered: BytesMut::new(),
            state,
            alarm,
            refusal: None,
            closed: false,
            failed: None,
            activity,
            limits,
            host,
        }
    }

    /// What remains when hyper has ended the connection.
    pub fn into_rest(self) -> Rest<W> {
        let between =
            matches!(self.state, FilterState::Head { .. } | FilterState::Ended) && self.buffered.is_empty();
        let unfinished = !self.closed && (!between || self.refusal.is_some());
        Rest { wire: self.wire, refusal: self.refusal, unfinished }
    }

    fn next_head(&mut self) {
        // The body may have ended after the response.
        self.activity.record_progress();
        self.state = FilterState::Head { examined: 0, until: None };
        if self.buffered.is_empty() {
            self.buffered = BytesMut::new();
        }
    }

    /// Reads more bytes from the client. `false`: the client has closed its side.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let mut space = [MaybeUninit::<u8>::uninit(); READ_BYTES];
        let mut fresh = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.wire).poll_read(cx, &mut fresh))?;
        self.buffered.extend_from_slice(fresh.filled());
        self.closed |= fresh.filled().is_empty();
        Poll::Ready(Ok(!fresh.filled().is_empty()))
    }

    /// Reads content directly into hyper's buffer, as much as has arrived: a record of TLS has 16 KiB at most, and each read takes a
    /// turn of hyper's task. Returns the number of bytes, 0 at the end.
    fn poll_content(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let start = out.filled().len();
        while out.remaining() > 0 {
            let end = out.filled().len();
            match Pin::new(&mut self.wire).poll_read(cx, out) {
                Poll::Ready(Ok(())) if out.filled().len() > end => {}
                Poll::Ready(Ok(())) => {
                    self.closed = true;
                    break;
                }
                Poll::Ready(Err(error)) if end == start => return Poll::Ready(Err(error)),
                Poll::Ready(Err(error)) => {
                    self.failed = Some(error);
                    break;
                }
                Poll::Pending if end == start => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(out.filled().len() - start))
    }

    /// Runs between requests and within a head. Ready when the state has changed.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.activity.is_busy() {
                return self.poll_closed(cx);
            }
            let FilterState::Head { examined, until } = &mut self.state else {
                return Poll::Ready(Ok(()));
            };
            if !self.buffered.is_empty() {
                until.get_or_insert_with(|| Instant::now() + self.limits.head_timeout);
                // Checked again only after a complete line or when the size has doubled: otherwise a client that sends single
                // bytes would have the same head parsed thousands of times.
                let is_due = *examined == 0
                    || self.buffered.len() >= 2 * *examined
                    || self.buffered.len() > self.limits.max_head_bytes
                    || self.buffered[*examined..].contains(&b'\n');
                if is_due {
                    *examined = self.buffered.len();
                    match head::check(&self.buffered, self.limits.max_head_bytes, self.host) {
                        Ok(HeadVerdict::Whole { bytes, framing }) => return self.pass_head(bytes, framing),
                        Ok(HeadVerdict::Partial) => {}
                        Err(refusal) => return self.refuse(refusal),
                    }
                }
            }
            let deadline = until.unwrap_or_else(|| {
                Instant::from_std(self.activity.last_progress()) + self.limits.idle_timeout
            });
            match self.fill(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) if self.buffered.is_empty() => return self.end(),
                Poll::Ready(Ok(false)) => {
                    return self.refuse(Fault::Malformed("it ended in the middle of its head").into());
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    ready!(self.alarm.poll(deadline, cx));
                    if self.buffered.is_empty() {
                        return self.end();
                    }
                    let limit_ms = base::millis(self.limits.head_timeout);
                    return self.refuse(Fault::HeadTooSlow { limit_ms }.into());
                }
            }
        }
    }

    /// While a request is being answered, hyper reads only to notice a closed connection. Pipelined bytes are held, up to the size of
    /// one head. hyper must be woken when the response has ended.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.buffered.len() < self.limits.max_head_bytes {
            match self.fill(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return self.end(),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => break,
            }
        }
        // The next byte wakes the task, or the alarm does; a byte that is already held does not.
        let idle = Instant::now() + self.limits.idle_timeout;
        let _ = self.alarm.poll(idle, cx);
        if !self.buffered.is_empty() {
            self.activity.wake_at_end(cx.waker());
            if !self.activity.is_busy() {
                // The request may have ended on another thread between the check and the registration.
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    fn pass_head(&mut self, bytes: usize, framing: Framing) -> Poll<io::Result<()>> {
        let head = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.state = match framing {
            Framing::Length(length) => {
                FilterState::Pass { left: head.saturating_add(length), chunked: false }
            }
            Framing::Chunked => FilterState::Pass { left: head, chunked: true },
        };
        Poll::Ready(Ok(()))
    }

    fn refuse(&mut self, refusal: RefusedHead) -> Poll<io::Result<()>> {
        self.refusal = Some(refusal);
        self.end()
    }

    fn end(&mut self) -> Poll<io::Result<()>> {
        self.state = FilterState::Ended;
        Poll::Ready(Ok(()))
    }

    /// Passes on `count` of the held bytes.
    fn pass_bytes(&mut self, count: usize, out: &mut ReadBuf<'_>) {
        out.put_slice(&self.buffered[..count]);
        self.buffered.advance(count);
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for HeadFilter<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                FilterState::Head { .. } => ready!(this.poll_head(cx))?,
                FilterState::Ended => return Poll::Ready(Ok(())),
                FilterState::Pass { left: 0, chunked: false } => this.next_head(),
                FilterState::Pass { left: 0, chunked: true } => this.state = FilterState::Body(Chunks::new()),
                FilterState::Body(chunks) if chunks.ended() => this.next_head(),
                // Never more than belongs to this request.
                FilterState::Pass { left, .. }
                    if this.buffered.is_empty() && *left >= out.remaining() as u64 =>
                {
                    let count = ready!(this.poll_content(cx, out))?;
                    if let FilterState::Pass { left, .. } = &mut this.state {
                        *left -= count as u64;
                    }
                    return Poll::Ready(Ok(()));
                }
                FilterState::Pass { .. } | FilterState::Body(_) if this.buffered.is_empty() => {
                    if !ready!(this.fill(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                FilterState::Pass { left, .. } => {
                    let available = this.buffered.len().min(out.remaining());
                    let count = usize::try_from(*left).map_or(available, |left| left.min(available));
                    *left -= u64::try_from(count).unwrap_or(0);
                    this.pass_bytes(count, out);
                    return Poll::Ready(Ok(()));
                }
                FilterState::Body(chunks) => {
                    let available = this.buffered.len().min(out.remaining());
                    let Ok(count) = chunks.advance(&this.buffered[..available]) else {
                        this.state = FilterState::Ended;
                        return Poll::Ready(Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "the body is not valid chunked encoding",
                        )));
                    };
                    this.pass_bytes(count, out);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for HeadFilter<W> {
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

    /// Only flushes: the wire may still have to carry the response to a refused head.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
