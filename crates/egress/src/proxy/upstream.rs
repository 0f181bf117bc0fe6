//! The connection to the server behind a terminated HTTP connection, in the same version of HTTP.

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

use super::body::Carried;
use super::bounds::{HEAD_BYTES_MAX, HEADERS_MAX, SEND_BYTES};
use super::wire::Wire;

/// What is received ahead of the client, on all streams together.
const WINDOW_BYTES: u32 = 256 * 1024;
/// What is read at a time, and so how long a head can be.
const BUFFER_BYTES: usize = 128 * 1024;

type Answering = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;
type One = http1::Connection<TokioIo<Wire>, Carried>;

/// Ends with what it belongs to.
pub enum Upstream {
    One {
        sender: http1::SendRequest<Carried>,
        recall: CancellationToken,
        driver: AbortOnDropHandle<Option<Wire>>,
    },
    Two {
        sender: http2::SendRequest<Carried>,
        _driver: AbortOnDropHandle<()>,
    },
}

impl Upstream {
    /// Begins to speak; `gone` is cancelled when the server has ended the connection.
    pub async fn begin(wire: Wire, is_two: bool, gone: CancellationToken) -> io::Result<Self> {
        if is_two {
            return Self::begin_two(wire, gone).await;
        }
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES)
            // Clients understand these; they come to them in the one form that there is today.
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(io::Error::other)?;
        let recall = CancellationToken::new();
        let driver = tokio::spawn(drive(connection, recall.clone(), gone));
        Ok(Self::One { sender, recall, driver: AbortOnDropHandle::new(driver) })
    }

    async fn begin_two(wire: Wire, gone: CancellationToken) -> io::Result<Self> {
        let manner = wire.manner();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buf_size(SEND_BYTES)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(io::Error::other)?;
        let gone = gone.drop_guard();
        let driver = tokio::spawn(async move {
            if connection.await.is_ok() {
                manner.ends_well();
            }
            drop(gone);
        });
        Ok(Self::Two { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Sends a request. What is answered can be waited for while others are sent, where the version has streams.
    pub async fn send(&mut self, request: Request<Carried>) -> io::Result<Answering> {
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

    /// The socket alone, once all that was asked is answered. `None` if the connection is of no more use.
    pub async fn rest(self) -> Option<Wire> {
        let Self::One { mut sender, recall, driver } = self else { return None };
        sender.ready().await.ok()?;
        recall.cancel();
        driver.await.ok().flatten()
    }

    /// The socket after it was agreed to leave HTTP, and with it what was read of it already.
    pub async fn leave(self) -> Option<Wire> {
        let Self::One { driver, .. } = self else { return None };
        driver.await.ok().flatten()
    }
}

/// Drives a connection to its end, or until it is recalled. Gives back its socket, if that is in one piece.
async fn drive(mut connection: One, recall: CancellationToken, gone: CancellationToken) -> Option<Wire> {
    let gone = gone.drop_guard();
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
            wire.manner().ends_well();
            Some(wire)
        }
        // The server has answered what it did not take, or what nobody asked: nothing can follow that.
        None if wire.manner().is_stuck() || wire.has_ahead() => None,
        None => {
            gone.disarm();
            Some(wire)
        }
    }
}
