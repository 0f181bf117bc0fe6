//! The context of one connection of a sandbox, to decide and forward it.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::wire::Wire;
use crate::parts::Parts;
use crate::refusals::{Reason, RefusedTarget};
use crate::registry::Guest;
use crate::transport::Transport;
use crate::verdict::{Destination, Flow, Verdict, connect_address, decide};

/// Time limit to connect to a server.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// Backstop: the resolver's own limits are tighter.
const RESOLVE_TIME: Duration = Duration::from_secs(20);

/// The sandbox and the original destination.
pub struct ProxySession {
    pub parts: Arc<Parts>,
    pub guest: Arc<Guest>,
    pub original: SocketAddrV4,
}

/// Why a connection ends.
#[derive(Debug)]
pub enum Stop {
    /// The policy refuses it; with the name that the client gave.
    Refused(Reason, Option<String>),
    /// An I/O error, or the client's choice: not reported.
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl ProxySession {
    /// Reports a connection that is about to be reset.
    pub fn report(&self, stop: Stop) {
        match stop {
            Stop::Refused(reason, name) => {
                let target = RefusedTarget {
                    name,
                    address: Some(*self.original.ip()),
                    port: self.original.port(),
                    transport: Transport::Tcp,
                };
                self.parts.refusals.report(&self.guest.id, target, reason);
            }
            Stop::Failed(error) => {
                tracing::debug!(id = %self.guest.id, original = %self.original, %error, "a connection failed");
            }
        }
    }

    /// Decides about a flow of this connection.
    pub fn decide(&self, flow: Flow<'_>) -> Verdict {
        let is_learnt = self.guest.may_reach(*self.original.ip(), Instant::now());
        decide(&self.guest.rules(), flow, self.destination(false, is_learnt))
    }

    /// Decides about the connection before its client has sent anything.
    pub async fn decide_opening(&self) -> Result<(), Stop> {
        let is_closed = self.is_closed(*self.original.ip()).await?;
        // The kernel has refused connections to addresses that are not learnt. It keeps addresses a little longer than the registry.
        let is_learnt = true;
        match decide(&self.guest.rules(), Flow::Opening, self.destination(is_closed, is_learnt)) {
            Verdict::Refused(reason, name) => Err(Stop::Refused(reason, name)),
            _ => Ok(()),
        }
    }

    fn destination(&self, is_closed: bool, is_learnt: bool) -> Destination {
        let (address, port) = (Some(*self.original.ip()), self.original.port());
        Destination { address, port, is_closed, is_learnt }
    }

    async fn is_closed(&self, address: Ipv4Addr) -> io::Result<bool> {
        let owner = self.parts.kernel.owner(address).await?;
        Ok(self.parts.ranges.closed(address, owner).is_some())
    }

    /// The address to connect to for a name that passes.
    pub async fn locate(&self, name: &str) -> Result<Ipv4Addr, Stop> {
        let original = *self.original.ip();
        let refused = |reason| Stop::Refused(reason, Some(name.to_owned()));
        if self.guest.has_learnt(name, original, Instant::now()) {
            return Ok(original);
        }
        let was_answered = self.guest.was_answered(name, original);
        let found = timeout(RESOLVE_TIME, self.parts.resolver.addresses(name)).await;
        match found.map_err(|_| refused(Reason::Unresolved))? {
            Ok(found) => {
                self.guest.learn(name, &found.list, found.ttl, Instant::now());
                connect_address(original, was_answered, &found.list).map_err(refused)
            }
            Err(failure) => Err(refused(failure.reason())),
        }
    }

    /// Connects to an address, at the original port.
    pub async fn connect(&self, address: Ipv4Addr, name: Option<&str>) -> Result<Wire, Stop> {
        if self.is_closed(address).await? {
            return Err(Stop::Refused(Reason::ClosedAddress, name.map(str::to_owned)));
        }
        let connecting = TcpStream::connect((address, self.original.port()));
        match timeout(CONNECT_TIME, connecting).await {
            Ok(connected) => Ok(Wire::new(connected?)),
            Err(_) => Err(Stop::Failed(io::ErrorKind::TimedOut.into())),
        }
    }
}
