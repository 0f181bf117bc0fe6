//! The connection to the server behind a terminated HTTP connection, in the same version of HTTP.

use std::io;
use std::pin::Pin;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::body::Outgoing;
use super::wire::Wire;

/// What is received ahead of the client, on all streams together.
const WINDOW_BYTES: u32 = 256 * 1024;
/// What is kept of one stream for a server that does not take it.
const SEND_BYTES: usize = 64 * 1024;
/// What is read at a time, and so how long a head can be.
const BUFFER_BYTES: usize = 128 * 1024;

type Answering = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

pub struct Upstream {
    sender: Sender,
    /// Ends with what it belongs to.
    _driver: AbortOnDropHandle<()>,
}

enum Sender {
    One(http1::SendRequest<Outgoing>),
    Two(http2::SendRequest<Outgoing>),
}

impl Upstream {
    /// Begins to speak; `gone` is cancelled when the server has ended the connection.
    pub async fn begin(wire: Wire, is_two: bool, gone: CancellationToken) -> io::Result<Self> {
        let manner = wire.manner();
        let io = TokioIo::new(wire);
        let drop_guard = gone.drop_guard();
        let finish = move |result: hyper::Result<()>| {
            if result.is_ok() {
                manner.ends_well();
            }
            drop(drop_guard);
        };
        let (sender, driver) = if is_two {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_connection_window_size(WINDOW_BYTES)
                .max_send_buf_size(SEND_BYTES)
                .handshake(io)
                .await
                .map_err(io::Error::other)?;
            (Sender::Two(sender), tokio::spawn(async move { finish(connection.await) }))
        } else {
            let (sender, connection) = http1::Builder::new()
                .preserve_header_case(true)
                .max_buf_size(BUFFER_BYTES)
                .handshake(io)
                .await
                .map_err(io::Error::other)?;
            (Sender::One(sender), tokio::spawn(async move { finish(connection.with_upgrades().await) }))
        };
        Ok(Self { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Sends a request. What is answered can be waited for while others are sent, where the version has streams.
    pub async fn send(&mut self, request: Request<Outgoing>) -> io::Result<Answering> {
        Ok(match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await.map_err(io::Error::other)?;
                Box::pin(sender.send_request(request))
            }
            Sender::Two(sender) => {
                sender.ready().await.map_err(io::Error::other)?;
                Box::pin(sender.send_request(request))
            }
        })
    }
}
