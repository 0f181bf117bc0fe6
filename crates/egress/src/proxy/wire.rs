//! A socket that ends with a reset, unless it was said that it ends well: a task that is dropped, refused, cut or panics
//! leaves no end behind that its peer could take for the end of what it was being sent.

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::net::{RecvFlags, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// What is known about a socket by those who do not hold it.
#[derive(Default)]
pub struct Manner {
    well: AtomicBool,
    mute: AtomicBool,
    waiting: AtomicBool,
    stuck: AtomicBool,
}

impl Manner {
    /// It ends as it is: with a goodbye and not with a reset.
    pub fn ends_well(&self) {
        self.well.store(true, Ordering::Release);
    }

    /// It ends with a reset again, unless it is said anew that it ends well.
    pub fn goes_on(&self) {
        self.well.store(false, Ordering::Release);
    }

    /// Whether the last that was done with it was to find nothing to read: whatever was to be written is.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether its peer did not take what was written last.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    fn has_written<T>(&self, written: &Poll<T>) {
        self.waiting.store(false, Ordering::Release);
        self.stuck.store(written.is_pending(), Ordering::Release);
    }

    /// While mute, nothing is sent: not even the answer that hyper has for what it does not understand.
    pub fn set_mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::Release);
    }
}

pub struct Wire {
    stream: TcpStream,
    /// Read already, and to be read again.
    ahead: Bytes,
    manner: Arc<Manner>,
}

impl Wire {
    /// Without delay, and with probes: a peer that vanished must not hold its place for ever.
    pub fn new(stream: TcpStream) -> Self {
        let prepared = stream.set_nodelay(true).and_then(|()| probe(&stream));
        if let Err(error) = prepared {
            // One that is broken already; the next read says so.
            tracing::debug!(%error, "a socket could not be prepared");
        }
        Self { stream, ahead: Bytes::new(), manner: Arc::default() }
    }

    /// Reads `bytes` first.
    pub fn with_ahead(mut self, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        // What is left of a buffer keeps all of its memory, even where it is nothing.
        self.ahead = if bytes.is_empty() { Bytes::new() } else { bytes };
        self
    }

    /// Says goodbye to the peer, whatever it may still be sending.
    pub fn close(self) {
        // One that is gone needs none.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        self.manner.ends_well();
    }

    /// What is read already.
    pub fn take_ahead(&mut self) -> Bytes {
        std::mem::take(&mut self.ahead)
    }

    pub fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    pub fn manner(&self) -> Arc<Manner> {
        Arc::clone(&self.manner)
    }
}

/// What a socket came to that was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stirred {
    Spoke,
    Ended,
    Broken,
}

impl Wire {
    /// Waits until there is something to read, and takes nothing of it.
    pub async fn stirred(&self) -> Stirred {
        if self.has_ahead() {
            return Stirred::Spoke;
        }
        loop {
            if self.stream.readable().await.is_err() {
                return Stirred::Broken;
            }
            let mut first = [0];
            let peeked = self.stream.try_io(Interest::READABLE, || {
                Ok(rustix::net::recv(&self.stream, &mut first[..], RecvFlags::PEEK)?.1)
            });
            match peeked {
                Ok(0) => return Stirred::Ended,
                Ok(_) => return Stirred::Spoke,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Stirred::Broken,
            }
        }
    }
}

fn probe(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_BETWEEN)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

impl Deref for Wire {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if !self.manner.well.load(Ordering::Acquire) {
            // An error means that there is nobody left to be told.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            let read = Pin::new(&mut self.stream).poll_read(context, into);
            self.manner.waiting.store(read.is_pending(), Ordering::Release);
            return read;
        }
        let length = self.ahead.len().min(into.remaining());
        into.put_slice(&self.ahead[..length]);
        self.ahead.advance(length);
        if self.ahead.is_empty() {
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.manner.mute.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.manner.has_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.manner.mute.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.manner.has_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
