//! Transfers bytes from the host to a command's stdin or to a dialled socket.
//!
//! Bytes that cannot be written at once are buffered, at most the granted window. When the reader is gone, bytes are
//! dropped and granted again, so that a host that keeps writing does not wait forever.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use guest_proto::{ProtoError, Window};
use rustix::io::Errno;
use rustix::net::Shutdown;

/// The type of the stream, which decides how it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkKind {
    /// Ended by closing it.
    Pipe,
    /// Ended by `shutdown`, since the other direction stays open.
    Socket,
}

/// A stream from the host.
pub struct Sink {
    fd: Option<Rc<OwnedFd>>,
    kind: SinkKind,
    buffer: Vec<u8>,
    head: usize,
    size: u32,
    window: Window,
    /// Bytes received so far.
    received: u64,
    ended: bool,
}

impl Sink {
    pub fn new(fd: Rc<OwnedFd>, kind: SinkKind, size: u32) -> Self {
        Self {
            fd: Some(fd),
            kind,
            buffer: Vec::new(),
            head: 0,
            size,
            window: Window::new(size),
            received: 0,
            ended: false,
        }
    }

    /// Accepts bytes of the host. `Err` if they exceed the grant, or after the end of the stream.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ProtoError> {
        if self.ended && !bytes.is_empty() {
            return Err(ProtoError::Invalid { field: "data", reason: "came after the end of its stream" });
        }
        self.window.received(bytes.len())?;
        self.received += bytes.len() as u64;
        let written = if self.waiting() == 0 { self.write_through(bytes) } else { 0 };
        self.buffer.extend_from_slice(&bytes[written..]);
        Ok(())
    }

    /// No more bytes will come.
    pub fn end(&mut self) {
        self.ended = true;
        self.close_if_done();
    }

    /// The reader has closed.
    pub fn drop_reader(&mut self) {
        self.fd = None;
        self.window.consumed(self.waiting());
        self.buffer = Vec::new();
        self.head = 0;
    }

    /// The stream may take bytes again.
    pub fn on_event(&mut self) {
        if self.waiting() > 0 {
            let buffer = std::mem::take(&mut self.buffer);
            self.head += self.write_through(&buffer[self.head..]);
            if self.head < buffer.len() {
                self.buffer = buffer;
            } else {
                self.head = 0;
            }
        }
        self.close_if_done();
    }

    /// The grant to send to the host now, if any.
    pub fn due(&mut self) -> Option<u32> {
        if self.ended { None } else { self.window.due() }
    }

    /// Number of bytes that the host has sent.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// A new link: voids the grants of the old one.
    pub fn regrant(&mut self) {
        self.window = Window::closed(self.size, self.waiting());
    }

    /// Whether the stream has ended and everything was written or dropped.
    pub fn is_done(&self) -> bool {
        self.ended && self.waiting() == 0
    }

    fn waiting(&self) -> usize {
        self.buffer.len() - self.head
    }

    /// Writes what can be written at once; returns the number of bytes that need not be buffered.
    fn write_through(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            let Some(fd) = &self.fd else {
                written = bytes.len();
                break;
            };
            match rustix::io::write(&**fd, &bytes[written..]) {
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.fd = None,
            }
        }
        self.window.consumed(written);
        written
    }

    fn close_if_done(&mut self) {
        if !self.is_done() {
            return;
        }
        if let (Some(fd), SinkKind::Socket) = (&self.fd, self.kind) {
            // Fails only if the connection is gone.
            let _ = rustix::net::shutdown(&**fd, Shutdown::Write);
        }
        self.fd = None;
    }
}
