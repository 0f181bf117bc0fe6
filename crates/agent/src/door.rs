//! Where the link to the host comes from: connections accepted from an inherited socket, or made outwards again and
//! again. The loop asks [`Door::take`] whenever the door stirs or its time has come.
//!
//! Nothing here ends the agent: without a host it waits for one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest_proto::TOKEN_LEN;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::BootError;
use crate::poll::{Interest, Poll, Role, Token};

/// First and longest pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The way to the host.
pub enum Door {
    /// The host connects; its newest connection counts.
    Listen(OwnedFd),
    /// The agent connects, and says the token before anything else.
    Connect { address: PathBuf, token: [u8; TOKEN_LEN], pause: Duration, next: Option<Instant> },
}

impl Door {
    /// A door on a listening Unix stream socket.
    pub fn listen(socket: OwnedFd) -> Result<Self, BootError> {
        let check = |errno| BootError::Step { step: "use --listen-fd, which is no listening socket", errno };
        if !rustix::net::sockopt::socket_acceptconn(&socket).map_err(check)? {
            return Err(check(Errno::INVAL));
        }
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(check)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(check)?;
        Ok(Self::Listen(socket))
    }

    /// A door that connects to a Unix socket.
    pub fn connect(address: PathBuf, token: [u8; TOKEN_LEN]) -> Self {
        Self::Connect { address, token, pause: PAUSE_MIN, next: Some(Instant::now()) }
    }

    /// Lets the poll tell when there is somebody.
    pub fn register(&self, poll: &Poll) -> Result<(), Errno> {
        match self {
            Self::Listen(socket) => {
                poll.add(socket, Token { serial: 0, role: Role::Door }, Interest::LevelRead)
            }
            Self::Connect { .. } => Ok(()),
        }
    }

    /// When to call [`Door::take`] without an event.
    pub fn next(&self) -> Option<Instant> {
        match self {
            Self::Listen(_) => None,
            Self::Connect { next, .. } => *next,
        }
    }

    /// A new connection and what to send on it first, if there is one now. It does not block.
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

    /// The host has answered on the connection: the next one may be tried soon.
    pub fn proved(&mut self) {
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

fn dial_out(address: &PathBuf) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // On a Unix socket this is done at once or not at all: a full queue says EAGAIN, which is a failure like others.
    rustix::net::connect(&socket, &SocketAddrUnix::new(address)?)?;
    Ok(socket)
}
