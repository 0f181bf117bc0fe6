//! One connection of a sandbox, and what it needs to be judged and led on.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::verdict::destination;
use super::wire::Wire;
use crate::guests::Guest;
use crate::parts::Parts;
use crate::refusals::{Reason, Target, Transport};
use crate::resolver::Failure;

/// As long as a server may take to be reached.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// The resolver has bounds of its own, which are tighter.
const RESOLVE_TIME: Duration = Duration::from_secs(20);

/// Who connects to where.
pub struct Session {
    pub parts: Arc<Parts>,
    pub guest: Arc<Guest>,
    pub wanted: SocketAddrV4,
}

/// Why a connection is led no further.
#[derive(Debug)]
pub enum Stop {
    /// It is against the policy; who it was for, if that was said.
    Refused(Reason, Option<String>),
    /// The network's fault, or the client's own wish: nothing to tell.
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Session {
    /// Tells of a connection that is about to be reset.
    pub fn tell(&self, stop: Stop) {
        match stop {
            Stop::Refused(reason, name) => {
                let target = Target {
                    name,
                    address: Some(*self.wanted.ip()),
                    port: self.wanted.port(),
                    transport: Transport::Tcp,
                };
                self.parts.refusals.tell(&self.guest.id, target, reason);
            }
            Stop::Failed(error) => {
                tracing::debug!(id = %self.guest.id, wanted = %self.wanted, %error, "a connection failed");
            }
        }
    }

    /// An error if no sandbox may reach an address, or if that cannot be found out now.
    pub async fn check_open(&self, address: Ipv4Addr, name: Option<&str>) -> Result<(), Stop> {
        let is_host = self.parts.gate.is_host(address).await?;
        match self.parts.ranges.closed(address, is_host) {
            Some(_) => Err(Stop::Refused(Reason::ClosedAddress, name.map(str::to_owned))),
            None => Ok(()),
        }
    }

    /// Where a connection goes that names a host whose name passes.
    pub async fn locate(&self, name: &str) -> Result<Ipv4Addr, Stop> {
        let wanted = *self.wanted.ip();
        let refused = |reason| Stop::Refused(reason, Some(name.to_owned()));
        if self.guest.has_learnt(name, wanted, Instant::now()) {
            return Ok(wanted);
        }
        let was_told = self.guest.was_told(name, wanted);
        let found = timeout(RESOLVE_TIME, self.parts.resolver.addresses(name)).await;
        match found.map_err(|_| refused(Reason::Unresolved))? {
            Ok(found) => {
                self.guest.learn(name, &found.list, found.ttl, Instant::now());
                destination(wanted, was_told, &found.list).map_err(refused)
            }
            Err(Failure::Closed(..)) => Err(refused(Reason::ClosedAnswer)),
            Err(Failure::NoSuchName | Failure::NoAddress | Failure::Upstream(_)) => {
                Err(refused(Reason::Unresolved))
            }
        }
    }

    /// Connects to an address, at the port that the client chose.
    pub async fn connect(&self, address: Ipv4Addr, name: Option<&str>) -> Result<Wire, Stop> {
        self.check_open(address, name).await?;
        let connecting = TcpStream::connect((address, self.wanted.port()));
        match timeout(CONNECT_TIME, connecting).await {
            Ok(connected) => Ok(Wire::new(connected?)),
            Err(_) => Err(Stop::Failed(io::ErrorKind::TimedOut.into())),
        }
    }
}
