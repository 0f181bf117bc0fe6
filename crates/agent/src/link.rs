//! The stream to the host, with its receive and send buffers. Used by the loop and
//! by `serve`.
//!
//! A link that breaks drops its buffers, so that no partial frame gets into the next stream. A suspended link keeps what it has to
//! send for a stream that continues it.

mod input;
mod out;

use std::os::fd::OwnedFd;

use guest_proto::ToHost;
use rustix::io::Errno;

use crate::poll::Ready;

pub use input::InBuf;
pub use out::OutBuf;

/// The state of the handshake on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkPhase {
    /// There is no stream.
    Down,
    /// Connected; waits for the host's `Hello`.
    New,
    /// The versions are agreed.
    Open,
    /// The host continues the link on another stream.
    Suspended,
}

/// The stream to the host, if there is one.
pub struct Link {
    stream: Option<OwnedFd>,
    pub serial: u64,
    pub phase: LinkPhase,
    /// The agreed version, once the link is open.
    pub version: u16,
    pub readable: bool,
    writable: bool,
    pub input: InBuf,
    pub out: OutBuf,
    /// The first bytes of a stream.
    preface: Vec<u8>,
}

impl Link {
    pub fn new() -> Self {
        Self {
            stream: None,
            serial: 0,
            phase: LinkPhase::Down,
            version: 0,
            readable: false,
            writable: false,
            input: InBuf::default(),
            out: OutBuf::default(),
            preface: Vec::new(),
        }
    }

    /// Starts with a new stream. The caller has closed the previous one with [`Link::down`].
    pub fn up(&mut self, stream: OwnedFd, serial: u64, preface: Vec<u8>) {
        self.stream = Some(stream);
        self.serial = serial;
        self.phase = LinkPhase::New;
        self.readable = true;
        self.writable = true;
        self.preface = preface;
    }

    /// Answers `Suspend`. What is sent later waits for another stream.
    pub fn suspend(&mut self) {
        self.out.message(&ToHost::Suspended);
        self.out.hold();
        self.phase = LinkPhase::Suspended;
    }

    /// Whether the link can continue on another stream: the host has received everything before the suspension.
    pub fn is_suspended(&self) -> bool {
        self.out.is_held() && self.out.sendable() == 0
    }

    /// Closes the stream of a suspended link.
    pub fn detach(&mut self) {
        self.close();
        self.phase = LinkPhase::Suspended;
    }

    /// Continues a suspended link on the current stream.
    pub fn continue_here(&mut self) {
        self.out.release();
        self.phase = LinkPhase::Open;
    }

    /// Whether the first bytes of the stream are sent. The kernel takes them only on an established stream.
    pub fn is_preface_sent(&self) -> bool {
        self.stream.is_some() && self.preface.is_empty()
    }

    /// Whether there is no stream.
    pub fn is_detached(&self) -> bool {
        self.stream.is_none()
    }

    fn close(&mut self) {
        self.stream = None;
        self.readable = false;
        self.writable = false;
        self.input.clear();
        self.preface.clear();
    }

    /// Closes the stream and drops its buffers.
    pub fn down(&mut self) {
        self.close();
        self.phase = LinkPhase::Down;
        self.out.clear();
    }

    /// An event of the stream.
    pub fn on_event(&mut self, event: Ready) {
        self.readable |= event.readable;
        self.writable |= event.writable;
    }

    /// Whether the stream may be readable, and the send buffer has space for answers.
    pub fn can_read(&self) -> bool {
        self.stream.is_some() && self.readable && self.out.takes_answers()
    }

    /// Reads once. False if there was nothing; `Err` if the stream has ended.
    pub fn read(&mut self) -> Result<bool, Errno> {
        let Some(stream) = &self.stream else { return Ok(false) };
        match self.input.read(stream) {
            Ok(0) => Err(Errno::PIPE),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(false)
            }
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Writes as much as the stream takes. `Err` if it has ended.
    pub fn flush(&mut self) -> Result<(), Errno> {
        let Some(stream) = &self.stream else { return Ok(()) };
        while self.writable && !self.preface.is_empty() {
            match rustix::io::write(stream, &self.preface) {
                Ok(n) => drop(self.preface.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(errno) => return Err(errno),
            }
        }
        while self.writable && self.out.sendable() > 0 {
            match self.out.write(stream) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
