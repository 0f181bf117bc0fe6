//! The two directions of a stream: [`OutputSource`] from a command or socket to the host, [`Sink`] the other way. Used by
//! `exec` and `dial`; [`Drains`] reads and drops the rest of a source whose command has ended.
//!
//! A source sends only what the host granted, a sink holds only what it granted to the host. An error of a stream ends
//! that stream alone.

mod drain;
mod replay;
mod sink;

use std::os::fd::OwnedFd;
use std::rc::Rc;

use guest_proto::{Channel, Credits, MAX_DATA, ProtoError};
use rustix::io::Errno;

use crate::link::OutBuf;
use crate::poll::Ready;

pub use drain::Drains;
pub use replay::ReplayBuffer;
pub use sink::{Sink, SinkKind};

/// Initial capacity of a pipe, and the capacity it gets once it was full.
const PIPE: usize = 64 * 1024;
const HOT_PIPE: usize = 1024 * 1024;

/// Result of reading a source once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadProgress {
    /// Nothing to read or no credit; an event or a grant will wake it.
    Idle,
    /// There may be more.
    More,
    /// The writers are gone.
    Eof,
    /// The command has ended and its output was read; background processes may still hold the stream open.
    Cut,
    /// The stream broke.
    Failed(Errno),
}

/// What happens to output without credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCredit {
    Wait,
    /// Dropped: the command was killed, and the host may grant no more.
    Drop,
}

/// What a short read means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The stream is empty.
    Plain,
    /// Nothing: a terminal returns a few KiB at a time, and its last output may arrive after its writer's end.
    Terminal,
}

/// A stream to the host.
pub struct OutputSource {
    fd: Rc<OwnedFd>,
    channel: Channel,
    credits: Credits,
    readable: bool,
    hangup: bool,
    hot: bool,
    /// Once the command has ended: how many bytes of its output are still to be read.
    left: Option<usize>,
    no_credit: NoCredit,
    ending: Ending,
    /// Whether it is in the queue of ready sources.
    pub queued: bool,
}

impl OutputSource {
    pub fn new(fd: Rc<OwnedFd>, channel: Channel, window: u32) -> Self {
        Self {
            fd,
            channel,
            credits: Credits::new(window),
            readable: false,
            hangup: false,
            hot: false,
            left: None,
            no_credit: NoCredit::Wait,
            ending: Ending::Plain,
            queued: false,
        }
    }

    /// The source of a terminal.
    pub fn of_terminal(fd: Rc<OwnedFd>, window: u32) -> Self {
        Self { ending: Ending::Terminal, ..Self::new(fd, Channel::Stdout, window) }
    }

    /// Whether it reads a terminal.
    pub fn is_terminal(&self) -> bool {
        self.ending == Ending::Terminal
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The descriptor, for a new owner.
    pub fn into_fd(self) -> Rc<OwnedFd> {
        self.fd
    }

    /// An event of the stream.
    pub fn on_event(&mut self, event: Ready) {
        self.try_again();
        self.hangup |= event.hangup;
    }

    /// The stream may be readable without an event.
    pub fn try_again(&mut self) {
        self.readable = true;
    }

    /// A grant of the host.
    pub fn grant(&mut self, bytes: u32) -> Result<(), ProtoError> {
        self.credits.grant(bytes)
    }

    /// A new link: voids the grants of the old one.
    pub fn void_credits(&mut self) {
        self.credits.reset();
    }

    /// A new link attaches and grants this much.
    pub fn regrant(&mut self, bytes: u32) {
        self.credits = Credits::new(bytes);
    }

    /// The command has ended: its remaining output is what the pipe holds now.
    pub fn limit_to_buffered(&mut self) {
        let held = rustix::io::ioctl_fionread(&*self.fd).ok().and_then(|n| usize::try_from(n).ok());
        self.left = Some(held.unwrap_or(HOT_PIPE));
        self.readable = true;
    }

    /// The command was killed: stop waiting for grants.
    pub fn drop_uncredited(&mut self) {
        self.no_credit = NoCredit::Drop;
    }

    /// Whether there is something to read and credit to send it.
    pub fn runnable(&self) -> bool {
        self.readable && (self.credits.left() > 0 || self.drops_uncredited() || self.left == Some(0))
    }

    /// Reads once into a frame for the host.
    pub fn step(&mut self, op: u64, out: &mut OutBuf, replay: Option<&mut ReplayBuffer>) -> ReadProgress {
        if self.left == Some(0) {
            return ReadProgress::Cut;
        }
        let want = self.credits.left().min(MAX_DATA).min(self.left.unwrap_or(usize::MAX));
        if want == 0 {
            return if self.drops_uncredited() { ReadProgress::Cut } else { ReadProgress::Idle };
        }
        if !self.readable {
            return ReadProgress::Idle;
        }
        match out.data(op, self.channel, want, &*self.fd) {
            Ok(0) => ReadProgress::Eof,
            Ok(n) => {
                if let Some(replay) = replay {
                    replay.sent(out.last(n));
                }
                self.after_read(n, want)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                if self.left.is_some() { ReadProgress::Cut } else { ReadProgress::Idle }
            }
            Err(Errno::INTR) => ReadProgress::More,
            Err(errno) => ReadProgress::Failed(errno),
        }
    }

    fn after_read(&mut self, n: usize, want: usize) -> ReadProgress {
        self.credits.spend(n);
        if n >= PIPE && !self.hot && self.ending == Ending::Plain {
            // A command that fills its pipe gets a larger one, where that is permitted.
            self.hot = true;
            let _ = rustix::pipe::fcntl_setpipe_size(&*self.fd, HOT_PIPE);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(n);
        } else if n < want && !self.hangup && self.ending == Ending::Plain {
            // The pipe is empty; the next byte triggers an event.
            self.readable = false;
        }
        if self.runnable() { ReadProgress::More } else { ReadProgress::Idle }
    }

    fn drops_uncredited(&self) -> bool {
        self.no_credit == NoCredit::Drop && self.left.is_some()
    }
}
