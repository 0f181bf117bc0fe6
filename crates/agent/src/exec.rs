//! A command from its start to the frame that tells its end. Its parts are driven by the loop and by `serve`.
//!
//! ```text
//! running ──(collected)──> ended ──(output delivered or dropped, hunt over)──> told ──(sent)──> gone
//! ```
//!
//! A lost link moves `told` back to `ended` and takes the command's credits; nothing else.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use guest_proto::{Channel, Exit, ToHost};
use rustix::process::Pid;

use crate::errand;
use crate::link::OutBuf;
use crate::poll::{Interest, Poll, Role, Token};
use crate::spawn::Spawned;
use crate::stdio::{Drains, Kind, Sink, Source, Turn};
use crate::tree::Hunt;

/// What the host may send to a command's stdin before it is read.
pub const STDIN_WINDOW: u32 = 64 * 1024;

/// How far a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended { exit: Exit, duration_us: u64 },
    Told { exit: Exit, duration_us: u64 },
}

/// A command.
pub struct Exec {
    pub op: u64,
    pub serial: u64,
    pub pid: Pid,
    started: Instant,
    state: State,
    pub stdin: Option<Sink>,
    outs: [Option<Source>; 2],
    /// Under way from `Kill` until nobody of the command's is alive.
    pub hunt: Option<Hunt>,
    /// It is the agent's own, without children and of no use to another link.
    is_errand: bool,
    /// When an errand that nobody waits for is killed.
    pub ends_at: Option<Instant>,
}

impl Exec {
    /// Takes a new command into the loop.
    pub fn new(
        op: u64,
        serial: u64,
        spawned: Spawned,
        started: Instant,
        window: u32,
        poll: &Poll,
    ) -> rustix::io::Result<Self> {
        let source = |fd: OwnedFd, role, channel| {
            poll.add(&fd, Token { serial, role }, Interest::Read)?;
            Ok(Some(Source::new(Rc::new(fd), channel, window)))
        };
        let is_errand = spawned.stderr.is_none();
        let outs = [
            source(spawned.stdout, Role::Stdout, Channel::Stdout)?,
            match spawned.stderr {
                Some(stderr) => source(stderr, Role::Stderr, Channel::Stderr)?,
                None => None,
            },
        ];
        let stdin = match spawned.stdin {
            Some(fd) => {
                poll.add(&fd, Token { serial, role: Role::Stdin }, Interest::Write)?;
                Some(Sink::new(
                    Rc::new(fd),
                    Kind::Pipe,
                    if is_errand { errand::WINDOW } else { STDIN_WINDOW },
                ))
            }
            None => None,
        };
        let (pid, state) = (spawned.pid, State::Running);
        Ok(Self { op, serial, pid, started, state, stdin, outs, hunt: None, is_errand, ends_at: None })
    }

    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    pub fn is_errand(&self) -> bool {
        self.is_errand
    }

    /// Nobody waits for this errand any more: its pipes end, and so does it.
    pub fn abandon(&mut self, now: Instant) {
        if let Some(stdin) = &mut self.stdin {
            stdin.drop_reader();
        }
        self.outs = [None, None];
        if self.is_running() {
            self.ends_at.get_or_insert(now + errand::GRACE);
        }
    }

    /// The source of a channel, while it is open.
    pub fn source(&mut self, channel: Channel) -> Option<&mut Source> {
        self.outs[channel as usize].as_mut()
    }

    /// The stdin may take bytes again.
    pub fn stdin_stirred(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            stdin.stirred();
        }
    }

    /// Grants the host what the command has taken from its stdin.
    pub fn grant_stdin(&mut self, out: &mut OutBuf) {
        if let Some(bytes) = self.stdin.as_mut().and_then(Sink::due) {
            out.message(&ToHost::Credit { op: self.op, bytes });
        }
    }

    /// The first process was collected.
    pub fn ended(&mut self, exit: Exit, now: Instant) {
        let duration = now.duration_since(self.started).as_micros();
        self.ends_at = None;
        self.state = State::Ended { exit, duration_us: u64::try_from(duration).unwrap_or(u64::MAX) };
        if let Some(stdin) = &mut self.stdin {
            stdin.drop_reader();
        }
        self.outs.iter_mut().flatten().for_each(Source::bound);
    }

    /// From now on nothing of this command waits for grants.
    pub fn hurry(&mut self) {
        self.outs.iter_mut().flatten().for_each(Source::hurry);
    }

    /// The host wants no more output.
    pub fn discard(&mut self, drains: &mut Drains, poll: &Poll, serials: [u64; 2]) {
        for (source, serial) in self.outs.iter_mut().filter_map(Option::take).zip(serials) {
            drains.take(source.into_fd(), serial, poll);
        }
    }

    /// One turn of a channel. True if it wants another.
    pub fn turn(
        &mut self,
        channel: Channel,
        out: &mut OutBuf,
        drains: &mut Drains,
        poll: &Poll,
        serial: impl FnOnce() -> u64,
    ) -> bool {
        let slot = &mut self.outs[channel as usize];
        let Some(source) = slot else { return false };
        match source.turn(self.op, out) {
            Turn::Idle => return false,
            Turn::More => return true,
            Turn::Cut => {
                if let Some(source) = slot.take() {
                    drains.take(source.into_fd(), serial(), poll);
                }
            }
            // A pipe does not fail in ways that anybody could act on: it has ended.
            Turn::Eof | Turn::Failed(_) => {
                *slot = None;
                if self.state == State::Running {
                    out.message(&ToHost::Eof { op: self.op, channel });
                }
            }
        }
        false
    }

    /// Tells the host of the end, if all is ready for it. Returns the stream position at which it is told.
    pub fn tell(&mut self, out: &mut OutBuf) -> Option<u64> {
        let State::Ended { exit, duration_us } = self.state else { return None };
        if self.hunt.is_some() || self.outs.iter().any(Option::is_some) {
            return None;
        }
        self.state = State::Told { exit, duration_us };
        out.message(&ToHost::Exited { op: self.op, exit, duration_us });
        Some(out.end())
    }

    /// The link is gone, and with it every grant and what was not sent.
    pub fn link_lost(&mut self) {
        if let State::Told { exit, duration_us } = self.state {
            self.state = State::Ended { exit, duration_us };
        }
        for source in self.outs.iter_mut().flatten() {
            source.forget_credits();
            source.queued = false;
        }
        if let Some(stdin) = &mut self.stdin {
            stdin.regrant();
        }
        if self.is_errand {
            self.abandon(Instant::now());
        }
    }
}
