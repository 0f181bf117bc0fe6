//! A socket that is reset when it is dropped, unless it is marked to close normally: if a task is dropped, refused,
//! cut or panics, the peer must not mistake the end of the connection for the end of the data.

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
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// The state of a socket, shared with others than its owner.
#[derive(Default)]
pub struct WireState {
    well: AtomicBool,
    mute: AtomicBool,
    waiting: AtomicBool,
    stuck: AtomicBool,
}

impl WireState {
    /// Marks the socket to close normally instead of by a reset.
    pub fn set_close_normally(&self) {
        self.well.store(true, Ordering::Release);
    }

    /// Marks the socket to be reset again.
    pub fn set_reset(&self) {
        self.well.store(false, Ordering::Release);
    }

    /// Whether the last operation was a read that found nothing: everything has been written.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether the last write could not be completed.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    fn has_written<T>(&self, written: &Poll<T>) {
        self.waiting.store(false, Ordering::Release);
        self.stuck.store(written.is_pending(), Ordering::Release);
    }

    /// While muted, nothing is sent, not even hyper's answer to invalid requests.
    pub fn set_mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::Release);
    }
}

/// One socket of a connection that passes the proxy.
pub struct Wire {
    stream: TcpStream,
    /// Data that was read ahead.
    ahead: Bytes,
    state: Arc<WireState>,
}

impl Wire {
    /// Turns on TCP_NODELAY and keep-alive: a lost peer must not hold its permit forever.
    pub fn new(stream: TcpStream) -> Self {
        let prepared = stream.set_nodelay(true).and_then(|()| probe(&stream));
        if let Err(error) = prepared {
            // The socket is broken; the next read reports it.
            tracing::debug!(%error, "cannot set options of a socket");
        }
        Self { stream, ahead: Bytes::new(), state: Arc::default() }
    }

    /// Returns `bytes` before data of the socket.
    pub fn with_ahead(mut self, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        // A shared buffer would keep its whole memory, even for an empty rest.
        self.ahead = if bytes.is_empty() { Bytes::new() } else { bytes };
        self
    }

    /// Closes normally, even if the peer still sends.
    pub fn close(self) {
        // Fails if the peer is gone.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        self.state.set_close_normally();
    }

    /// Takes the data that was read ahead.
    pub fn take_ahead(&mut self) -> Bytes {
        std::mem::take(&mut self.ahead)
    }

    /// Whether data was read ahead that is not consumed yet.
    pub fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// What both directions of a copy and hyper share about the socket.
    pub fn state(&self) -> Arc<WireState> {
        Arc::clone(&self.state)
    }
}

/// What happened on an idle socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    Spoke,
    Ended,
    Broken,
}

impl Wire {
    /// Waits until the socket is readable, and reads nothing.
    pub async fn wait_readable(&self) -> Readable {
        if self.has_ahead() {
            return Readable::Spoke;
        }
        loop {
            if self.stream.readable().await.is_err() {
                return Readable::Broken;
            }
            let mut first = [0];
            let peeked = self.stream.try_io(Interest::READABLE, || {
                Ok(rustix::net::recv(&self.stream, &mut first[..], RecvFlags::PEEK)?.1)
            });
            match peeked {
                Ok(0) => return Readable::Ended,
                Ok(_) => return Readable::Spoke,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Readable::Broken,
            }
        }
    }
}

fn probe(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
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
        if !self.state.well.load(Ordering::Acquire) {
            // An error means that the peer is gone.
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
            self.state.waiting.store(read.is_pending(), Ordering::Release);
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
        if self.state.mute.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.state.has_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state.mute.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.state.has_written(&written);
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
