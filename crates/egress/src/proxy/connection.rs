//! Serves one connection from its first byte to its end:
//!
//! ```text
//! accepted ── first bytes ── verdict ─┬─ by name: to a resolved address ─────── no second ClientHello ─┬─ spliced
//!      │                              ├─ pass: to the original destination ────────────────────────────┤
//!      │                              ├─ pass unless HTTP: the same ── no request ─────────────────────┘
//!      │                              ├─ by request: parsed as HTTP
//!      │                              └─ refused: reset and reported
//!      └─ silent, address learnt ── connected, only the server's data is forwarded ── first bytes ── verdict …
//! ```
//!
//! After a failure both sockets are reset.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::bounds::{ConnectionPermit, Http};
use super::first_lines::{FirstLine, RequestCheck};
use super::handshake;
use super::http;
use super::preamble::{PREAMBLE_TIME, Preamble, Received};
use super::session::{ProxySession, Stop};
use super::sniff::First;
use super::splice::{SpliceEnd, copy_direction, copy_inspected, splice, write_all};
use super::wire::Wire;
use crate::refusals::Reason;
use crate::registry::{Connection, Passing};
use crate::verdict::{Flow, Verdict, may_server_speak_first};

/// Time that a client has to send first, before the server may.
const SILENCE: Duration = Duration::from_millis(75);

/// Serves a connection until it ends.
pub async fn serve_connection(session: ProxySession, client: TcpStream, mut permit: ConnectionPermit) {
    let session = Arc::new(session);
    if let Err(stop) = run(&session, Wire::new(client), &mut permit).await {
        session.report(stop);
    }
}

async fn run(session: &Arc<ProxySession>, client: Wire, permit: &mut ConnectionPermit) -> Result<(), Stop> {
    let port = session.original.port();
    session.decide_opening().await?;
    let mut head = Preamble::default();
    let start = tokio::time::Instant::now();
    if may_server_speak_first(port) {
        match head.read(&client, start + SILENCE).await? {
            Received::Closed => return closed_without_data(&client),
            Received::First(first) => return follow(session, client, head, &first, None, permit).await,
            Received::Silent if session.guest.may_reach(*session.original.ip(), Instant::now()) => {
                return server_first(session, client, head, permit).await;
            }
            Received::Silent | Received::TimedOut => {}
        }
    }
    let first = match head.read(&client, start + PREAMBLE_TIME).await? {
        Received::Closed => return closed_without_data(&client),
        Received::First(first) => first,
        Received::Silent => First::NeedMore(1),
        Received::TimedOut => First::Malformed,
    };
    follow(session, client, head, &first, None, permit).await
}

/// The client closed without sending anything: nothing was requested and nothing is refused.
fn closed_without_data(client: &Wire) -> Result<(), Stop> {
    client.state().set_close_normally();
    Ok(())
}

/// The client waits for the server to send first. The client's first bytes are still examined when they arrive.
async fn server_first(
    session: &Arc<ProxySession>,
    client: Wire,
    mut head: Preamble,
    permit: &mut ConnectionPermit,
) -> Result<(), Stop> {
    let address = *session.original.ip();
    let entered = session.guest.enter(Passing::Address(address));
    let server = unless_cut(&entered, session.connect(address, None)).await?;
    permit.decided();
    let first = {
        let speech = async {
            head.begin(&client).await?;
            // From here the limits of undecided connections apply: time and number.
            if !permit.undecided() {
                return Err(Stop::Refused(Reason::TooMany, None));
            }
            Ok(head.read(&client, tokio::time::Instant::now() + PREAMBLE_TIME).await?)
        };
        let listening = async {
            match copy_direction(&server, &client).await {
                // The server has closed its side; the client may still send.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            received = speech => received?,
            error = listening => return Err(error.into()),
            () = entered.cut.cancelled() => return Ok(()),
        }
    };
    permit.decided();
    let first = match first {
        // The client has closed its side; the server may still send.
        Received::Closed => return spliced(&client, &server, &entered).await,
        Received::First(first) => first,
        Received::Silent | Received::TimedOut => First::Malformed,
    };
    follow(session, client, head, &first, Some(server), permit).await
}

/// Carries out the verdict. `connected` is the connection to the original destination, if there is one.
async fn follow(
    session: &Arc<ProxySession>,
    client: Wire,
    head: Preamble,
    first: &First,
    connected: Option<Wire>,
    permit: &mut ConnectionPermit,
) -> Result<(), Stop> {
    let original = *session.original.ip();
    let verdict = session.decide(flow_of(first));
    let mut first_lines = (verdict == Verdict::PassUnlessHttp).then(FirstLine::default);
    if first_lines.as_mut().is_some_and(|line| line.read(&head.bytes) == RequestCheck::Request) {
        return Err(Stop::Refused(Reason::Malformed, None));
    }
    let (passing, address, name) = match verdict {
        Verdict::Refused(reason, name) => return Err(Stop::Refused(reason, name)),
        Verdict::ByRequest => {
            let kind = if first == &First::H2c { Http::Two } else { Http::One };
            let client = client.with_ahead(head.bytes);
            return http::serve(session, client, kind, connected, permit).await;
        }
        Verdict::Pass | Verdict::PassUnlessHttp => (Passing::Address(original), original, None),
        Verdict::PassByName(name) => {
            let address = session.locate(&name).await?;
            (Passing::Name(name.clone(), address), address, Some(name))
        }
    };
    let entered = session.guest.enter(passing);
    let server = match connected {
        Some(server) if address == original => server,
        _ => unless_cut(&entered, session.connect(address, name.as_deref())).await?,
    };
    permit.decided();
    let bytes = head.bytes;
    let beginning = async {
        match &name {
            Some(name) => handshake::begin(&client, &server, bytes, name, permit).await,
            None => Ok(write_all(&server, &bytes).await?),
        }
    };
    unless_cut(&entered, beginning).await?;
    if let Some(line) = &mut first_lines {
        let passes = async { Ok(copy_inspected(&client, &server, line).await?) };
        if !unless_cut(&entered, passes).await? {
            return Err(Stop::Refused(Reason::Malformed, None));
        }
    }
    spliced(&client, &server, &entered).await
}

fn flow_of(first: &First) -> Flow<'_> {
    match first {
        First::Tls { name } => Flow::Tls(name.as_deref()),
        First::Http | First::H2c => Flow::Http,
        First::Malformed => Flow::Malformed,
        First::NeedMore(_) => Flow::Silent,
        First::Other => Flow::OtherTcp,
    }
}

async fn spliced(client: &Wire, server: &Wire, entered: &Connection) -> Result<(), Stop> {
    tokio::select! {
        end = splice(client, server) => {
            if end == SpliceEnd::Closed {
                client.state().set_close_normally();
                server.state().set_close_normally();
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
