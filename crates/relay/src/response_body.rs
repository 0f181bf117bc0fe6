//! The body of a program's response. Reading it drives the connection to the program in both directions: a client that reads slowly
//! slows the program down, and a client that disconnects ends the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::tunnel::{ConnectionDriver, ConnectionState};

pub struct ResponseBody {
    pub body: Incoming,
    pub driver: Option<ConnectionDriver>,
    pub state: Arc<ConnectionState>,
}

impl ResponseBody {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx).map_err(|error| {
            let why = self.state.why().map(|why| io::Error::other(format!("ended: {why:?}")));
            why.map_or_else(|| error.into(), Into::into)
        })
    }
}

impl Body for ResponseBody {
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
                        // The body returns the error, if there is one.
                        self.driver = None;
                    }
                    std::task::ready!(self.poll_body(cx))
                }
                Poll::Ready(frame) => frame,
            };
            match frame {
                // Trailers are not forwarded.
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
