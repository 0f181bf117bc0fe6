//! The connection to a program inside, as a byte stream that ends by itself: after the idle timeout, when the port is closed, when the
//! daemon stops, or when a response head does not end.
//!
//! Every poll that is pending checks these conditions. The stream then fails, and [`ConnectionState`] has the reason. Dropping it
//! closes the connection and allows the sandbox to pause.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use admission::metrics::OpenPort;
use api::SandboxId;
use axum::body::Body;
use base::IgnorePoison;
use bytes::Bytes;
use engine::{Engine, Exposure, Permit, Tunnel};
use hyper::client::conn::http1::Connection;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use service::ports::PortPermit;

/// The most bytes before a response head is complete, interim responses included.
const HEAD_BYTES: usize = 512 * 1024;

/// hyper's client connection, which drives both directions.
pub type ConnectionDriver = Connection<TokioIo<ProgramConnection>, Body>;

/// Why the service ended the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    Idle(Duration),
    Closed,
    Stopping,
    EndlessHead,
}

/// The state that is visible outside the stream.
#[derive(Debug, Default)]
pub struct ConnectionState {
    why: Mutex<Option<EndReason>>,
    has_head: AtomicBool,
    ends_at_stop: AtomicBool,
}

impl ConnectionState {
    pub fn why(&self) -> Option<EndReason> {
        *self.why.lock().ignore_poison()
    }

    /// The response head is complete.
    pub fn got_head(&self) {
        self.has_head.store(true, Ordering::Relaxed);
    }

    /// The response has no end of its own, so it ends when the daemon stops.
    pub fn ends_at_stop(&self) {
        self.ends_at_stop.store(true, Ordering::Relaxed);
    }
}

/// The connection.
pub struct ProgramConnection {
    tunnel: Tunnel,
    _held: (Permit, PortPermit),
    /// Resumes the sandbox when the client sends bytes, if the port allows it.
    rouse: Option<(Engine, SandboxId)>,
    counted: OpenPort,
    before_head: usize,
    idle: Duration,
    moved: Instant,
    timer: Pin<Box<Sleep>>,
    port_closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    stopping: CancellationToken,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    pub state: Arc<ConnectionState>,
}

impl ProgramConnection {
    pub fn new(
        tunnel: Tunnel,
        (permit, port_permit, counted): (Permit, PortPermit, OpenPort),
        (engine, exposure): (&Engine, Exposure),
        idle: Duration,
        stopping: CancellationToken,
    ) -> Self {
        let moved = Instant::now();
        Self {
            tunnel,
            _held: (permit, port_permit),
            rouse: exposure.port.auto_resume.then(|| (engine.clone(), exposure.record.id.clone())),
            counted,
            before_head: 0,
            idle,
            moved,
            timer: Box::pin(sleep_until(moved + idle)),
            port_closed: Box::pin(exposure.ended()),
            stopping,
            stop: None,
            state: Arc::default(),
        }
    }

    /// Puts bytes back, to be read again.
    pub fn unread(&mut self, bytes: Bytes) {
        self.tunnel.unread(bytes);
    }

    fn broken(&self, why: EndReason) -> io::Error {
        self.state.why.lock().ignore_poison().get_or_insert(why);
        io::Error::new(io::ErrorKind::ConnectionAborted, format!("ended: {why:?}"))
    }

    /// Ready when the connection has to end. Otherwise registers the task for the next check.
    fn guard(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.port_closed.as_mut().poll(cx).is_ready() {
            // A finished future must not be polled again.
            self.port_closed = Box::pin(std::future::pending());
            return Poll::Ready(self.broken(EndReason::Closed));
        }
        if self.state.ends_at_stop.load(Ordering::Relaxed) {
            let stop = self.stop.get_or_insert_with(|| Box::pin(self.stopping.clone().cancelled_owned()));
            if stop.as_mut().poll(cx).is_ready() {
                self.stop = None;
                return Poll::Ready(self.broken(EndReason::Stopping));
            }
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let until = self.moved + self.idle;
            if Instant::now() >= until {
                return Poll::Ready(self.broken(EndReason::Idle(self.idle)));
            }
            self.timer.as_mut().reset(until);
        }
    }

    /// Waits for the write in progress.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.tunnel.is_writing() {
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(written) = Pin::new(&mut self.tunnel).poll_flush(cx) else {
            return Poll::Ready(Err(ready!(self.guard(cx))));
        };
        self.moved = Instant::now();
        Poll::Ready(written)
    }

    /// Waits until bytes are here, or the program has sent all.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tunnel.has_bytes() {
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(received) = Pin::new(&mut self.tunnel).poll_fill_buf(cx) else {
            return Poll::Ready(Err(ready!(self.guard(cx))));
        };
        let count = received?.len();
        if count > 0 {
            self.moved = Instant::now();
            self.counted.count_from_program(count);
        }
        if !self.state.has_head.load(Ordering::Relaxed) {
            self.before_head += count;
            if self.before_head > HEAD_BYTES {
                return Poll::Ready(Err(self.broken(EndReason::EndlessHead)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ProgramConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_received(cx))?;
        Pin::new(&mut self.tunnel).poll_read(cx, out)
    }
}

impl AsyncWrite for ProgramConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(cx))?;
        if let Some((engine, id)) = &self.rouse {
            engine.wake_if_paused(id);
        }
        let count = ready!(Pin::new(&mut self.tunnel).poll_write(cx, bytes))?;
        self.counted.count_to_program(count);
        if !self.tunnel.is_writing() {
            self.moved = Instant::now();
        } else if let Poll::Ready(error) = self.guard(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        Pin::new(&mut self.tunnel).poll_shutdown(cx)
    }
}
