//! Plain HTTP, ended here and begun anew towards the server, so that every request of a connection is judged and what the
//! server reads is what was judged: both sides see one and the same framing, ours.
//!
//! HTTP/1 goes by turns:
//!
//! ```text
//! requests under way ─┬─ all answered ── only two sockets are held ── the client asks on: the next turn
//!                     ├─ 101 ── spliced
//!                     └─ ended, cut, refused
//! ```
//!
//! Speaking HTTP takes tens of kilobytes for each connection, and most connections wait for their next request most of the
//! time. A turn ends only when all that was asked is answered to the last byte on both sides; what was read ahead of it is
//! carried over to the next, which judges by the same name as the first.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout};

use super::bounds::{Http, Place};
use super::exchange::Exchange;
use super::head::HEAD_TIME;
use super::serving::{NEXT_HEAD_TIME, One, Paused, Serve, Two};
use super::session::{Session, Stop};
use super::splice::{End, splice, write_all};
use super::wire::{Stirred, Wire};
use crate::refusals::Reason;

/// Serves a connection to its end.
pub async fn serve(
    session: &Arc<Session>,
    client: Wire,
    kind: Http,
    connected: Option<Wire>,
    place: &mut Place,
) -> Result<(), Stop> {
    let is_two = kind == Http::Two;
    take_place(place, kind)?;
    let manner = client.manner();
    manner.set_mute(!is_two);
    let exchange = Arc::new(Exchange::new(Arc::clone(session), is_two, Arc::clone(&manner), connected));
    // Nothing of it goes on when this is over, in whatever way.
    let _ended = exchange.ended.clone().drop_guard();
    if !is_two {
        return by_turns(&exchange, client, place).await;
    }
    // What is large while it lasts is apart, or the whole task would be as large for as long as it lives.
    let serving = Box::pin(async {
        let mut serving = Two::new(client, &exchange);
        attend(&exchange, place, &mut serving).await
    });
    if serving.await?.is_some() {
        manner.ends_well();
    }
    Ok(())
}

async fn by_turns(exchange: &Arc<Exchange>, mut client: Wire, place: &mut Place) -> Result<(), Stop> {
    loop {
        let turn = Box::pin(async {
            let mut serving = One::new(client, exchange);
            let paused = attend(exchange, place, &mut serving).await?;
            Ok::<_, Stop>(paused.map(|paused| (paused, serving.into_wire())))
        });
        let Some((paused, back)) = turn.await? else { return Ok(()) };
        client = back;
        // An idle connection takes nothing from those that are at it.
        place.rests();
        if paused == Paused::Ended {
            if let Some(server) = exchange.leave().await {
                return upgraded(exchange, client, server).await;
            }
            client.close();
            return Ok(());
        }
        let goes_on = tokio::select! {
            biased;
            () = exchange.cut() => return Ok(()),
            goes_on = timeout(NEXT_HEAD_TIME, rest(exchange, &client)) => goes_on.unwrap_or(false),
        };
        if !goes_on {
            client.close();
            return Ok(());
        }
        take_place(place, Http::One)?;
    }
}

fn take_place(place: &mut Place, kind: Http) -> Result<(), Stop> {
    if place.read_as_http(kind) { Ok(()) } else { Err(Stop::Refused(Reason::TooMany, None)) }
}

/// Waits for the next request. `false` if there will be none.
async fn rest(exchange: &Exchange, client: &Wire) -> bool {
    exchange.rest().await;
    tokio::select! {
        biased;
        () = exchange.stirred() => false,
        stirred = client.stirred() => stirred == Stirred::Spoke,
    }
}

/// Serves until the connection has ended, is idle, or is to be reset, which is `None`.
async fn attend(
    exchange: &Exchange,
    place: &mut Place,
    serving: &mut impl Serve,
) -> Result<Option<Paused>, Stop> {
    let deadline = Instant::now() + HEAD_TIME;
    let (mut judged, mut finishing) = (exchange.judged.is_cancelled(), false);
    loop {
        tokio::select! {
            biased;
            () = exchange.ended.cancelled() => return Ok(None),
            () = exchange.cut() => return Ok(None),
            done = poll_fn(|context| serving.serve(context)) => {
                if exchange.judged.is_cancelled() {
                    place.decided();
                }
                return match done {
                    Ok(paused) => Ok(Some(paused)),
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
                serving.finish();
            }
            () = sleep_until(deadline), if !judged => {
                return Err(Stop::Refused(Reason::Malformed, None));
            }
        }
    }
}

/// Carries what both sides have agreed to speak instead of HTTP.
async fn upgraded(exchange: &Exchange, mut client: Wire, mut server: Wire) -> Result<(), Stop> {
    server.manner().goes_on();
    let (from_client, from_server) = (client.take_ahead(), server.take_ahead());
    let carrying = async {
        write_all(&client, &from_server).await?;
        write_all(&server, &from_client).await?;
        drop((from_client, from_server));
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
