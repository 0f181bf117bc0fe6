//! A connection that stops speaking HTTP: an answer `101 Switching Protocols` with a [`Takeover`] among its extensions gets the
//! connection's bytes once it is sent, for as long as it likes, inside of the connection's own task.
//!
//! HTTP/1.1 alone: in HTTP/2 there is no such answer, and the takeover is dropped unused. Writing stays under the watch of the
//! write timeout; whatever else has to be bounded is a matter of what takes over.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::InFlight;
use crate::wire::Wire;

type Then = Box<dyn FnOnce(Taken) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// What happens with a connection after its last answer. Clones are the same one; it happens once.
#[derive(Clone)]
pub struct Takeover(Arc<Mutex<Option<Then>>>);

impl Takeover {
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        then: impl FnOnce(Taken) -> F + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(move |taken| Box::pin(then(taken)))))))
    }

    fn take(&self) -> Option<Then> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The bytes of a connection that was taken over. Dropping it closes it.
pub struct Taken(Wire);

impl AsyncRead for Taken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, out)
    }
}

impl AsyncWrite for Taken {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Where a connection's takeover waits for its answer to be sent.
#[derive(Clone, Default)]
pub struct Slot(Arc<Mutex<Option<Waiting>>>);

struct Waiting {
    takeover: Takeover,
    /// Keeps the request counted as open, so that what the client sends next is not read as another one.
    _flight: InFlight,
}

impl Slot {
    pub fn put(&self, takeover: Takeover, flight: InFlight) {
        *self.lock() = Some(Waiting { takeover, _flight: flight });
    }

    /// Lets the takeover have the connection.
    pub async fn run(&self, wire: Wire) {
        let waiting = self.lock().take();
        if let Some(then) = waiting.and_then(|waiting| waiting.takeover.take()) {
            then(Taken(wire)).await;
        }
    }

    pub fn is_taken(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
