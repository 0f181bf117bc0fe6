//! The upstream connection of a terminated HTTP connection, in the same version of HTTP.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::body::ForwardedBody;
use super::bounds::{HEAD_BYTES_MAX, HEADERS_MAX, Http, SEND_BYTES};
use super::wire::Wire;

/// Receive window of all streams together.
const WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of one read, and so the maximum size of a head.
const BUFFER_BYTES: usize = 128 * 1024;

type ResponseFuture = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;
type One = http1::Connection<TokioIo<Wire>, ForwardedBody>;

/// The connection ends when this is dropped.
pub enum Upstream {
    One {
        sender: http1::SendRequest<ForwardedBody>,
        recall: CancellationToken,
        driver: AbortOnDropHandle<Option<Wire>>,
    },
    Two {
        sender: http2::SendRequest<ForwardedBody>,
        _driver: AbortOnDropHandle<()>,
    },
}

impl Upstream {
    /// Starts HTTP; `closed` is cancelled when the server closes the connection.
    pub async fn begin(wire: Wire, kind: Http, closed: CancellationToken) -> io::Result<Self> {
        if kind == Http::Two {
            return Self::begin_two(wire, closed).await;
        }
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES)
            // Forwarded to the client in today's form.
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(io::Error::other)?;
        let recall = CancellationToken::new();
        let driver = tokio::spawn(drive(connection, recall.clone(), closed));
        Ok(Self::One { sender, recall, driver: AbortOnDropHandle::new(driver) })
    }

    async fn begin_two(wire: Wire, closed: CancellationToken) -> io::Result<Self> {
        let state = wire.state();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buf_size(SEND_BYTES)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(io::Error::other)?;
        let closed = closed.drop_guard();
        let driver = tokio::spawn(async move {
            if connection.await.is_ok() {
                state.set_close_normally();
            }
            drop(closed);
        });
        Ok(Self::Two { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Sends a request. With streams, others can be sent while its answer is awaited.
    pub async fn send(&mut self, request: Request<ForwardedBody>) -> io::Result<ResponseFuture> {
        Ok(match self {
            Self::One { sender, .. } => {
                sender.ready().await.map_err(io::Error::other)?;
                Box::pin(sender.send_request(request))
            }
            Self::Two { sender, .. } => {
                sender.ready().await.map_err(io::Error::other)?;
                Box::pin(sender.send_request(request))
            }
        })
    }

    /// The socket, when all requests are answered. `None` if the connection cannot be used again.
    pub async fn into_idle(self) -> Option<Wire> {
        let Self::One { mut sender, recall, driver } = self else { return None };
        sender.ready().await.ok()?;
        recall.cancel();
        driver.await.ok().flatten()
    }

    /// The socket after an upgrade, with data that was read ahead.
    pub async fn into_wire(self) -> Option<Wire> {
        let Self::One { driver, .. } = self else { return None };
        driver.await.ok().flatten()
    }
}

/// Drives a connection until it ends or is recalled. Returns its socket if it can be used again.
async fn drive(mut connection: One, recall: CancellationToken, closed: CancellationToken) -> Option<Wire> {
    let closed = closed.drop_guard();
    let ended = {
        let mut recalled = std::pin::pin!(recall.cancelled());
        poll_fn(|context| match connection.poll_without_shutdown(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => recalled.as_mut().poll(context).map(|()| None),
        })
        .await
    };
    let parts = connection.into_parts();
    let wire = parts.io.into_inner().with_ahead(parts.read_buf);
    match ended {
        Some(Err(_)) => None,
        Some(Ok(())) => {
            wire.state().set_close_normally();
            Some(wire)
        }
        // The server answered a request that it did not read, or sent something unrequested: the connection cannot be used
        // again.
        None if wire.state().is_stuck() || wire.has_ahead() => None,
        None => {
            closed.disarm();
            Some(wire)
        }
    }
}
