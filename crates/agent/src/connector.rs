//! Makes the link to the host: accepts connections on an inherited socket, or connects to the host, with retries.
//! The loop calls [`Connector::take`] at each event of the connector and when its timer expires.
//!
//! No failure here ends the agent: without a host it waits for one.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest_proto::TOKEN_LEN;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::BootError;
use crate::poll::{Interest, Poll, PollToken, Role};

/// Pause between two attempts to connect while the host is about to listen: after a start, and after stored processes continue,
/// which takes seconds on a busy host.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// Attempts with this pause: 5 s if each is refused at once.
const SHORT_PAUSES: u32 = 250;
/// Longest pause, with a host that does not run.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a connection may take to be established: at first, and at most. Before the host's end of the link has its address the first
/// packet is lost, and the kernel would repeat it only after a second.
const ESTABLISH_MIN: Duration = Duration::from_millis(100);
const ESTABLISH_MAX: Duration = Duration::from_secs(1);
/// Attempts that may take the shorter time.
const SHORT_ATTEMPTS: u32 = 20;

/// Where the host waits for the agent.
pub enum HostSocket {
    Unix(PathBuf),
    Tcp(SocketAddrV4),
}

/// The way to the host.
pub enum Connector {
    /// The host connects; the newest connection replaces the former.
    Listen(OwnedFd),
    /// The agent connects, and first sends the token.
    Connect(Dialling),
}

/// The attempts to connect to the host.
pub struct Dialling {
    address: HostSocket,
    token: [u8; TOKEN_LEN],
    /// Failed attempts since the last answer of the host.
    failed: u32,
    /// Of these, those that were not established in time.
    timed_out: u32,
    next: Option<Instant>,
    /// When the agent gives up the current attempt.
    deadline: Option<Instant>,
}

impl Connector {
    /// Accepts connections on a listening Unix stream socket.
    pub fn listen(socket: OwnedFd) -> Result<Self, BootError> {
        let check =
            |errno| BootError::Step { step: "use --listen-fd, which is not a listening socket", errno };
        if !rustix::net::sockopt::socket_acceptconn(&socket).map_err(check)? {
            return Err(check(Errno::INVAL));
        }
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(check)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(check)?;
        Ok(Self::Listen(socket))
    }

    /// Connects to the host.
    pub fn connect(address: HostSocket, token: [u8; TOKEN_LEN]) -> Self {
        let next = Some(Instant::now());
        Self::Connect(Dialling { address, token, failed: 0, timed_out: 0, next, deadline: None })
    }

    /// Registers for events of new connections.
    pub fn register(&self, poll: &Poll) -> Result<(), Errno> {
        match self {
            Self::Listen(socket) => {
                poll.add(socket, PollToken { serial: 0, role: Role::Connector }, Interest::LevelRead)
            }
            Self::Connect(_) => Ok(()),
        }
    }

    /// The next time to call [`Connector::take`] without an event.
    pub fn next(&self) -> Option<Instant> {
        match self {
            Self::Listen(_) => None,
            Self::Connect(dialling) => dialling.next,
        }
    }

    /// When the current connection has to be established.
    pub fn establish_deadline(&self) -> Option<Instant> {
        match self {
            Self::Listen(_) => None,
            Self::Connect(dialling) => dialling.deadline,
        }
    }

    /// The current connection is established.
    pub fn established(&mut self) {
        if let Self::Connect(dialling) = self {
            dialling.deadline = None;
        }
    }

    /// A new connection and the bytes to send on it first, if there is one. Does not block.
    pub fn take(&mut self, now: Instant) -> Option<(OwnedFd, Vec<u8>)> {
        match self {
            Self::Listen(socket) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                rustix::net::accept_with(socket.as_fd(), flags).ok().map(|stream| (stream, Vec::new()))
            }
            Self::Connect(dialling) => dialling.take(now),
        }
    }

    /// The host has answered: forgets the failed attempts.
    pub fn answered(&mut self) {
        if let Self::Connect(dialling) = self {
            (dialling.failed, dialling.timed_out) = (0, 0);
        }
    }

    /// The connection has ended.
    pub fn lost(&mut self, now: Instant) {
        if let Self::Connect(dialling) = self {
            dialling.lost(now);
        }
    }
}

impl Dialling {
    fn take(&mut self, now: Instant) -> Option<(OwnedFd, Vec<u8>)> {
        if self.next.is_none_or(|at| at > now) {
            return None;
        }
        if let Ok(stream) = dial_out(&self.address) {
            self.next = None;
            self.deadline = Some(now + grown(ESTABLISH_MIN, self.timed_out, SHORT_ATTEMPTS, ESTABLISH_MAX));
            return Some((stream, self.token.to_vec()));
        }
        self.lost(now);
        None
    }

    fn lost(&mut self, now: Instant) {
        if self.deadline.take().is_some_and(|at| at <= now) {
            self.timed_out = self.timed_out.saturating_add(1);
        }
        self.failed = self.failed.saturating_add(1);
        self.next = Some(now + grown(SHORT_PAUSE, self.failed, SHORT_PAUSES, PAUSE_MAX));
    }
}

/// A time that doubles with each failure after the first ones.
fn grown(first: Duration, failures: u32, without_growth: u32, most: Duration) -> Duration {
    let doublings = failures.saturating_sub(without_growth).min(16);
    (first * (1 << doublings)).min(most)
}

fn dial_out(address: &HostSocket) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match address {
        HostSocket::Unix(path) => {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // A Unix socket connects at once or fails: a full queue gives EAGAIN.
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket)
        }
        HostSocket::Tcp(address) => {
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            match rustix::net::connect(&socket, address) {
                // It is writable when it is connected, and fails to read if it cannot be.
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(errno) => Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialling() -> Dialling {
        // Nothing listens there, so each attempt fails at once.
        let address = HostSocket::Unix("/nonexistent/host".into());
        let token = [0; TOKEN_LEN];
        Dialling { address, token, failed: 0, timed_out: 0, next: Some(Instant::now()), deadline: None }
    }

    #[test]
    fn pauses_are_short_at_first_and_then_grow_to_a_second() {
        let mut dialling = dialling();
        let mut pauses = Vec::new();
        for _ in 0..SHORT_PAUSES + 7 {
            let now = dialling.next.unwrap();
            assert!(dialling.take(now).is_none());
            pauses.push((dialling.next.unwrap() - now).as_millis());
        }
        let (short, grown) = pauses.split_at(SHORT_PAUSES as usize);
        assert_eq!(short.iter().sum::<u128>(), 5000);
        assert_eq!(grown, [40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[test]
    fn attempts_that_are_not_established_get_more_time() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("host");
        let _listener = std::os::unix::net::UnixListener::bind(&host).unwrap();
        let mut dialling = Dialling { address: HostSocket::Unix(host), ..dialling() };
        let mut times = Vec::new();
        for _ in 0..=SHORT_ATTEMPTS + 4 {
            let now = dialling.next.unwrap();
            assert!(dialling.take(now).is_some());
            let deadline = dialling.deadline.unwrap();
            times.push((deadline - now).as_millis());
            dialling.lost(deadline);
        }
        let (short, grown) = times.split_at(SHORT_ATTEMPTS as usize);
        assert!(short.iter().all(|time| *time == 100));
        assert_eq!(grown, [100, 200, 400, 800, 1000]);
        // A connection that is established may take as long as the host needs to answer.
        let now = dialling.next.unwrap();
        dialling.take(now);
        let mut connector = Connector::Connect(dialling);
        connector.established();
        assert_eq!(connector.establish_deadline(), None);
    }
}
