//! A TCP connection into the sandbox, carried by the agent, as a byte stream. Each direction ends on its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use guest_proto::ToGuest;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::op::{Incoming, Op};
use super::{Agent, LinkError};

/// Bytes of one write, which are copied once.
const WRITE_BYTES: usize = 64 * 1024;

type Task<T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send>>;

/// Dropping it closes the connection.
pub struct Tunnel {
    connection: Arc<DialedPort>,
    reading: Option<Task<Option<Bytes>>>,
    /// Bytes that were read ahead.
    ahead: Bytes,
    ended: bool,
    writing: Option<Task<()>>,
}

impl Tunnel {
    pub(super) fn new(agent: Agent, number: u64, op: Arc<Op>) -> Self {
        let connection = Arc::new(DialedPort { agent, number, op });
        Self { connection, reading: None, ahead: Bytes::new(), ended: false, writing: None }
    }

    /// Whether bytes are here that were not read yet.
    pub fn has_bytes(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Puts bytes back, to be read again.
    pub fn unread(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.ahead = if self.has_bytes() { [bytes, self.ahead.clone()].concat().into() } else { bytes };
        }
    }

    /// Whether the agent has not taken all bytes of the last write.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}

impl AsyncBufRead for Tunnel {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.ahead.is_empty() && !this.ended {
            let task = this.reading.get_or_insert_with(|| {
                let connection = Arc::clone(&this.connection);
                Box::pin(async move { connection.read().await })
            });
            let read = ready!(task.as_mut().poll(cx));
            this.reading = None;
            match read.map_err(io::Error::other)? {
                Some(bytes) => this.ahead = bytes,
                None => this.ended = true,
            }
        }
        Poll::Ready(Ok(&this.ahead))
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        self.ahead.advance(count);
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.as_mut().poll_fill_buf(cx))?;
        let count = bytes.len().min(out.remaining());
        out.put_slice(&bytes[..count]);
        self.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.as_mut().poll_flush(cx))?;
        let some = Bytes::copy_from_slice(&bytes[..bytes.len().min(WRITE_BYTES)]);
        let (count, connection) = (some.len(), Arc::clone(&self.connection));
        self.writing = Some(Box::pin(async move { connection.write_all(&some).await }));
        // Starts at once; the next call waits for the rest.
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
        }
    }

    /// Waits for the write in progress.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(task) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(task.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(written.map_err(io::Error::other))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Poll::Ready(self.connection.finish().map_err(io::Error::other))
    }
}

/// What the reads and writes in progress share.
struct DialedPort {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
}

impl DialedPort {
    /// Waits for the next bytes from the sandbox; `None` at their end.
    async fn read(&self) -> Result<Option<Bytes>, LinkError> {
        let (incoming, due) = self.op.next().await;
        if let Some((channel, bytes)) = due {
            self.agent.inner.send(&ToGuest::Credit { op: self.number, channel, bytes })?;
        }
        match incoming {
            Incoming::Bytes(_, bytes) => Ok(Some(bytes)),
            Incoming::Eof => Ok(None),
            Incoming::Refused(kind, message) => Err(LinkError::Refused { kind, message }),
            Incoming::Exited(..) => Err(LinkError::Unexpected { wanted: "bytes", got: "exited" }),
            Incoming::Lost => Err(LinkError::Closed),
        }
    }

    /// Sends bytes, waiting for credit from the agent.
    async fn write_all(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.send_data(self.number, &self.op, bytes).await
    }

    /// Closes the sending direction.
    fn finish(&self) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Eof { op: self.number })
    }
}

impl Drop for DialedPort {
    fn drop(&mut self) {
        self.agent.inner.forget(self.number);
        // Fails only if the link is lost, which closes the connection as well.
        let _ = self.agent.inner.send(&ToGuest::Close { op: self.number });
    }
}
