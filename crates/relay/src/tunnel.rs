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
use bytes::{Buf, Bytes};
use engine::{Engine, EngineError, Exposure, Permit, Tunnel};
use hyper::client::conn::http1::Connection;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use service::ports::PortPermit;

/// Bytes of one write, which are copied once.
const WRITE_BYTES: usize = 64 * 1024;
/// The most bytes before a response head is complete, interim responses included.
const HEAD_BYTES: usize = 512 * 1024;

type Task<T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send>>;

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
    tunnel: Arc<Tunnel>,
    _held: (Permit, PortPermit),
    /// Resumes the sandbox when the client sends bytes, if the port allows it.
    rouse: Option<(Engine, SandboxId)>,
    counted: OpenPort,
    reading: Option<Task<Option<Bytes>>>,
    /// Bytes that were read ahead.
    ahead: Bytes,
    ended: bool,
    before_head: usize,
    writing: Option<Task<()>>,
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
            tunnel: Arc::new(tunnel),
            _held: (permit, port_permit),
            rouse: exposure.port.auto_resume.then(|| (engine.clone(), exposure.record.id.clone())),
            counted,
            reading: None,
            ahead: Bytes::new(),
            ended: false,
            before_head: 0,
            writing: None,
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
        if !bytes.is_empty() {
            self.ahead =
                if self.ahead.is_empty() { bytes } else { [bytes, self.ahead.clone()].concat().into() };
        }
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
        let Some(task) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let Poll::Ready(done) = task.as_mut().poll(cx) else {
            return Poll::Ready(Err(ready!(self.guard(cx))));
        };
        self.writing = None;
        self.moved = Instant::now();
        Poll::Ready(done.map_err(io::Error::other))
    }

    fn received(&mut self, bytes: Bytes) -> io::Result<()> {
        self.moved = Instant::now();
        self.counted.count_from_program(bytes.len());
        if !self.state.has_head.load(Ordering::Relaxed) {
            self.before_head += bytes.len();
            if self.before_head > HEAD_BYTES {
                return Err(self.broken(EndReason::EndlessHead));
            }
        }
        self.ahead = bytes;
        Ok(())
    }
}

impl AsyncRead for ProgramConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.ahead.is_empty() {
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            let task = this.reading.get_or_insert_with(|| {
                let tunnel = Arc::clone(&this.tunnel);
                Box::pin(async move { Ok(tunnel.read().await?) })
            });
            let Poll::Ready(read) = task.as_mut().poll(cx) else {
                return Poll::Ready(Err(ready!(this.guard(cx))));
            };
            this.reading = None;
            match read.map_err(io::Error::other)? {
                Some(bytes) => this.received(bytes)?,
                None => this.ended = true,
            }
        }
        let count = this.ahead.len().min(out.remaining());
        out.put_slice(&this.ahead[..count]);
        this.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ProgramConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(cx))?;
        let some = Bytes::copy_from_slice(&bytes[..bytes.len().min(WRITE_BYTES)]);
        let (count, tunnel) = (some.len(), Arc::clone(&self.tunnel));
        self.counted.count_to_program(count);
        if let Some((engine, id)) = &self.rouse {
            engine.wake_if_paused(id);
        }
        self.writing = Some(Box::pin(async move { Ok(tunnel.write_all(&some).await?) }));
        // Starts at once; the next call waits for the rest.
        match self.poll_written(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        Poll::Ready(self.tunnel.finish().map_err(|error| io::Error::other(EngineError::from(error))))
    }
}
