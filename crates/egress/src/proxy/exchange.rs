//! The requests of one HTTP connection, each decided before it is forwarded, and the upstream connection that they share.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::{Request, Response, StatusCode};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::authority::{filter_upgrade, requested_host};
use super::body::{Busy, ForwardedBody};
use super::bounds::Http;
use super::session::{ProxySession, Stop};
use super::upstream::Upstream;
use super::wire::{Readable, Wire, WireState};
use crate::refusals::Reason;
use crate::registry::{Connection, Passing};
use crate::verdict::{Flow, Verdict};

/// A held body is sent after this time, if the server does not ask for it.
const CONTINUE_TIME: Duration = Duration::from_secs(1);

/// Ends a request without an answer. The reason has been reported.
#[derive(Debug, thiserror::Error)]
#[error("the request was not forwarded")]
pub struct NotForwarded;

/// State shared by the requests of one connection.
pub struct Exchange {
    session: Arc<ProxySession>,
    kind: Http,
    client: Arc<WireState>,
    /// Set by the first request; the others use it.
    route: AsyncMutex<ExchangeRoute>,
    entered: OnceLock<Connection>,
    /// The first request has passed.
    pub first_request_passed: CancellationToken,
    /// The connection is to be reset.
    pub ended: CancellationToken,
    /// The server has closed its connection.
    pub server_closed: CancellationToken,
    busy: Busy,
    has_sent_request: AtomicBool,
    /// Both sides have agreed on an upgrade.
    is_upgraded: AtomicBool,
}

enum ExchangeRoute {
    /// There may be a connection to the client's original destination.
    Unknown(Option<Wire>),
    Known {
        name: String,
        upstream: Upstream,
    },
    /// The connection is idle and holds only the socket.
    Idle {
        name: String,
        wire: Wire,
    },
    Ended,
}

impl Exchange {
    /// The exchange of a connection. `connected` is the connection to the original destination, if there is one.
    pub fn new(
        session: Arc<ProxySession>,
        kind: Http,
        client: Arc<WireState>,
        connected: Option<Wire>,
    ) -> Self {
        Self {
            session,
            kind,
            client,
            route: AsyncMutex::new(ExchangeRoute::Unknown(connected)),
            entered: OnceLock::new(),
            first_request_passed: CancellationToken::new(),
            ended: CancellationToken::new(),
            server_closed: CancellationToken::new(),
            busy: Busy::default(),
            has_sent_request: AtomicBool::new(false),
            is_upgraded: AtomicBool::new(false),
        }
    }

    /// Forwards a request and returns the server's answer.
    pub async fn answer(&self, request: Request<Incoming>) -> Result<Response<ForwardedBody>, NotForwarded> {
        let busy = Arc::clone(&self.busy);
        self.has_sent_request.store(true, Ordering::Release);
        let forwarded = tokio::select! {
            biased;
            // HTTP/2 streams are tasks of their own and must end with the connection.
            () = self.ended.cancelled() => return Err(NotForwarded),
            forwarded = self.forward(request, &busy) => forwarded,
        };
        match forwarded {
            Ok(answer) => Ok(answer.map(|body| ForwardedBody::unheld(body, busy))),
            Err(stop) => {
                // Several requests can fail at once; the first one reports its reason.
                if !self.ended.is_cancelled() {
                    self.ended.cancel();
                    self.session.report(stop);
                }
                Err(NotForwarded)
            }
        }
    }

