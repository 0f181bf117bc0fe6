//! The stream to the host, with its receive and send buffers. Used by the loop and
//! by `serve`.
//!
//! A link that breaks drops its buffers, so that no partial frame gets into the next stream.

mod input;
mod out;

use std::os::fd::OwnedFd;

use rustix::io::Errno;

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
        }
    }

    /// Starts with a new stream. The caller has closed the previous one with [`Link::down`].
    pub fn up(&mut self, stream: OwnedFd, serial: u64, first: &[u8]) {
        self.stream = Some(stream);
        self.serial = serial;
        self.phase = LinkPhase::New;
        self.readable = true;
        self.writable = true;
        self.out.raw(first);
    }

    /// Closes the stream and drops its buffers.
    pub fn down(&mut self) {
        self.stream = None;
        self.phase = LinkPhase::Down;
        self.readable = false;
        self.writable = false;
        self.input.clear();
        self.out.clear();
    }

    /// An event of the stream.
    pub fn on_event(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Whether the stream may be readable, and the send buffer has space for answers.
    pub fn can_read(&self) -> bool {
        self.stream.is_some() && self.readable && !self.out.is_full()
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
        while self.writable && !self.out.is_empty() {
            match self.out.write(stream) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
