//! What a connection becomes after `101`: bytes both ways, which whoever answered carries from there. HTTP/1.1 only.
//!
//! A request that asks for it has an [`Upgrade`] among its extensions. A handler that answers `101` says there what happens next;
//! any other answer takes that back, so that nothing but the answer itself decides.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::Wire;

type Next = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// A request's leave to go on in another protocol. Extension of a request that asks for one.
#[derive(Clone, Default)]
pub struct Upgrade {
    next: Arc<Mutex<Option<Next>>>,
}

impl Upgrade {
    /// What happens on the connection once `101` is sent. It ends with the future, and at the latest with the grace of a stop.
    pub fn then<F: Future<Output = ()> + Send + 'static>(
        &self,
        next: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) {
        let next: Next = Box::new(|upgraded| Box::pin(next(upgraded)));
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    pub(crate) fn take(&self) -> Option<Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection that speaks HTTP no more.
pub struct Upgraded(pub(crate) Wire);

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, out)
    }
}

impl AsyncWrite for Upgraded {
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