    /// Waits until the policy no longer allows the connection.
    pub async fn cut(&self) {
        self.first_request_passed.cancelled().await;
        match self.entered.get() {
            Some(entered) => entered.cut.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether there was a request since the connection was last idle, and all answers are complete.
    pub fn is_done(&self) -> bool {
        self.has_sent_request.load(Ordering::Acquire) && Arc::strong_count(&self.busy) == 1
    }

    /// Drops everything but the server's socket, and waits for it to become readable. Only when nothing is in progress. For
    /// HTTP/1.
    pub async fn go_idle(&self) {
        self.has_sent_request.store(false, Ordering::Release);
        let mut route = self.route.lock().await;
        if let ExchangeRoute::Known { name, upstream } = std::mem::replace(&mut *route, ExchangeRoute::Ended)
            && let Some(wire) = upstream.into_idle().await
            && !self.server_closed.is_cancelled()
        {
            *route = ExchangeRoute::Idle { name, wire };
        }
    }

    /// Waits until an idle server closes the connection, or sends something unrequested.
    pub async fn wait_readable(&self) {
        let mut route = self.route.lock().await;
        if let ExchangeRoute::Idle { wire, .. } = &*route
            && wire.wait_readable().await == Readable::Ended
        {
            wire.state().set_close_normally();
        }
        *route = ExchangeRoute::Ended;
    }

    /// The server's socket after an upgrade.
    pub async fn take_upgraded(&self) -> Option<Wire> {
        if !self.is_upgraded.load(Ordering::Acquire) {
            return None;
        }
        match std::mem::replace(&mut *self.route.lock().await, ExchangeRoute::Ended) {
            ExchangeRoute::Known { upstream, .. } => upstream.into_wire().await,
            _ => None,
        }
    }

    async fn forward(&self, request: Request<Incoming>, busy: &Busy) -> Result<Response<Incoming>, Stop> {
        let (mut parts, body) = request.into_parts();
        let name = requested_host(&parts).map_err(|reason| Stop::Refused(reason, None))?;
        let wants_upgrade = self.kind == Http::One && filter_upgrade(&mut parts.headers);
        let waits = parts
            .headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let mut request = Request::from_parts(parts, ());
        let busy = Arc::clone(busy);
        let body = if waits {
            let (go, body) = ForwardedBody::held(body, CONTINUE_TIME, busy);
            hyper::ext::on_informational(&mut request, move |answer| {
                if answer.status() == StatusCode::CONTINUE {
                    go.cancel();
                }
            });
            body
        } else {
            ForwardedBody::unheld(body, busy)
        };
        let answering = {
            let mut route = self.route.lock().await;
            self.find_route(&mut route, name.clone()).await?.send(request.map(|()| body)).await?
        };
        let answer = answering.await.map_err(|error| match is_unreadable(&error) {
            true => Stop::Refused(Reason::BadAnswer, Some(name)),
            false => std::io::Error::other(error).into(),
        })?;
        if wants_upgrade && answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.is_upgraded.store(true, Ordering::Release);
        }
        Ok(answer)
    }

    /// The upstream connection of the first request, if this one is for the same name.
    async fn find_route<'a>(
        &self,
        route: &'a mut ExchangeRoute,
        name: String,
    ) -> Result<&'a mut Upstream, Stop> {
        if let ExchangeRoute::Known { name: first, .. } | ExchangeRoute::Idle { name: first, .. } = route
            && *first != name
        {
            return Err(Stop::Refused(Reason::NameChanged, Some(name)));
        }
        *route = match std::mem::replace(route, ExchangeRoute::Ended) {
            ExchangeRoute::Unknown(connected) => {
                ExchangeRoute::Known { upstream: self.open_route(&name, connected).await?, name }
            }
            ExchangeRoute::Idle { wire, .. } => {
                ExchangeRoute::Known { upstream: self.begin(wire).await?, name }
            }
            known_or_ended => known_or_ended,
        };
        match route {
            ExchangeRoute::Known { upstream, .. } => Ok(upstream),
            _ => Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()),
        }
    }

    async fn begin(&self, wire: Wire) -> std::io::Result<Upstream> {
        Upstream::begin(wire, self.kind, self.server_closed.clone()).await
    }

    async fn open_route(&self, name: &str, connected: Option<Wire>) -> Result<Upstream, Stop> {
        if let Verdict::Refused(reason, name) = self.session.decide(Flow::Request(name)) {
            return Err(Stop::Refused(reason, name));
        }
        let address = self.session.locate(name).await?;
        let entered = self.session.guest.enter(Passing::Name(name.to_owned(), address));
        if entered.cut.is_cancelled() {
            return Err(Stop::Refused(Reason::NotAllowed, Some(name.to_owned())));
        }
        let _ = self.entered.set(entered);
        let wire = match connected {
            Some(wire) if address == *self.session.original.ip() => wire,
            _ => self.session.connect(address, Some(name)).await?,
        };
        let upstream = self.begin(wire).await?;
        self.client.set_mute(false);
        self.first_request_passed.cancel();
        Ok(upstream)
    }
}

/// Whether the server's answer could not be parsed. A server that speaks only HTTP/1 answers HTTP/2 in HTTP/1.
fn is_unreadable(error: &hyper::Error) -> bool {
    let of_streams = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_parse() || of_streams.is_some_and(h2::Error::is_library)
}
