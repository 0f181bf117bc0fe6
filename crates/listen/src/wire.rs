//! The byte stream of one connection, with or without TLS. A write without progress fails after the write timeout, so a client that
//! does not read cannot hold a connection forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// The most bytes that are read and discarded after the last response.
pub const LINGER_BYTES: usize = 128 * 1024 * 1024;

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection, of whatever kind, that gives up on a client that does not read.
pub struct Wire {
    stream: Stream,
    /// Bytes that were put back and are read first.
    ahead: Vec<u8>,
    write_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    broken: bool,
}

impl Wire {
    /// A connection without TLS.
    pub fn plain(stream: TcpStream, write_timeout: Duration) -> Self {
        Self::new(Stream::Plain(stream), write_timeout)
    }

    /// A connection after its handshake.
    pub fn tls(stream: TlsStream<TcpStream>, write_timeout: Duration) -> Self {
        Self::new(Stream::Tls(Box::new(stream)), write_timeout)
    }

    fn new(stream: Stream, write_timeout: Duration) -> Self {
        Self { stream, ahead: Vec::new(), write_timeout, stalled: None, broken: false }
    }

    /// Puts bytes back, to be read again.
    pub fn push_back(&mut self, bytes: Vec<u8>) {
        self.ahead = bytes;
    }

    /// Closes the sending side, then reads and discards for at most `time`. If unread bytes were left at the close, the kernel
    /// would reset the connection and the client could lose a response that it has not read yet.
    pub async fn linger(mut self, time: Duration) {
        if self.broken {
            return;
        }
        let drain = async {
            if self.shutdown().await.is_err() {
                return;
            }
            let Stream::Plain(tcp) = self.stream.without_tls() else { return };
            let mut read = 0;
            let mut scrap = vec![0; 8192];
            while read < LINGER_BYTES {
                if tcp.readable().await.is_err() {
                    return;
                }
                match tcp.try_read(&mut scrap) {
                    Ok(0) => return,
                    Ok(count) => read += count,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        // The connection is closed in any case.
        let _ = tokio::time::timeout(time, drain).await;
    }

    /// Closes the sending side without waiting for the client.
    pub async fn close(mut self) {
        if !self.broken {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.shutdown()).await;
        }
    }

    fn poll_stream<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut dyn Duplex>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let done = match &mut self.stream {
            Stream::Plain(tcp) => poll(Pin::new(tcp), cx),
            Stream::Tls(tls) => poll(Pin::new(tls.as_mut()), cx),
        };
        self.broken |= matches!(done, Poll::Ready(Err(_)));
        done
    }

    /// Writes, with the write timeout.
    fn poll_write_with_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut dyn Duplex>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = self.poll_stream(cx, poll) {
            self.stalled = None;
            return Poll::Ready(done);
        }
        let timeout = self.write_timeout;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(cx));
        self.broken = true;
        let reason = format!("the client read nothing for {} ms", timeout.as_millis());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl Stream {
    /// The socket below TLS, for bytes that are discarded and need no decryption.
    fn without_tls(self) -> Self {
        match self {
            Self::Tls(tls) => Self::Plain(tls.into_inner().0),
            plain => plain,
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(out.remaining());
            out.put_slice(&self.ahead[..count]);
            self.ahead.drain(..count);
            return Poll::Ready(Ok(()));
        }
        self.poll_stream(cx, |stream, cx| stream.poll_read(cx, out))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with_timeout(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with_timeout(cx, |stream, cx| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(tcp) => tcp.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with_timeout(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with_timeout(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

/// A timer whose deadline is often postponed and seldom expires. Postponing does not reset the timer before it
/// expires.
pub struct Alarm {
    timer: Pin<Box<Sleep>>,
}

impl Alarm {
    pub fn new(at: Instant) -> Self {
        Self { timer: Box::pin(tokio::time::sleep_until(at)) }
    }

    /// Ready at `at` or later.
    pub fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() > at {
            self.timer.as_mut().reset(at);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(at);
        }
    }
}
