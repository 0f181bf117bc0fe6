//! A command from its start to the frame that reports its end. The event loop and `serve` drive it.
//!
//! ```text
//! running ──(collected)──> ended ──(output delivered or dropped, tree kill over)──> reported ──(sent)──> gone
//! ```
//!
//! A lost link moves `reported` back to `ended` and voids the command's credits. A detached command reports nothing until a link
//! attaches to it, and stays `reported` until the host releases it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use guest_proto::{Channel, DETACHED_WINDOW, Exit, ProtoError, ToHost};
use rustix::process::Pid;

use crate::file_op;
use crate::link::OutBuf;
use crate::poll::{Interest, Poll, PollToken, Role};
use crate::spawn::{self, Spawned};
use crate::stdio::{Drains, OutputSource, ReadProgress, ReplayBuffer, Sink, SinkKind};
use crate::tree::TreeKill;

/// Bytes that the host may send to a command's stdin before the command reads them.
pub const STDIN_WINDOW: u32 = 64 * 1024;
/// How long to wait for the last output of a terminal that a background process holds open after the command's end.
const LINGER: Duration = Duration::from_millis(200);

/// The state of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandState {
    Running,
    Ended { exit: Exit, duration_us: u64 },
    Reported { exit: Exit, duration_us: u64 },
}

/// A command.
pub struct Exec {
    pub op: u64,
    pub serial: u64,
    pub pid: Pid,
    started: Instant,
    state: CommandState,
    pub stdin: Option<Sink>,
    outs: [Option<OutputSource>; 2],
    /// Set from `Kill` until no process of the command is alive.
    pub tree_kill: Option<TreeKill>,
    kind: spawn::ProgramKind,
    detached: Option<Detached>,
    /// When an abandoned file operation is killed, and when the agent stops reading a terminal whose command has
    /// ended.
    pub deadline: Option<Instant>,
}

