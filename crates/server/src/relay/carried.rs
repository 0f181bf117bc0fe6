//! The body of a program's answer on its way to the client. Reading it drives the connection to the program, both ways: a client that
//! does not read slows the program down, and one that goes away ends the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::inside::{Driver, State};

pub struct Carried {
    pub body: Incoming,
    pub driver: Option<Driver>,
    pub state: Arc<State>,
}

impl Carried {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx).map_err(|error| {
            let why = self.state.why().map(|why| io::Error::other(format!("broken off: {why:?}")));
            why.map_or_else(|| error.into(), Into::into)
        })
    }
}

impl Body for Carried {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let frame = match self.poll_body(cx) {
                Poll::Pending => {
                    let Some(driver) = &mut self.driver else { return Poll::Pending };
                    if driver.poll_without_shutdown(cx).is_ready() {
                        // What ended it, the body knows of.
                        self.driver = None;
                    }
                    std::task::ready!(self.poll_body(cx))
                }
                Poll::Ready(frame) => frame,
            };
            match frame {
                // Trailers say something of a framing that ends here.
                Some(Ok(frame)) if !frame.is_data() => {}
                frame => return Poll::Ready(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
