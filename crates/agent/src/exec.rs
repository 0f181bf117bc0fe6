//! A command from its start to the frame that tells its end. Its parts are driven by the loop and by `serve`.
//!
//! ```text
//! running ──(collected)──> ended ──(output delivered or dropped, hunt over)──> told ──(sent)──> gone
//! ```
//!
//! A lost link moves `told` back to `ended` and takes the command's credits; nothing else. A kept command waits for a link to
//! take it before it says anything, and stays `told` until the host says that it may go.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use guest_proto::{Channel, Exit, KEPT_WINDOW, ProtoError, ToHost};
use rustix::process::Pid;

use crate::errand;
use crate::kept::Kept;
use crate::link::OutBuf;
use crate::poll::{Interest, Poll, Role, Token};
use crate::spawn::{self, Spawned};
use crate::stdio::{Drains, Kind, Sink, Source, Turn};
use crate::tree::Hunt;

/// What the host may send to a command's stdin before it is read.
pub const STDIN_WINDOW: u32 = 64 * 1024;
/// How long after its end the last output of a terminal may come, where something it left in the background holds it open.
const LINGER: Duration = Duration::from_millis(200);

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
    kind: spawn::Kind,
    kept: Option<Keep>,
    /// When an errand that nobody waits for is killed, and when a terminal's last output has come.
    pub ends_at: Option<Instant>,
}

/// What a command has that outlives its link.
#[derive(Default)]
struct Keep {
    outs: [Kept; 2],
    is_taken: bool,
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
        let kind = spawned.kind;
        let stdout = match kind {
            spawn::Kind::Terminal => {
                poll.add(&spawned.stdout, Token { serial, role: Role::Stdout }, Interest::Read)?;
                Some(Source::of_terminal(Rc::new(spawned.stdout), window))
            }
            _ => source(spawned.stdout, Role::Stdout, Channel::Stdout)?,
        };
        let outs = [
            stdout,
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
                    if kind == spawn::Kind::Errand { errand::WINDOW } else { STDIN_WINDOW },
                ))
            }
            None => None,
        };
        let (pid, state) = (spawned.pid, State::Running);
        Ok(Self { op, serial, pid, started, state, stdin, outs, hunt: None, kind, kept: None, ends_at: None })
    }

    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    pub fn is_errand(&self) -> bool {
        self.kind == spawn::Kind::Errand
    }

    /// From now on it outlives its link, on which it is.
    pub fn keep(&mut self) {
        self.kept = Some(Keep { is_taken: true, ..Keep::default() });
    }

    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// The terminal it runs on, while that is open.
    pub fn terminal(&self) -> Option<&OwnedFd> {
        self.outs[0].as_ref().filter(|source| source.is_terminal()).map(Source::fd)
    }

    /// A new link takes a kept command, and has so much of each channel. False if that place is not here.
    pub fn take(&mut self, positions: [u64; 2], out: &mut OutBuf) -> bool {
        let Some(keep) = &mut self.kept else { return false };
        if !keep.outs.iter_mut().zip(positions).all(|(kept, position)| kept.goes_on_at(position)) {
            return false;
        }
        keep.is_taken = true;
        let stdin = self.stdin.as_ref().map_or(0, Sink::received);
        let window = self.stdin.as_mut().and_then(Sink::due).unwrap_or(0);
        out.message(&ToHost::Taken { op: self.op, stdin, window });
        for (channel, kept) in [Channel::Stdout, Channel::Stderr].into_iter().zip(&keep.outs) {
            kept.pieces().into_iter().for_each(|piece| out.data_of(self.op, channel, piece));
            if let Some(source) = &mut self.outs[channel as usize] {
                source.regrant(KEPT_WINDOW.saturating_sub(kept.len() as u32));
            }
        }
        true
    }

    /// The host grants more of a channel, and of a kept command has so much more.
    pub fn credit(&mut self, channel: Channel, bytes: u32) -> Result<(), ProtoError> {
        if let Some(keep) = &mut self.kept {
            keep.outs[channel as usize].acknowledged(bytes)?;
        }
        match self.source(channel) {
            Some(source) => source.grant(bytes),
            None => Ok(()),
        }
    }

    /// Nobody wants to hear of it any more. True if it is over.
    pub fn forget(&mut self) -> bool {
        self.kept.take().is_some() && matches!(self.state, State::Told { .. })
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

    /// Grants the host what the command has taken from its stdin. Its end is the last that is said of a command.
    pub fn grant_stdin(&mut self, out: &mut OutBuf) {
        if matches!(self.state, State::Told { .. }) {
            return;
        }
        if let Some(bytes) = self.stdin.as_mut().and_then(Sink::due) {
            out.message(&ToHost::Credit { op: self.op, bytes });
        }
    }

    /// The first process was collected.
    pub fn ended(&mut self, exit: Exit, now: Instant) {
        let duration = now.duration_since(self.started).as_micros();
        self.ends_at = self.terminal().map(|_| now + LINGER);
        self.state = State::Ended { exit, duration_us: u64::try_from(duration).unwrap_or(u64::MAX) };
        if let Some(stdin) = &mut self.stdin {
            stdin.drop_reader();
        }
        // A terminal's output comes to its end by itself, or when it has lingered.
        self.outs.iter_mut().flatten().filter(|source| !source.is_terminal()).for_each(Source::bound);
        self.outs.iter_mut().flatten().for_each(|source| source.stirred(false));
    }

    /// The time is over that [`Exec::ends_at`] sets. True if it is an errand's.
    pub fn time_is_over(&mut self) -> bool {
        self.ends_at = None;
        self.outs.iter_mut().flatten().for_each(Source::bound);
        self.is_errand()
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
        let kept = self.kept.as_mut().map(|keep| &mut keep.outs[channel as usize]);
        match source.turn(self.op, out, kept) {
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
        if self.hunt.is_some()
            || self.outs.iter().any(Option::is_some)
            || self.kept.as_ref().is_some_and(|keep| !keep.is_taken)
        {
            return None;
        }
        self.ends_at = None;
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
        if let Some(keep) = &mut self.kept {
            keep.is_taken = false;
        }
        if self.is_errand() {
            self.abandon(Instant::now());
        }
    }
}
