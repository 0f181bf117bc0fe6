//! The body of a request on its way to the server, or of an answer on its way back. One that waits to be asked for is not taken
//! from where it comes before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio_util::sync::CancellationToken;

type Wait = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Kept by everything that is under way: whoever holds the only one knows that nothing is.
pub type Busy = Arc<()>;

pub struct Carried {
    body: Incoming,
    wait: Option<Wait>,
    _busy: Busy,
}

impl Carried {
    pub fn at_once(body: Incoming, busy: Busy) -> Self {
        Self { body, wait: None, _busy: busy }
    }

    /// Begins when what is answered is cancelled, at the latest after a while.
    pub fn held(body: Incoming, longest: Duration, busy: Busy) -> (CancellationToken, Self) {
        let go = CancellationToken::new();
        let gone = go.clone();
        let wait: Wait = Box::pin(async move {
            // That no time is left is as good as being asked.
            let _ = tokio::time::timeout(longest, gone.cancelled()).await;
        });
        (go, Self { body, wait: Some(wait), _busy: busy })
    }
}

impl Body for Carried {
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
