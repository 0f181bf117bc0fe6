//! The requests of one HTTP connection, each judged before it is led on, and the connection to the server that they share.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::authority::{asked_for, keep_upgrade};
use super::body::Outgoing;
use super::session::{Session, Stop};
use super::upstream::Upstream;
use super::verdict::{Verdict, named};
use super::wire::{Manner, Wire};
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
    upgrade: Mutex<Option<(OnUpgrade, OnUpgrade)>>,
}

enum Way {
    /// There may be a connection to where the client wanted to go.
    Unknown(Option<Wire>),
    Known {
        name: String,
        upstream: Upstream,
    },
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
            upgrade: Mutex::default(),
        }
    }

    /// Answers a request by the server's answer.
    pub async fn answer(&self, request: Request<Incoming>) -> Result<Response<Incoming>, NotLed> {
        let led = tokio::select! {
            biased;
            // The streams of HTTP/2 are tasks of their own; none goes on when the connection does not.
            () = self.ended.cancelled() => return Err(NotLed),
            led = self.lead(request) => led,
        };
        match led {
            Ok(answer) => Ok(answer),
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

    /// Both ends of a connection that has left HTTP.
    pub fn take_upgrade(&self) -> Option<(OnUpgrade, OnUpgrade)> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn lead(&self, request: Request<Incoming>) -> Result<Response<Incoming>, Stop> {
        let (mut parts, body) = request.into_parts();
        let name = asked_for(&parts).map_err(|reason| Stop::Refused(reason, None))?;
        let wants_upgrade = !self.is_two && keep_upgrade(&mut parts.headers);
        let waits = parts
            .headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let mut request = Request::from_parts(parts, ());
        let of_client = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
        let body = if waits {
            let (go, body) = Outgoing::held(body, CONTINUE_TIME);
            hyper::ext::on_informational(&mut request, move |answer| {
                if answer.status() == StatusCode::CONTINUE {
                    go.cancel();
                }
            });
            body
        } else {
            Outgoing::at_once(body)
        };
        let answering = {
            let mut way = self.way.lock().await;
            self.find_way(&mut way, name).await?.send(request.map(|()| body)).await?
        };
        let mut answer = answering.await.map_err(std::io::Error::other)?;
        if let Some(of_client) = of_client
            && answer.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            let both = (of_client, hyper::upgrade::on(&mut answer));
            *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(both);
        }
        Ok(answer)
    }

    /// The way of the first request, if this one is for the same name.
    async fn find_way<'a>(&self, way: &'a mut Way, name: String) -> Result<&'a mut Upstream, Stop> {
        if let Way::Known { name: first, .. } = way {
            if *first != name {
                return Err(Stop::Refused(Reason::NameChanged, Some(name)));
            }
        } else {
            let connected = match way {
                Way::Unknown(connected) => connected.take(),
                Way::Known { .. } => None,
            };
            let upstream = self.open_way(&name, connected).await?;
            *way = Way::Known { name, upstream };
        }
        match way {
            Way::Known { upstream, .. } => Ok(upstream),
            Way::Unknown(_) => Err(std::io::Error::other("there is no way").into()),
        }
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
        let upstream = Upstream::begin(wire, self.is_two, self.server_gone.clone()).await?;
        self.client.set_mute(false);
        self.judged.cancel();
        Ok(upstream)
    }
}
