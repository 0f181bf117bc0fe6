//! A connection from the host to a TCP port inside the sandbox. Driven by the loop and by `serve`.
//!
//! ```text
//! connecting to 127.0.0.1 ──> connecting to ::1 ──> refused
//!            └───────────────────────┴──> open ──(both directions ended, broke, or Close)──> gone
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use guest_proto::{Channel, RefusalKind, ToHost};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::link::OutBuf;
use crate::poll::{Interest, Poll, PollToken, Ready, Role};
use crate::stdio::{OutputSource, ReadProgress, Sink, SinkKind};

/// Bytes the host may send before the program inside has read them.
const WINDOW: u32 = 256 * 1024;

/// What the loop has to do after a step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Wait,
    /// Add it to the queue of ready sources.
    Run,
    Remove,
}

enum DialState {
    Connecting { fd: Rc<OwnedFd>, to: IpAddr },
    Open { source: Option<OutputSource>, sink: Sink },
}

/// A dialled connection.
pub struct Dial {
    pub op: u64,
    pub serial: u64,
    port: u16,
    window: u32,
    state: DialState,
}

impl Dial {
    /// Starts to connect. `Err` if that fails for both addresses.
    pub fn new(op: u64, serial: u64, port: u16, window: u32, poll: &Poll) -> Result<Self, Errno> {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let begin = |to| connect(to, port, serial, poll).map(|fd| DialState::Connecting { fd, to });
        let state = begin(v4).or_else(|_| begin(v6))?;
        Ok(Self { op, serial, port, window, state })
    }

    /// An event of the socket.
    pub fn on_event(&mut self, event: Ready, out: &mut OutBuf, poll: &Poll) -> Next {
        match &mut self.state {
            DialState::Connecting { .. } if event.writable || event.hangup => {
                self.connected(event, out, poll)
            }
            DialState::Connecting { .. } => Next::Wait,
            DialState::Open { source, sink } => {
                if event.writable {
                    sink.on_event();
                }
                if let (Some(source), true) = (source.as_mut(), event.readable) {
                    source.on_event(event);
                }
                self.settle(out)
            }
        }
    }

    /// The source and sink, once connected.
    pub fn streams(&mut self) -> Option<(Option<&mut OutputSource>, &mut Sink)> {
        match &mut self.state {
            DialState::Connecting { .. } => None,
            DialState::Open { source, sink } => Some((source.as_mut(), sink)),
        }
    }

    /// Reads the socket once.
    pub fn step(&mut self, out: &mut OutBuf) -> Next {
        let DialState::Open { source: slot, .. } = &mut self.state else { return Next::Wait };
        let Some(source) = slot else { return Next::Wait };
        match source.step(self.op, out, None) {
            ReadProgress::Idle => Next::Wait,
            ReadProgress::More => Next::Run,
            ReadProgress::Eof | ReadProgress::Cut => {
                *slot = None;
                out.message(&ToHost::Eof { op: self.op, channel: Channel::Stdout });
                self.settle(out)
            }
            ReadProgress::Failed(errno) => {
                let message = format!("the connection to port {} broke: {errno}", self.port);
                out.message(&ToHost::Refused { op: self.op, kind: RefusalKind::Connect, message: &message });
                Next::Remove
            }
        }
    }

    /// Grants what was written to the socket; returns whether both directions have ended.
    pub fn settle(&mut self, out: &mut OutBuf) -> Next {
        let DialState::Open { source, sink } = &mut self.state else { return Next::Wait };
        if let Some(bytes) = sink.due() {
            out.message(&ToHost::Credit { op: self.op, bytes });
        }
        match source {
            None if sink.is_done() => Next::Remove,
            Some(source) if source.runnable() => Next::Run,
            _ => Next::Wait,
        }
    }

    /// Handles the result of an attempt to connect.
    fn connected(&mut self, event: Ready, out: &mut OutBuf, poll: &Poll) -> Next {
        let DialState::Connecting { fd, to } = &mut self.state else { return Next::Wait };
        let errno = match rustix::net::sockopt::socket_error(&**fd) {
            Ok(Ok(())) => return self.open(event, out),
            Ok(Err(errno)) | Err(errno) => errno,
        };
        if to.is_ipv4() {
            let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
            if let Ok(fd) = connect(v6, self.port, self.serial, poll) {
                self.state = DialState::Connecting { fd, to: v6 };
                return Next::Wait;
            }
        }
        let message = format!("port {} does not answer: {errno}", self.port);
        out.message(&ToHost::Refused { op: self.op, kind: RefusalKind::Connect, message: &message });
        Next::Remove
    }

    fn open(&mut self, event: Ready, out: &mut OutBuf) -> Next {
        let DialState::Connecting { fd, .. } = &self.state else { return Next::Wait };
        // For speed only: a failure does not matter.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&**fd, true);
        let mut source = OutputSource::new(Rc::clone(fd), Channel::Stdout, self.window);
        let sink = Sink::new(Rc::clone(fd), SinkKind::Socket, WINDOW);
        // Bytes, and even the end, may have arrived with the connection, without a second event.
        source.on_event(event);
        self.state = DialState::Open { source: Some(source), sink };
        out.message(&ToHost::Opened { op: self.op, window: WINDOW });
        Next::Run
    }
}

fn connect(to: IpAddr, port: u16, serial: u64, poll: &Poll) -> Result<Rc<OwnedFd>, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddr::new(to, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno),
    }
    poll.add(&socket, PollToken { serial, role: Role::Socket }, Interest::Both)?;
    Ok(Rc::new(socket))
}
