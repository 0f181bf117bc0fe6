//! The proxy for all TCP connections of a sandbox under default deny. The first bytes of a connection name its host;
//! the policy decides; and a connection that passes goes to an address that the daemon found for the name, not to one
//! that the client claims. TLS is not decrypted.
//!
//! A refused connection is reset and reported. A connection that cannot be decided is reset too.

mod authority;
mod body;
mod bounds;
mod connection;
mod exchange;
mod first_lines;
mod handshake;
mod hello;
mod http;
mod preamble;
mod second_hello;
mod serving;
mod session;
mod sniff;
mod splice;
mod upstream;
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
use connection::serve_connection;
use session::{ProxySession, Stop};
pub use sniff::{First, sniff};
use wire::Wire;

use crate::refusals::Reason;

/// Pause after a failed accept, which usually means that no file descriptor is free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// How often counted refusals are reported.
const REFUSAL_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the destination of a connection before it was redirected to the proxy.
pub type Original = Arc<dyn Fn(&TcpStream) -> io::Result<SocketAddrV4> + Send + Sync>;

/// Serves until `stop`, then resets all connections.
pub async fn serve(parts: Arc<Parts>, listener: TcpListener, stop: CancellationToken) {
    let of_kernel: Original = Arc::new(|stream| Ok(rustix::net::sockopt::ip_original_dst(stream)?));
    serve_from(parts, listener, stop, of_kernel).await;
}

/// Serves with a given source of original destinations.
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
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn settle_refusals(&self) {
        loop {
            tokio::time::sleep(REFUSAL_REPORT_INTERVAL).await;
            self.parts.refusals.settle(Instant::now());
        }
    }

    /// Serves a connection, or resets it.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let guest = plain(peer.ip()).and_then(|address| self.parts.registry.find(address));
        let (Some(guest), Ok(original)) = (guest, (self.original)(&stream)) else {
            tracing::debug!(%peer, "reset a connection from an address without a sandbox");
            drop(Wire::new(stream));
            return;
        };
        let permit = self.bounds.take(guest.address);
        let session = ProxySession { parts: Arc::clone(&self.parts), guest, original };
        let Some(permit) = permit else {
            session.report(Stop::Refused(Reason::TooMany, None));
            drop(Wire::new(stream));
            return;
        };
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = serve_connection(session, stream, permit) => {}
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
