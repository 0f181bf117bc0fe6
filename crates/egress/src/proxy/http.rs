//! Plain HTTP, ended here and begun anew towards the server, so that every request of a connection is judged and what the
//! server reads is what was judged: both sides see one and the same framing, ours.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Instant, sleep_until};

use super::bounds::Place;
use super::exchange::Exchange;
use super::head::HEAD_TIME;
use super::session::{Session, Stop};
use super::splice::{End, splice, write_all};
use super::wire::Wire;
use crate::refusals::Reason;

/// The request line and the headers of one request.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 256;
/// A connection that waits for its next request for longer is closed; servers mostly do so much sooner.
const NEXT_HEAD_TIME: Duration = Duration::from_secs(600);
/// What is received ahead of the server, on all streams together.
const WINDOW_BYTES: u32 = 256 * 1024;
/// What is kept of one stream for a client that does not take it.
const SEND_BYTES: usize = 64 * 1024;
const STREAMS_MAX: u32 = 128;

/// Serves a connection to its end.
pub async fn serve(
    session: &Arc<Session>,
    client: Wire,
    is_two: bool,
    connected: Option<Wire>,
    place: &mut Place,
) -> Result<(), Stop> {
    let manner = client.manner();
    manner.set_mute(!is_two);
    let exchange = Arc::new(Exchange::new(Arc::clone(session), is_two, Arc::clone(&manner), connected));
    let answering = Arc::clone(&exchange);
    let service = service_fn(move |request| {
        let exchange = Arc::clone(&answering);
        async move { exchange.answer(request).await }
    });
    let io = TokioIo::new(client);
    // Nothing of it goes on when this is over, in whatever way.
    let _ended = exchange.ended.clone().drop_guard();
    let done = if is_two {
        let serving = two().serve_connection(io, service);
        attend(&exchange, place, std::pin::pin!(serving), |serving| serving.graceful_shutdown()).await?
    } else {
        let serving = one().serve_connection(io, service).with_upgrades();
        attend(&exchange, place, std::pin::pin!(serving), |serving| serving.graceful_shutdown()).await?
    };
    if let Some(both) = exchange.take_upgrade() {
        return upgraded(&exchange, both).await;
    }
    if done {
        manner.ends_well();
    }
    Ok(())
}

fn one() -> http1::Builder {
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
    builder
}

fn two() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES);
    builder
}

/// Serves until the connection has ended or is to be reset. Says whether it has ended well.
async fn attend<C: Future<Output = hyper::Result<()>>>(
    exchange: &Exchange,
    place: &mut Place,
    mut serving: Pin<&mut C>,
    finish: impl Fn(Pin<&mut C>),
) -> Result<bool, Stop> {
    let deadline = Instant::now() + HEAD_TIME;
    let (mut judged, mut finishing) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = exchange.ended.cancelled() => return Ok(false),
            () = exchange.cut() => return Ok(false),
            done = &mut serving => {
                return match done {
                    Ok(()) => Ok(true),
                    Err(error) if exchange.judged.is_cancelled() || exchange.ended.is_cancelled() => {
                        Err(io::Error::other(error).into())
                    }
                    Err(error) if error.is_incomplete_message() => Err(io::Error::other(error).into()),
                    Err(_) => Err(Stop::Refused(Reason::Malformed, None)),
                };
            }
            () = exchange.judged.cancelled(), if !judged => {
                judged = true;
                place.decided();
            }
            () = exchange.server_gone.cancelled(), if !finishing => {
                finishing = true;
                finish(serving.as_mut());
            }
            () = sleep_until(deadline), if !judged => {
                return Err(Stop::Refused(Reason::Malformed, None));
            }
        }
    }
}

/// Carries what both sides have agreed to speak instead of HTTP.
async fn upgraded(exchange: &Exchange, (client, server): (OnUpgrade, OnUpgrade)) -> Result<(), Stop> {
    let carrying = async {
        let (client, from_client) = wire_of(client).await?;
        let (server, from_server) = wire_of(server).await?;
        write_all(&client, &from_server).await?;
        write_all(&server, &from_client).await?;
        if splice(&client, &server).await == End::Closed {
            client.manner().ends_well();
            server.manner().ends_well();
        }
        Ok(())
    };
    tokio::select! {
        () = exchange.cut() => Ok(()),
        done = carrying => done,
    }
}

/// The socket below, and what was read of it already.
async fn wire_of(upgrade: OnUpgrade) -> io::Result<(Wire, Bytes)> {
    let upgraded = upgrade.await.map_err(io::Error::other)?;
    let parts = upgraded
        .downcast::<TokioIo<Wire>>()
        .map_err(|_| io::Error::other("an upgraded connection is not one of ours"))?;
    Ok((parts.io.into_inner(), parts.read_buf))
}
