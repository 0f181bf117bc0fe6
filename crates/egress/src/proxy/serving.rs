//! The client's side of a terminated HTTP connection while it is active, for HTTP/1 and HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::body::ForwardedBody;
use super::bounds::{HEAD_BYTES_MAX, HEADERS_MAX, SEND_BYTES};
use super::exchange::{Exchange, NotForwarded};
use super::wire::{Wire, WireState};

/// An idle connection is closed after this time; most servers close much earlier.
pub const NEXT_HEAD_TIME: Duration = Duration::from_secs(600);
/// Receive window of all streams together.
const WINDOW_BYTES: u32 = 256 * 1024;
const STREAMS_MAX: u32 = 64;

/// Passes every request to the exchange.
pub struct ExchangeService(Arc<Exchange>);

impl Service<Request<Incoming>> for ExchangeService {
    type Response = Response<ForwardedBody>;
    type Error = NotForwarded;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ForwardedBody>, NotForwarded>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let exchange = Arc::clone(&self.0);
        Box::pin(async move { exchange.answer(request).await })
    }
}

/// An active connection.
pub trait Serve {
    /// Polls the connection. Ready when it has ended or is idle.
    fn serve(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<Paused>>;
    /// Accepts no more requests.
    fn finish(&mut self);
}

/// Why a connection needs no more polls for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// All requests are answered, and no further one has arrived.
    Idle,
    Ended,
}

/// An HTTP/1 connection of a client.
pub struct One {
    connection: http1::Connection<TokioIo<Wire>, ExchangeService>,
    exchange: Arc<Exchange>,
    client: Arc<WireState>,
}

impl One {
    pub fn new(client: Wire, exchange: &Arc<Exchange>) -> Self {
        let state = client.state();
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .half_close(true)
            .preserve_header_case(true)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(2 * HEAD_BYTES_MAX)
            .header_read_timeout(NEXT_HEAD_TIME);
        let connection =
            builder.serve_connection(TokioIo::new(client), ExchangeService(Arc::clone(exchange)));
        Self { connection, exchange: Arc::clone(exchange), client: state }
    }

    /// The socket, with data that was read ahead.
    pub fn into_wire(self) -> Wire {
        let parts = self.connection.into_parts();
        parts.io.into_inner().with_ahead(parts.read_buf)
    }
}

impl Serve for One {
    fn serve(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<Paused>> {
        match self.connection.poll_without_shutdown(context) {
            Poll::Ready(done) => Poll::Ready(done.map(|()| Paused::Ended)),
            // The answer is written: the connection has looked for the next request after it.
            Poll::Pending if self.exchange.is_done() && self.client.is_waiting() => {
                Poll::Ready(Ok(Paused::Idle))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn finish(&mut self) {
        Pin::new(&mut self.connection).graceful_shutdown();
    }
}

/// An HTTP/2 connection of a client.
pub struct Two(http2::Connection<TokioIo<Wire>, ExchangeService, TokioExecutor>);

impl Two {
    pub fn new(client: Wire, exchange: &Arc<Exchange>) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_send_buf_size(SEND_BYTES);
        Self(builder.serve_connection(TokioIo::new(client), ExchangeService(Arc::clone(exchange))))
    }
}

impl Serve for Two {
    fn serve(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<Paused>> {
        ready!(Pin::new(&mut self.0).poll(context))?;
        Poll::Ready(Ok(Paused::Ended))
    }

    fn finish(&mut self) {
        Pin::new(&mut self.0).graceful_shutdown();
    }
}
