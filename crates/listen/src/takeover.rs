//! Protocol upgrades: when a response `101 Switching Protocols` with a [`Takeover`] extension has been sent, the takeover gets the
//! connection's bytes and runs inside the connection's task.
//!
//! Only HTTP/1.1 has this response; over HTTP/2 the takeover is dropped unused. The write timeout still applies; the takeover bounds
//! everything else.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use base::IgnorePoison;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::InFlight;
use crate::wire::Wire;

type Then = Box<dyn FnOnce(UpgradedStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Runs once, with the connection, after the response is sent. Clones share it.
#[derive(Clone)]
pub struct Takeover(Arc<Mutex<Option<Then>>>);

impl Takeover {
    /// Runs `then` when the response is sent.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        then: impl FnOnce(UpgradedStream) -> F + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(move |stream| Box::pin(then(stream)))))))
    }

    /// Holds a guard until the takeover has ended, or is dropped unused.
    pub fn hold(&self, guard: impl Send + 'static) {
        let mut then = self.0.lock().ignore_poison();
        let Some(held) = then.take() else { return };
        *then = Some(Box::new(move |stream| {
            Box::pin(async move {
                held(stream).await;
                drop(guard);
            })
        }));
    }

    fn take(&self) -> Option<Then> {
        self.0.lock().ignore_poison().take()
    }
}

/// The byte stream of an upgraded connection. Dropping it closes the connection.
pub struct UpgradedStream(Wire);

impl AsyncRead for UpgradedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, out)
    }
}

impl AsyncWrite for UpgradedStream {
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

/// Holds a connection's takeover until the response is sent.
#[derive(Clone, Default)]
pub struct TakeoverSlot(Arc<Mutex<Option<PendingTakeover>>>);

struct PendingTakeover {
    takeover: Takeover,
    /// Keeps the request counted as open, so that the following bytes are not parsed as a request.
    _flight: InFlight,
}

impl TakeoverSlot {
    /// Keeps the takeover of a request until its response is sent.
    pub fn put(&self, takeover: Takeover, flight: InFlight) {
        *self.lock() = Some(PendingTakeover { takeover, _flight: flight });
    }

    /// Runs the takeover with the connection.
    pub async fn run(&self, wire: Wire) {
        let waiting = self.lock().take();
        if let Some(then) = waiting.and_then(|waiting| waiting.takeover.take()) {
            then(UpgradedStream(wire)).await;
        }
    }

    /// Whether a request will take over the connection.
    pub fn is_taken(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<PendingTakeover>> {
        self.0.lock().ignore_poison()
    }
}
