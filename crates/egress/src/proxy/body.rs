//! The body of a request or an answer while it is forwarded. A held body is not read from its source until it is released.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio_util::sync::CancellationToken;

type Wait = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A reference held by each request in progress. The last remaining reference means that none is in progress.
pub type Busy = Arc<()>;

/// A request body on its way to the server, whose start can be held back.
pub struct ForwardedBody {
    body: Incoming,
    wait: Option<Wait>,
    _busy: Busy,
}

impl ForwardedBody {
    /// Is forwarded at once.
    pub fn unheld(body: Incoming, busy: Busy) -> Self {
        Self { body, wait: None, _busy: busy }
    }

    /// Is released when the token is cancelled, or after a time limit.
    pub fn held(body: Incoming, longest: Duration, busy: Busy) -> (CancellationToken, Self) {
        let release = CancellationToken::new();
        let released = release.clone();
        let wait: Wait = Box::pin(async move {
            // The time limit releases it as well.
            let _ = tokio::time::timeout(longest, released.cancelled()).await;
        });
        (release, Self { body, wait: Some(wait), _busy: busy })
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
