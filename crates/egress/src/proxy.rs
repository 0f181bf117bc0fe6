//! The proxy: every TCP connection of a sandbox with a closed policy arrives here, whatever it was meant for. Its first bytes
//! say who it is for; the policy is asked; and what passes goes to an address that we have found for that name, not to the
//! one that the client claims the name has. TLS stays closed on its way through.
//!
//! What is refused is reset and told. What is not decided, for whatever reason, is reset too.

mod again;
mod authority;
mod body;
mod bounds;
mod exchange;
mod handshake;
mod head;
mod hello;
mod http;
mod lead;
mod serving;
mod session;
mod sniff;
mod splice;
mod upstream;
mod verdict;
mod watch;
mod wire;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::parts::Parts;
use bounds::Bounds;
use lead::lead;
use session::{Session, Stop};
pub use sniff::{First, sniff};
use wire::Wire;

use crate::refusals::Reason;

/// After a failure to accept, which mostly means that descriptors are short.
const PAUSE: Duration = Duration::from_millis(50);
/// How often what a burst held back is told.
const SETTLE: Duration = Duration::from_secs(1);

/// Says where a connection was meant to go before it was turned to us.
pub type Original = Arc<dyn Fn(&TcpStream) -> io::Result<SocketAddrV4> + Send + Sync>;

/// Serves until `stop`; every connection is reset by then.
pub async fn serve(parts: Arc<Parts>, listener: TcpListener, stop: CancellationToken) {
    let of_kernel: Original = Arc::new(|stream| Ok(rustix::net::sockopt::ip_original_dst(stream)?));
    serve_from(parts, listener, stop, of_kernel).await;
}

/// Serves with another source of original destinations than the kernel.
pub async fn serve_from(
    parts: Arc<Parts>,
    listener: TcpListener,
    stop: CancellationToken,
    original: Original,
) {
    let proxy = Proxy { parts, original, bounds: Bounds::of_process(), tasks: TaskTracker::new(), stop };
    tokio::select! {
        () = proxy.accept_all(&listener) => {}
        () = proxy.settle_refusals() => {}
        () = proxy.stop.cancelled() => {}
    }
    drop(listener);
    proxy.stop.cancel();
    proxy.tasks.close();
    proxy.tasks.wait().await;
}

struct Proxy {
    parts: Arc<Parts>,
    original: Original,
    bounds: Arc<Bounds>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Proxy {
    async fn accept_all(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "the proxy cannot accept a connection; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn settle_refusals(&self) {
        loop {
            tokio::time::sleep(SETTLE).await;
            self.parts.refusals.settle(Instant::now());
        }
    }

    /// Takes a connection on, or resets it.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let guest = plain(peer.ip()).and_then(|address| self.parts.guests.find(address));
        let (Some(guest), Ok(wanted)) = (guest, (self.original)(&stream)) else {
            tracing::debug!(%peer, "a connection of nobody was reset");
            drop(Wire::new(stream));
            return;
        };
        let place = self.bounds.take(guest.address);
        let session = Session { parts: Arc::clone(&self.parts), guest, wanted };
        let Some(place) = place else {
            session.tell(Stop::Refused(Reason::TooMany, None));
            drop(Wire::new(stream));
            return;
        };
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = lead(session, stream, place) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

fn plain(address: IpAddr) -> Option<Ipv4Addr> {
    match address.to_canonical() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}
