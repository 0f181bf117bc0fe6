//! The requests of one HTTP connection, each judged before it is led on, and the connection to the server that they share.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::{Request, Response, StatusCode};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::authority::{asked_for, keep_upgrade};
use super::body::{Busy, Carried};
use super::session::{Session, Stop};
use super::upstream::Upstream;
use super::verdict::{Verdict, named};
use super::wire::{Manner, Stirred, Wire};
use crate::guests::{Connection, Passing};
use crate::refusals::Reason;

/// A server that does not say whether it wants a body is sent it after this.
const CONTINUE_TIME: Duration = Duration::from_secs(1);

/// What ends a request without an answer. The reason has been told.
#[derive(Debug, thiserror::Error)]
#[error("the request was not led on")]
pub struct NotLed;

/// What the requests of one connection share.
pub struct Exchange {
    session: Arc<Session>,
    is_two: bool,
    client: Arc<Manner>,
    /// By the first request; the others go the same way.
    way: AsyncMutex<Way>,
    entered: OnceLock<Connection>,
    /// The first request has been let through.
    pub judged: CancellationToken,
    /// No more is answered: the connection is to be reset.
    pub ended: CancellationToken,
    /// The server has ended its connection.
    pub server_gone: CancellationToken,
    busy: Busy,
    asked: AtomicBool,
    /// Both sides have agreed to leave HTTP.
    left: AtomicBool,
}

enum Way {
    /// There may be a connection to where the client wanted to go.
    Unknown(Option<Wire>),
    Known {
        name: String,
        upstream: Upstream,
    },
    /// Nothing is under way, and nothing is held for it but the socket.
    Resting {
        name: String,
        wire: Wire,
    },
    Ended,
}

