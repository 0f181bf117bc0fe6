//! Leads one connection from its first byte to its end:
//!
//! ```text
//! accepted ── first bytes ── verdict ─┬─ named: our address of the name ── no other hello ─┬─ spliced
//!      │                              ├─ straight: where it wanted to go ──────────────────┤
//!      │                              ├─ watched: the same ── no request ──────────────────┘
//!      │                              ├─ HTTP: every request is judged
//!      │                              └─ refused: reset, told
//!      └─ silent, address known ── connected, only the server is heard ── first bytes ── verdict …
//! ```
//!
//! Whatever fails leaves two reset sockets and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::bounds::{Http, Place};
use super::handshake;
use super::head::{Came, HEAD_TIME, Head};
use super::http;
use super::session::{Session, Stop};
use super::sniff::First;
use super::splice::{End, carry, carry_watched, splice, write_all};
use super::verdict::{Verdict, beforehand, judge, may_wait_for_server};
use super::watch::{FirstLine, Seen};
use super::wire::Wire;
use crate::guests::{Connection, Passing};
use crate::refusals::Reason;

/// For so long a client is expected to speak first.
const SILENCE: Duration = Duration::from_millis(75);

/// Leads a connection until it has ended.
pub async fn lead(session: Session, client: TcpStream, mut place: Place) {
    let session = Arc::new(session);
    if let Err(stop) = run(&session, Wire::new(client), &mut place).await {
        session.tell(stop);
    }
}

async fn run(session: &Arc<Session>, client: Wire, place: &mut Place) -> Result<(), Stop> {
    let port = session.wanted.port();
    session.check_open(*session.wanted.ip(), None).await?;
    if let Some(reason) = beforehand(&session.guest.names(), port) {
        return Err(Stop::Refused(reason, None));
    }
    let mut head = Head::default();
    let start = tokio::time::Instant::now();
    if may_wait_for_server(port) {
        match head.read(&client, start + SILENCE).await? {
            Came::Gone => return gone(&client),
            Came::First(first) => return follow(session, client, head, &first, None, place).await,
            Came::Nothing if session.guest.may_reach(*session.wanted.ip(), Instant::now()) => {
                return server_first(session, client, head, place).await;
            }
            Came::Nothing | Came::Late => {}
        }
    }
    let first = match head.read(&client, start + HEAD_TIME).await? {
        Came::Gone => return gone(&client),
        Came::First(first) => first,
        Came::Nothing => First::NeedMore(1),
        Came::Late => First::Malformed,
    };
    follow(session, client, head, &first, None, place).await
}

/// The client went before it had said anything: nothing was asked for, and nothing is refused.
fn gone(client: &Wire) -> Result<(), Stop> {
    client.manner().ends_well();
    Ok(())
}

/// The client waits for the server to speak. What it says itself is judged all the same, whenever it comes.
async fn server_first(
    session: &Arc<Session>,
    client: Wire,
    mut head: Head,
    place: &mut Place,
) -> Result<(), Stop> {
    let address = *session.wanted.ip();
    let entered = session.guest.enter(Passing::Address(address));
    let server = unless_cut(&entered, session.connect(address, None)).await?;
    place.decided();
    let first = {
        let speech = async {
            head.begin(&client).await?;
            // From here it is like any other that has not said who it is for: so long, and only so many.
            if !place.undecided() {
                return Err(Stop::Refused(Reason::TooMany, None));
            }
            Ok(head.read(&client, tokio::time::Instant::now() + HEAD_TIME).await?)
        };
        let listening = async {
            match carry(&server, &client).await {
                // The server has said all; the client may still have something to say.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            came = speech => came?,
            error = listening => return Err(error.into()),
            () = entered.cut.cancelled() => return Ok(()),
        }
    };
    place.decided();
    let first = match first {
        // It has ended its side; the server may have more to say.
        Came::Gone => return spliced(&client, &server, &entered).await,
        Came::First(first) => first,
        Came::Nothing | Came::Late => First::Malformed,
    };
    follow(session, client, head, &first, Some(server), place).await
}

/// Does what the verdict says. `connected`: the connection to where the client wanted to go, if there is one already.
async fn follow(
    session: &Arc<Session>,
    client: Wire,
    head: Head,
    first: &First,
    connected: Option<Wire>,
    place: &mut Place,
) -> Result<(), Stop> {
    let wanted = *session.wanted.ip();
    let known = session.guest.may_reach(wanted, Instant::now());
    let verdict = judge(&session.guest.names(), first, session.wanted.port(), known);
    let mut watched = (verdict == Verdict::Watched).then(FirstLine::default);
    if watched.as_mut().is_some_and(|line| line.read(&head.bytes) == Seen::Request) {
        return Err(Stop::Refused(Reason::Malformed, None));
    }
    let (passing, address, name) = match verdict {
        Verdict::Refused(reason, name) => return Err(Stop::Refused(reason, name)),
        Verdict::Http => {
            let kind = if first == &First::H2c { Http::Two } else { Http::One };
            let client = client.with_ahead(head.bytes);
            return http::serve(session, client, kind, connected, place).await;
        }
        Verdict::Straight | Verdict::Watched => (Passing::Address(wanted), wanted, None),
        Verdict::Named(name) => {
            let address = session.locate(&name).await?;
            (Passing::Name(name.clone()), address, Some(name))
        }
    };
    let entered = session.guest.enter(passing);
    let server = match connected {
        Some(server) if address == wanted => server,
        _ => unless_cut(&entered, session.connect(address, name.as_deref())).await?,
    };
    place.decided();
    let bytes = head.bytes;
    let beginning = async {
        match &name {
            Some(name) => handshake::begin(&client, &server, bytes, name, place).await,
            None => Ok(write_all(&server, &bytes).await?),
        }
    };
    unless_cut(&entered, beginning).await?;
    if let Some(line) = &mut watched {
        let passes = async { Ok(carry_watched(&client, &server, line).await?) };
        if !unless_cut(&entered, passes).await? {
            return Err(Stop::Refused(Reason::Malformed, None));
        }
    }
    spliced(&client, &server, &entered).await
}

async fn spliced(client: &Wire, server: &Wire, entered: &Connection) -> Result<(), Stop> {
    tokio::select! {
        end = splice(client, server) => {
            if end == End::Closed {
                client.manner().ends_well();
                server.manner().ends_well();
            }
        }
        () = entered.cut.cancelled() => {}
    }
    Ok(())
}

async fn unless_cut<T>(
    entered: &Connection,
    doing: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    tokio::select! {
        biased;
        () = entered.cut.cancelled() => Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()),
        done = doing => done,
    }
}
