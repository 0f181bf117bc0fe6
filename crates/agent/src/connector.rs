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
use crate::poll::{Interest, Poll, Role, Token};

/// Shortest and longest pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

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
    Connect { address: HostSocket, token: [u8; TOKEN_LEN], pause: Duration, next: Option<Instant> },
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
        Self::Connect { address, token, pause: PAUSE_MIN, next: Some(Instant::now()) }
    }

    /// Registers for events of new connections.
    pub fn register(&self, poll: &Poll) -> Result<(), Errno> {
        match self {
            Self::Listen(socket) => {
                poll.add(socket, Token { serial: 0, role: Role::Connector }, Interest::LevelRead)
            }
            Self::Connect { .. } => Ok(()),
        }
    }

    /// The next time to call [`Connector::take`] without an event.
    pub fn next(&self) -> Option<Instant> {
        match self {
            Self::Listen(_) => None,
            Self::Connect { next, .. } => *next,
        }
    }

    /// A new connection and the bytes to send on it first, if there is one. Does not block.
    pub fn take(&mut self, now: Instant) -> Option<(OwnedFd, Vec<u8>)> {
        match self {
            Self::Listen(socket) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                rustix::net::accept_with(socket.as_fd(), flags).ok().map(|stream| (stream, Vec::new()))
            }
            Self::Connect { address, token, pause, next } => {
                if next.is_none_or(|at| at > now) {
                    return None;
                }
                if let Ok(stream) = dial_out(address) {
                    *next = None;
                    Some((stream, token.to_vec()))
                } else {
                    *next = Some(now + *pause);
                    *pause = (*pause * 2).min(PAUSE_MAX);
                    None
                }
            }
        }
    }

    /// The host has answered: resets the pause.
    pub fn reset_pause(&mut self) {
        if let Self::Connect { pause, .. } = self {
            *pause = PAUSE_MIN;
        }
    }

    /// The connection has ended.
    pub fn lost(&mut self, now: Instant) {
        if let Self::Connect { pause, next, .. } = self {
            *next = Some(now + *pause);
            *pause = (*pause * 2).min(PAUSE_MAX);
        }
    }
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