/// State of a detached command.
#[derive(Default)]
struct Detached {
    outs: [ReplayBuffer; 2],
    is_attached: bool,
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
            poll.add(&fd, PollToken { serial, role }, Interest::Read)?;
            Ok(Some(OutputSource::new(Rc::new(fd), channel, window)))
        };
        let kind = spawned.kind;
        let stdout = match kind {
            spawn::ProgramKind::Terminal => {
                poll.add(&spawned.stdout, PollToken { serial, role: Role::Stdout }, Interest::Read)?;
                Some(OutputSource::of_terminal(Rc::new(spawned.stdout), window))
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
                poll.add(&fd, PollToken { serial, role: Role::Stdin }, Interest::Write)?;
                Some(Sink::new(
                    Rc::new(fd),
                    SinkKind::Pipe,
                    match kind {
                        spawn::ProgramKind::FileOp | spawn::ProgramKind::Watch => file_op::WINDOW,
                        spawn::ProgramKind::Command | spawn::ProgramKind::Terminal => STDIN_WINDOW,
                    },
                ))
            }
            None => None,
        };
        let (pid, state) = (spawned.pid, CommandState::Running);
        Ok(Self {
            op,
            serial,
            pid,
            started,
            state,
            stdin,
            outs,
            tree_kill: None,
            kind,
            detached: None,
            deadline: None,
        })
    }

    /// Whether its first process has not been collected yet.
    pub fn is_running(&self) -> bool {
        self.state == CommandState::Running
    }

    /// Whether it is a file operation or a watch.
    pub fn is_file_op(&self) -> bool {
        matches!(self.kind, spawn::ProgramKind::FileOp | spawn::ProgramKind::Watch)
    }

    /// Whether it is a watch, which has no end of its own.
    pub fn is_watch(&self) -> bool {
        self.kind == spawn::ProgramKind::Watch
    }

    /// Detaches the command from its link, which stays attached to it.
    pub fn detach(&mut self) {
        self.detached = Some(Detached { is_attached: true, ..Detached::default() });
    }

    /// Whether it outlives its link.
    pub fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    /// The terminal it runs on, while that is open.
    pub fn terminal(&self) -> Option<&OwnedFd> {
        self.outs[0].as_ref().filter(|source| source.is_terminal()).map(OutputSource::fd)
    }

    /// Attaches a new link, which has received this much of each channel. False if the buffer does not reach back that far.
    pub fn attach(&mut self, positions: [u64; 2], tells_pid: bool, out: &mut OutBuf) -> bool {
        let Some(detached) = &mut self.detached else { return false };
        if !detached.outs.iter_mut().zip(positions).all(|(buffer, position)| buffer.resume_at(position)) {
            return false;
        }
        detached.is_attached = true;
        if tells_pid {
            let pid = self.pid.as_raw_nonzero().get().unsigned_abs();
            out.message(&ToHost::Running { op: self.op, pid });
        }
        let stdin = self.stdin.as_ref().map_or(0, Sink::received);
        let window = self.stdin.as_mut().and_then(Sink::due).unwrap_or(0);
        out.message(&ToHost::Attached { op: self.op, stdin, window });
        for (channel, buffer) in [Channel::Stdout, Channel::Stderr].into_iter().zip(&detached.outs) {
            buffer.pieces().into_iter().for_each(|piece| out.data_of(self.op, channel, piece));
            if let Some(source) = &mut self.outs[channel as usize] {
                source.regrant(DETACHED_WINDOW.saturating_sub(buffer.len() as u32));
            }
        }
        true
    }

    /// Adds a grant to a channel. For a detached command it also acknowledges as many bytes.
    pub fn credit(&mut self, channel: Channel, bytes: u32) -> Result<(), ProtoError> {
        if let Some(detached) = &mut self.detached {
            detached.outs[channel as usize].acknowledged(bytes)?;
        }
        match self.source(channel) {
            Some(source) => source.grant(bytes),
            None => Ok(()),
        }
    }

    /// Releases a detached command. True if it has ended.
    pub fn release(&mut self) -> bool {
        self.detached.take().is_some() && matches!(self.state, CommandState::Reported { .. })
    }

    /// Abandons a file operation: closes its pipes, which ends it.
    pub fn abandon(&mut self, now: Instant) {
        if let Some(stdin) = &mut self.stdin {
            stdin.drop_reader();
        }
        self.outs = [None, None];
        if self.is_running() {
            self.deadline.get_or_insert(now + file_op::GRACE);
        }
    }

    /// The source of a channel, while it is open.
    pub fn source(&mut self, channel: Channel) -> Option<&mut OutputSource> {
        self.outs[channel as usize].as_mut()
    }

    /// The stdin may take bytes again.
    pub fn on_stdin_event(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            stdin.on_event();
        }
    }

    /// Grants the host what the command has read from its stdin. No grant may follow the report of the end.
    pub fn grant_stdin(&mut self, out: &mut OutBuf) {
        if matches!(self.state, CommandState::Reported { .. }) {
            return;
        }
        if let Some(bytes) = self.stdin.as_mut().and_then(Sink::due) {
            out.message(&ToHost::Credit { op: self.op, bytes });
        }
    }

    /// The first process was collected.
    pub fn ended(&mut self, exit: Exit, now: Instant) {
        let duration = now.duration_since(self.started).as_micros();
        self.deadline = self.terminal().map(|_| now + LINGER);
        self.state = CommandState::Ended { exit, duration_us: u64::try_from(duration).unwrap_or(u64::MAX) };
        if let Some(stdin) = &mut self.stdin {
            stdin.drop_reader();
        }
        // A terminal's output ends by itself or after the waiting time.
        self.outs
            .iter_mut()
            .flatten()
            .filter(|source| !source.is_terminal())
            .for_each(OutputSource::limit_to_buffered);
        self.outs.iter_mut().flatten().for_each(OutputSource::try_again);
    }

    /// Handles the expiry of [`Exec::deadline`]. True for a file operation, which has to be killed.
    pub fn on_deadline(&mut self) -> bool {
        self.deadline = None;
        self.outs.iter_mut().flatten().for_each(OutputSource::limit_to_buffered);
        self.is_file_op()
    }

    /// Stops waiting for grants: output without credit is dropped.
    pub fn drop_uncredited(&mut self) {
        self.outs.iter_mut().flatten().for_each(OutputSource::drop_uncredited);
    }

    /// Drops further output, which the host does not read.
    pub fn discard(&mut self, drains: &mut Drains, poll: &Poll, serials: [u64; 2]) {
        for (source, serial) in self.outs.iter_mut().filter_map(Option::take).zip(serials) {
            drains.take(source.into_fd(), serial, poll);
        }
    }

    /// Reads a channel once. True if there may be more.
    pub fn step(
        &mut self,
        channel: Channel,
        out: &mut OutBuf,
        drains: &mut Drains,
        poll: &Poll,
        serial: impl FnOnce() -> u64,
    ) -> bool {
        let slot = &mut self.outs[channel as usize];
        let Some(source) = slot else { return false };
        let replay = self.detached.as_mut().map(|detached| &mut detached.outs[channel as usize]);
        match source.step(self.op, out, replay) {
            ReadProgress::Idle => return false,
            ReadProgress::More => return true,
            ReadProgress::Cut => {
                if let Some(source) = slot.take() {
                    drains.take(source.into_fd(), serial(), poll);
                }
            }
            // No failure of a pipe can be repaired: treat it as its end.
            ReadProgress::Eof | ReadProgress::Failed(_) => {
                *slot = None;
                if self.state == CommandState::Running {
                    out.message(&ToHost::Eof { op: self.op, channel });
                }
            }
        }
        false
    }

    /// Reports the end to the host if nothing is pending. Returns the stream position of the report.
    pub fn report_end(&mut self, out: &mut OutBuf) -> Option<u64> {
        let CommandState::Ended { exit, duration_us } = self.state else { return None };
        if self.tree_kill.is_some()
            || self.outs.iter().any(Option::is_some)
            || self.detached.as_ref().is_some_and(|detached| !detached.is_attached)
        {
            return None;
        }
        self.deadline = None;
        self.state = CommandState::Reported { exit, duration_us };
        out.message(&ToHost::Exited { op: self.op, exit, duration_us });
        Some(out.end())
    }

    /// The link is lost: voids all grants and drops what was not sent.
    pub fn link_lost(&mut self) {
        if let CommandState::Reported { exit, duration_us } = self.state {
            self.state = CommandState::Ended { exit, duration_us };
        }
        for source in self.outs.iter_mut().flatten() {
            source.void_credits();
            source.queued = false;
        }
        if let Some(stdin) = &mut self.stdin {
            stdin.regrant();
        }
        if let Some(detached) = &mut self.detached {
            detached.is_attached = false;
        }
        if self.is_file_op() {
            self.abandon(Instant::now());
        }
    }
}
