//! The sandboxes' only DNS server.
//!
//! Who asks is known by the address that the question comes from; a stranger hears nothing. A question is read (`message`), judged
//! by the policy alone (`decision`), and then answered (`reply`): by us, or from what the resolver finds. A name that does not pass
//! is never told to an upstream, and of one that passes only the letters in plain form are: neither a name nor the way it is
//! written carries anything out. To a sandbox with a closed policy an address is told after it may be reached, never before.
//!
//! `udp` and `tcp` carry the messages, within the bounds of `share`: one sandbox slows down no other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::guests::Guest;
use crate::parts::Parts;
use crate::refusals::{Reason, Target, Transport};

mod decision;
mod message;
mod reply;
mod share;
mod tcp;
mod udp;

/// For those who try to break it.
pub use message::{Asked, Envelope, Question, Reply, read};

use share::{Share, Shares};

const PORT: u16 = 53;
/// A question with every option that clients send is far smaller.
const QUESTION_BYTES_MAX: usize = 4096;
/// Over a connection there could be more, but nobody honest has it, and it waits in memory for who asked.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Finding out has a bound of its own; this is for the whole, should the kernel take its time.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

struct Server {
    parts: Arc<Parts>,
    shares: Shares,
    all: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Answers until it is stopped. When this returns, all that it started has ended.
pub async fn serve(parts: Arc<Parts>, udp: UdpSocket, tcp: TcpListener, stop: CancellationToken) {
    let server = Arc::new(Server {
        parts,
        shares: Shares::default(),
        all: Arc::new(Semaphore::new(share::ANSWERING_MAX_OF_ALL)),
        tasks: TaskTracker::new(),
        stop,
    });
    tokio::join!(udp::serve(&server, udp), tcp::serve(&server, tcp));
    server.tasks.close();
    server.tasks.wait().await;
}

impl Server {
    /// Who is behind an address, and what it may use.
    fn known(&self, source: SocketAddr) -> Option<(Arc<Guest>, Arc<Share>)> {
        let address = ipv4(source)?;
        Some((self.parts.guests.find(address)?, self.shares.of(address)))
    }

    /// Runs until it is done or the server is stopped.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(work).await;
        });
    }

    /// The bytes to send back, or none to what is not to be answered.
    async fn answer(&self, guest: &Arc<Guest>, bytes: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let (question, envelope) = match read(bytes) {
            Asked::Nothing => return None,
            Asked::Wrong(reply) => return reply.to_vec().ok(),
            Asked::Question(question, envelope) => (question, envelope),
        };
        let replying = reply::to(&self.parts, guest, &question, transport);
        let reply = match tokio::time::timeout(ANSWER_WITHIN, replying).await {
            Ok(reply) => reply,
            Err(_) => reply::failed(),
        };
        let room = if transport == Transport::Tcp { ANSWER_BYTES_MAX } else { envelope.datagram_room() };
        envelope.answered(reply, room)
    }

    fn too_many(&self, guest: &Guest, transport: Transport) {
        let target = Target { name: None, address: None, port: PORT, transport };
        self.parts.refusals.tell(&guest.id, target, Reason::TooMany);
    }
}

fn ipv4(source: SocketAddr) -> Option<Ipv4Addr> {
    match source.ip().to_canonical() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn now() -> Instant {
    // The clock that a test can stop.
    tokio::time::Instant::now().into_std()
}