impl Exchange {
    pub fn new(session: Arc<Session>, is_two: bool, client: Arc<Manner>, connected: Option<Wire>) -> Self {
        Self {
            session,
            is_two,
            client,
            way: AsyncMutex::new(Way::Unknown(connected)),
            entered: OnceLock::new(),
            judged: CancellationToken::new(),
            ended: CancellationToken::new(),
            server_gone: CancellationToken::new(),
            busy: Busy::default(),
            asked: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    /// Answers a request by the server's answer.
    pub async fn answer(&self, request: Request<Incoming>) -> Result<Response<Carried>, NotLed> {
        let busy = Arc::clone(&self.busy);
        self.asked.store(true, Ordering::Release);
        let led = tokio::select! {
            biased;
            // The streams of HTTP/2 are tasks of their own; none goes on when the connection does not.
            () = self.ended.cancelled() => return Err(NotLed),
            led = self.lead(request, &busy) => led,
        };
        match led {
            Ok(answer) => Ok(answer.map(|body| Carried::at_once(body, busy))),
            Err(stop) => {
                // Several requests of one connection may be at it; the first to fail says why.
                if !self.ended.is_cancelled() {
                    self.ended.cancel();
                    self.session.tell(stop);
                }
                Err(NotLed)
            }
        }
    }

    /// Waits until the connection is allowed no more.
    pub async fn cut(&self) {
        self.judged.cancelled().await;
        match self.entered.get() {
            Some(entered) => entered.cut.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether something was asked since the last rest, and all of it is answered to the last byte that we know of.
    pub fn is_done(&self) -> bool {
        self.asked.load(Ordering::Acquire) && Arc::strong_count(&self.busy) == 1
    }

    /// Lets go of everything but the server's socket, and waits until it stirs. Only when all is done. For HTTP/1.
    pub async fn rest(&self) {
        self.asked.store(false, Ordering::Release);
        let mut way = self.way.lock().await;
        if let Way::Known { name, upstream } = std::mem::replace(&mut *way, Way::Ended)
            && let Some(wire) = upstream.rest().await
            && !self.server_gone.is_cancelled()
        {
            *way = Way::Resting { name, wire };
        }
    }

    /// Waits until a resting server has ended the connection, or has said what nobody asked for.
    pub async fn stirred(&self) {
        let mut way = self.way.lock().await;
        if let Way::Resting { wire, .. } = &*way
            && wire.stirred().await == Stirred::Ended
        {
            wire.manner().ends_well();
        }
        *way = Way::Ended;
    }

    /// The server's socket of a connection that has left HTTP.
    pub async fn leave(&self) -> Option<Wire> {
        if !self.left.load(Ordering::Acquire) {
            return None;
        }
        match std::mem::replace(&mut *self.way.lock().await, Way::Ended) {
            Way::Known { upstream, .. } => upstream.leave().await,
            _ => None,
        }
    }

    async fn lead(&self, request: Request<Incoming>, busy: &Busy) -> Result<Response<Incoming>, Stop> {
        let (mut parts, body) = request.into_parts();
        let name = asked_for(&parts).map_err(|reason| Stop::Refused(reason, None))?;
        let wants_upgrade = !self.is_two && keep_upgrade(&mut parts.headers);
        let waits = parts
            .headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let mut request = Request::from_parts(parts, ());
        let busy = Arc::clone(busy);
        let body = if waits {
            let (go, body) = Carried::held(body, CONTINUE_TIME, busy);
            hyper::ext::on_informational(&mut request, move |answer| {
                if answer.status() == StatusCode::CONTINUE {
                    go.cancel();
                }
            });
            body
        } else {
            Carried::at_once(body, busy)
        };
        let answering = {
            let mut way = self.way.lock().await;
            self.find_way(&mut way, name.clone()).await?.send(request.map(|()| body)).await?
        };
        let answer = answering.await.map_err(|error| match is_unreadable(&error) {
            true => Stop::Refused(Reason::BadAnswer, Some(name)),
            false => std::io::Error::other(error).into(),
        })?;
        if wants_upgrade && answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.left.store(true, Ordering::Release);
        }
        Ok(answer)
    }

    /// The way of the first request, if this one is for the same name.
    async fn find_way<'a>(&self, way: &'a mut Way, name: String) -> Result<&'a mut Upstream, Stop> {
        if let Way::Known { name: first, .. } | Way::Resting { name: first, .. } = way
            && *first != name
        {
            return Err(Stop::Refused(Reason::NameChanged, Some(name)));
        }
        *way = match std::mem::replace(way, Way::Ended) {
            Way::Unknown(connected) => Way::Known { upstream: self.open_way(&name, connected).await?, name },
            Way::Resting { wire, .. } => Way::Known { upstream: self.begin(wire).await?, name },
            known_or_ended => known_or_ended,
        };
        match way {
            Way::Known { upstream, .. } => Ok(upstream),
            _ => Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()),
        }
    }

    async fn begin(&self, wire: Wire) -> std::io::Result<Upstream> {
        Upstream::begin(wire, self.is_two, self.server_gone.clone()).await
    }

    async fn open_way(&self, name: &str, connected: Option<Wire>) -> Result<Upstream, Stop> {
        if let Verdict::Refused(reason, name) = named(&self.session.guest.names(), Some(name)) {
            return Err(Stop::Refused(reason, name));
        }
        let address = self.session.locate(name).await?;
        let entered = self.session.guest.enter(Passing::Name(name.to_owned()));
        if entered.cut.is_cancelled() {
            return Err(Stop::Refused(Reason::NotAllowed, Some(name.to_owned())));
        }
        let _ = self.entered.set(entered);
        let wire = match connected {
            Some(wire) if address == *self.session.wanted.ip() => wire,
            _ => self.session.connect(address, Some(name)).await?,
        };
        let upstream = self.begin(wire).await?;
        self.client.set_mute(false);
        self.judged.cancel();
        Ok(upstream)
    }
}

/// Whether it is for what a server answered. One that speaks only HTTP/1 answers in that to HTTP/2 as well.
fn is_unreadable(error: &hyper::Error) -> bool {
    let of_streams = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_parse() || of_streams.is_some_and(h2::Error::is_library)
}
