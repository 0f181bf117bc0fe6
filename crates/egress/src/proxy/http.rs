//! Plain HTTP is terminated here and forwarded on a separate connection, so that each request is decided, and the
//! server parses what was decided: the proxy generates the framing for both sides.
//!
//! An HTTP/1 connection alternates between active phases and rest:
//!
//! ```text
//! active ─┬─ all requests answered ── rest: only two sockets are held ── next request: active again
//!         ├─ 101 ── spliced
//!         └─ ended, cut, refused
//! ```
//!
//! Parsing HTTP takes tens of kilobytes per connection, and most connections are idle most of the time. An active phase
//! ends only when all answers are complete on both sides; data that was read ahead is passed to the next phase, which
//! decides by the same name.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout};

use super::bounds::{ConnectionPermit, Http};
use super::exchange::Exchange;
use super::preamble::PREAMBLE_TIME;
use super::serving::{NEXT_HEAD_TIME, One, Paused, Serve, Two};
use super::session::{ProxySession, Stop};
use super::splice::{SpliceEnd, splice, write_all};
use super::wire::{Readable, Wire};
use crate::refusals::Reason;

/// Serves a connection until it ends.
pub async fn serve(
    session: &Arc<ProxySession>,
    client: Wire,
    kind: Http,
    connected: Option<Wire>,
    permit: &mut ConnectionPermit,
) -> Result<(), Stop> {
    take_permit(permit, kind)?;
    let state = client.state();
    state.set_mute(kind == Http::One);
    let exchange = Arc::new(Exchange::new(Arc::clone(session), kind, Arc::clone(&state), connected));
    // Ends all tasks of the connection when this function ends or is dropped.
    let _ended = exchange.ended.clone().drop_guard();
    if kind == Http::One {
        return serve_http1(&exchange, client, permit).await;
    }
    // Boxed to keep the task's future small while the connection is idle.
    let serving = Box::pin(async {
        let mut serving = Two::new(client, &exchange);
        serve_active(&exchange, permit, &mut serving).await
    });
    if serving.await?.is_some() {
        state.set_close_normally();
    }
    Ok(())
}

async fn serve_http1(
    exchange: &Arc<Exchange>,
    mut client: Wire,
    permit: &mut ConnectionPermit,
) -> Result<(), Stop> {
    loop {
        let active = Box::pin(async {
            let mut serving = One::new(client, exchange);
            let paused = serve_active(exchange, permit, &mut serving).await?;
            Ok::<_, Stop>(paused.map(|paused| (paused, serving.into_wire())))
        });
        let Some((paused, back)) = active.await? else { return Ok(()) };
        client = back;
        // An idle connection does not count against the limits.
        permit.set_idle();
        if paused == Paused::Ended {
            if let Some(server) = exchange.take_upgraded().await {
                return upgraded(exchange, client, server).await;
            }
            client.close();
            return Ok(());
        }
        let has_next = tokio::select! {
            biased;
            () = exchange.cut() => return Ok(()),
            has_next = timeout(NEXT_HEAD_TIME, wait_for_next(exchange, &client)) => has_next.unwrap_or(false),
        };
        if !has_next {
            client.close();
            return Ok(());
        }
        take_permit(permit, Http::One)?;
    }
}

fn take_permit(permit: &mut ConnectionPermit, kind: Http) -> Result<(), Stop> {
    if permit.start_http(kind) { Ok(()) } else { Err(Stop::Refused(Reason::TooMany, None)) }
}

/// Waits for the next request. `false` if there will be none.
async fn wait_for_next(exchange: &Exchange, client: &Wire) -> bool {
    exchange.go_idle().await;
    tokio::select! {
        biased;
        () = exchange.wait_readable() => false,
        readable = client.wait_readable() => readable == Readable::Spoke,
    }
}

/// Serves until the connection ends or is idle. `None` if it is to be reset.
async fn serve_active(
    exchange: &Exchange,
    permit: &mut ConnectionPermit,
    serving: &mut impl Serve,
) -> Result<Option<Paused>, Stop> {
    let deadline = Instant::now() + PREAMBLE_TIME;
    let (mut first_request_passed, mut finishing) = (exchange.first_request_passed.is_cancelled(), false);
    loop {
        tokio::select! {
            biased;
            () = exchange.ended.cancelled() => return Ok(None),
            () = exchange.cut() => return Ok(None),
            done = poll_fn(|context| serving.serve(context)) => {
                if exchange.first_request_passed.is_cancelled() {
                    permit.decided();
                }
                return match done {
                    Ok(paused) => Ok(Some(paused)),
                    Err(error) if exchange.first_request_passed.is_cancelled() || exchange.ended.is_cancelled() => {
                        Err(io::Error::other(error).into())
                    }
                    Err(error) if error.is_incomplete_message() => Err(io::Error::other(error).into()),
                    Err(_) => Err(Stop::Refused(Reason::Malformed, None)),
                };
            }
            () = exchange.first_request_passed.cancelled(), if !first_request_passed => {
                first_request_passed = true;
                permit.decided();
            }
            () = exchange.server_closed.cancelled(), if !finishing => {
                finishing = true;
                serving.finish();
            }
            () = sleep_until(deadline), if !first_request_passed => {
                return Err(Stop::Refused(Reason::Malformed, None));
            }
        }
    }
}

/// Forwards the upgraded protocol.
async fn upgraded(exchange: &Exchange, mut client: Wire, mut server: Wire) -> Result<(), Stop> {
    server.state().set_reset();
    let (from_client, from_server) = (client.take_ahead(), server.take_ahead());
    let carrying = async {
        write_all(&client, &from_server).await?;
        write_all(&server, &from_client).await?;
        drop((from_client, from_server));
        if splice(&client, &server).await == SpliceEnd::Closed {
            client.state().set_close_normally();
            server.state().set_close_normally();
        }
        Ok(())
    };
    tokio::select! {
        () = exchange.cut() => Ok(()),
        done = carrying => done,
    }
}
