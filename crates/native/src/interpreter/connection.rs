//! A connection into a sandbox as a byte stream. Dropping it closes the connection and frees the execution slot.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use engine::EngineError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::program::InterpreterConnection;

/// Bytes of one write, which are copied once.
const WRITE_BYTES: usize = 64 * 1024;

type Task<T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send>>;

pub struct TunnelStream {
    connection: Arc<InterpreterConnection>,
    reading: Option<Task<Option<Bytes>>>,
    /// Bytes that were read ahead.
    ahead: Bytes,
    ended: bool,
    writing: Option<Task<()>>,
}

impl TunnelStream {
    pub fn new(connection: InterpreterConnection) -> Self {
        let connection = Arc::new(connection);
        Self { connection, reading: None, ahead: Bytes::new(), ended: false, writing: None }
    }

    /// Waits for the write in progress.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(task) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let done = ready!(task.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(done.map_err(io::Error::other))
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.ahead.is_empty() && !this.ended {
            let connection = &this.connection;
            let task = this.reading.get_or_insert_with(|| {
                let connection = Arc::clone(connection);
                Box::pin(async move { Ok(connection.tunnel.read().await?) })
            });
            let read = ready!(task.as_mut().poll(cx));
            this.reading = None;
            match read.map_err(io::Error::other)? {
                Some(bytes) => this.ahead = bytes,
                None => this.ended = true,
            }
        }
        let count = this.ahead.len().min(out.remaining());
        out.put_slice(&this.ahead[..count]);
        this.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(cx))?;
        let some = Bytes::copy_from_slice(&bytes[..bytes.len().min(WRITE_BYTES)]);
        let (count, connection) = (some.len(), Arc::clone(&self.connection));
        self.writing = Some(Box::pin(async move { Ok(connection.tunnel.write_all(&some).await?) }));
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
        Poll::Ready(
            self.connection.tunnel.finish().map_err(|error| io::Error::other(EngineError::from(error))),
        )
    }
}
