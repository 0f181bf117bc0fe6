//! The DNS server of the sandboxes, and the only one that they can reach.
//!
//! The source address identifies the sandbox; questions from unknown addresses are dropped. `message` parses a
//! question, `decision` decides about it by the policy alone, and `reply` answers it, from its own data or from the
//! resolver. Upstreams see only names that the policy passes, in lower case: neither other names nor the spelling of
//! a name carries data out. Under default deny an address is opened before it is answered.
//!
//! `udp` and `tcp` transport the messages within the limits of `limits`, so that one sandbox does not slow down others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::parts::Parts;
use crate::refusals::{Reason, RefusedTarget};
use crate::registry::Guest;
use crate::transport::Transport;

mod decision;
mod limits;
mod message;
mod reply;
mod tcp;
mod udp;

/// For fuzz targets.
pub use message::{DnsReply, Envelope, ParsedMessage, Question, read};

use limits::{LimitsByAddress, SandboxLimits};

const PORT: u16 = 53;
/// Limit of a question. Usual questions are far smaller.
const QUESTION_BYTES_MAX: usize = 4096;
/// Limit of an answer over TCP, because answers wait in memory for the client. Usual answers are smaller.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Time limit of the whole answer, including requests to the kernel. The resolver has its own limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

struct Server {
    parts: Arc<Parts>,
    limits: LimitsByAddress,
    all: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Serves until `stop`. All tasks have ended when this returns.
pub async fn serve(parts: Arc<Parts>, udp: UdpSocket, tcp: TcpListener, stop: CancellationToken) {
    let server = Arc::new(Server {
        parts,
        limits: LimitsByAddress::default(),
        all: Arc::new(Semaphore::new(limits::ANSWERING_MAX_OF_ALL)),
        tasks: TaskTracker::new(),
        stop,
    });
    tokio::join!(udp::serve(&server, udp), tcp::serve(&server, tcp));
    server.tasks.close();
    server.tasks.wait().await;
}

impl Server {
    /// The sandbox at an address, and its limits.
    fn sandbox_at(&self, source: SocketAddr) -> Option<(Arc<Guest>, Arc<SandboxLimits>)> {
        let address = ipv4(source)?;
        Some((self.parts.registry.find(address)?, self.limits.of(address)))
    }

    /// Spawns a task that ends with the server.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(work).await;
        });
    }

    /// The answer, or `None` if the message must not be answered.
    async fn answer(&self, guest: &Arc<Guest>, bytes: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let (question, envelope) = match read(bytes) {
            ParsedMessage::Nothing => return None,
            ParsedMessage::Invalid(reply) => return reply.to_vec().ok(),
            ParsedMessage::Question(question, envelope) => (question, envelope),
        };
        let replying = reply::to(&self.parts, guest, &question, transport);
        let reply = match tokio::time::timeout(ANSWER_TIMEOUT, replying).await {
            Ok(reply) => reply,
            Err(_) => reply::failed(),
        };
        let room = if transport == Transport::Tcp { ANSWER_BYTES_MAX } else { envelope.datagram_room() };
        envelope.encode_reply(reply, room)
    }

    fn too_many(&self, guest: &Guest, transport: Transport) {
        let target = RefusedTarget { name: None, address: None, port: PORT, transport };
        self.parts.refusals.report(&guest.id, target, Reason::TooMany);
    }
}

fn ipv4(source: SocketAddr) -> Option<Ipv4Addr> {
    match source.ip().to_canonical() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn now() -> Instant {
    // Tokio's clock, which tests can pause.
    tokio::time::Instant::now().into_std()
}
