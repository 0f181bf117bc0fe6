//! The host's state of one operation: received data that waits for its reader, credit for sending, and the outcome.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use base::IgnorePoison;
use bytes::{Bytes, BytesMut};
use guest_proto::{Channel, Credits, Exit, ProtoError, RefusalKind, Window};
use tokio::sync::Notify;

use super::LinkError;

/// Pieces are joined up to this size, so that a command that writes single bytes does not cost an allocation for each.
const JOIN_BELOW: usize = 64 * 1024;
/// The maximum number of waiting pieces. Beyond it pieces of one channel are joined out of order with the other channel.
const MAX_PIECES: usize = 256;

/// The agent's first reply to an operation.
#[derive(Debug, Clone)]
pub enum FirstReply {
    Started,
    Opened,
    Done,
    Attached { stdin: u64 },
    Refused { kind: RefusalKind, message: String },
}

impl FirstReply {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Opened => "opened",
            Self::Done => "done",
            Self::Attached { .. } => "attached",
            Self::Refused { .. } => "refused",
        }
    }
}

/// The next item for the reader.
#[derive(Debug)]
pub enum Incoming {
    Bytes(Channel, Bytes),
    Eof,
    Exited(Exit, u64),
    Refused(RefusalKind, String),
    Lost,
}

pub struct Op {
    state: Mutex<OpState>,
    /// Notified when the reader has an item, or when the first reply arrived.
    readable: Notify,
    /// Notified when credit arrived.
    writable: Notify,
}

struct OpState {
    answer: Option<FirstReply>,
    /// As the agent reported it.
    pid: Option<u32>,
    pieces: VecDeque<(Channel, BytesMut)>,
    windows: [Window; 2],
    credits: Credits,
    eof: bool,
    exit: Option<(Exit, u64)>,
    /// A refusal after the first reply: the connection broke.
    broken: Option<(RefusalKind, String)>,
    lost: bool,
    held: Option<EndGuard>,
}

/// A value that is dropped when the operation ends, whether or not its output has been read.
pub type EndGuard = Box<dyn std::any::Any + Send>;

impl Op {
    pub fn new(window: u32) -> Self {
        Self {
            state: Mutex::new(OpState {
                answer: None,
                pid: None,
                pieces: VecDeque::new(),
                windows: [Window::new(window), Window::new(window)],
                credits: Credits::default(),
                eof: false,
                exit: None,
                broken: None,
                lost: false,
                held: None,
            }),
            readable: Notify::new(),
            writable: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, OpState> {
        // A panic while the lock is held leaves valid fields.
        self.state.lock().ignore_poison()
    }

    pub fn answer(&self, answer: FirstReply, credit: u32) -> Result<(), ProtoError> {
        {
            let mut state = self.state();
            match (&state.answer, answer) {
                (None, answer) => state.answer = Some(answer),
                (Some(_), FirstReply::Refused { kind, message }) => state.broken = Some((kind, message)),
                // A second reply is ignored.
                (Some(_), _) => return Ok(()),
            }
            if credit > 0 {
                state.credits.grant(credit)?;
            }
        }
        self.wake();
        Ok(())
    }

    /// The first process of the command, as the sandbox sees it.
    pub fn set_pid(&self, pid: u32) {
        self.state().pid = Some(pid).filter(|pid| *pid > 0);
    }

    pub fn pid(&self) -> Option<u32> {
        self.state().pid
    }

    pub fn data(&self, channel: Channel, bytes: &[u8]) -> Result<(), ProtoError> {
        {
            let mut state = self.state();
            state.windows[index(channel)].received(bytes.len())?;
            state.keep(channel, bytes);
        }
        self.readable.notify_one();
        Ok(())
    }

    pub fn credit(&self, bytes: u32) -> Result<(), ProtoError> {
        self.state().credits.grant(bytes)?;
        self.writable.notify_one();
        Ok(())
    }

    /// The end of a tunnel's bytes. Ignored for commands, whose reader waits for the exit.
    pub fn eof(&self) {
        let mut state = self.state();
        state.eof = matches!(state.answer, Some(FirstReply::Opened));
        drop(state);
        self.readable.notify_one();
    }

    pub fn exited(&self, exit: Exit, duration_us: u64) {
        self.state().exit = Some((exit, duration_us));
        self.release_guard();
        self.wake();
    }

    pub fn lose(&self) {
        self.state().lost = true;
        self.release_guard();
        self.wake();
    }

    /// Stores a value until the operation ends.
    pub fn release_at_end(&self, held: EndGuard) {
        self.state().held = Some(held);
        if self.has_ended() {
            self.release_guard();
        }
    }

    /// Drops the stored value.
    pub fn release_guard(&self) {
        let held = self.state().held.take();
        // Dropped outside the lock, because its destructor may use this operation.
        drop(held);
    }

    fn wake(&self) {
        self.readable.notify_one();
        self.writable.notify_one();
    }

    /// Waits for the agent's first reply.
    pub async fn answered(&self) -> Result<FirstReply, LinkError> {
        loop {
            {
                let state = self.state();
                if let Some(answer) = &state.answer {
                    return Ok(answer.clone());
                }
                if state.lost {
                    return Err(LinkError::Closed);
                }
            }
            self.readable.notified().await;
        }
    }

    /// Waits for the next item. Returns it with the credit that is now due to the agent. Cancel safe.
    pub async fn next(&self) -> (Incoming, Option<(Channel, u32)>) {
        loop {
            if let Some(found) = self.state().take() {
                return found;
            }
            self.readable.notified().await;
        }
    }

    /// As [`Op::next`], without waiting.
    pub fn try_next(&self) -> Option<(Incoming, Option<(Channel, u32)>)> {
        self.state().take()
    }

    /// Waits for credit and takes up to `want` bytes of it. `None` if the operation has ended.
    pub async fn reserve(&self, want: usize) -> Option<usize> {
        loop {
            {
                let mut state = self.state();
                if state.lost || state.exit.is_some() || state.broken.is_some() {
                    return None;
                }
                let grant = state.credits.left().min(want);
                if grant > 0 {
                    state.credits.spend(grant);
                    return Some(grant);
                }
            }
            self.writable.notified().await;
        }
    }

    /// Waits for the end of the operation, whether or not its output has been read. For its reader, in place of [`Op::next`]. Cancel
    /// safe.
    pub async fn ended(&self) {
        while !self.has_ended() {
            self.readable.notified().await;
        }
    }

    pub fn has_ended(&self) -> bool {
        let state = self.state();
        state.exit.is_some() || state.lost
    }
}

impl OpState {
    fn keep(&mut self, channel: Channel, bytes: &[u8]) {
        let crowded = self.pieces.len() >= MAX_PIECES;
        let joinable = if crowded {
            self.pieces.iter_mut().rev().find(|(other, _)| *other == channel)
        } else {
            self.pieces
                .back_mut()
                .filter(|(other, piece)| *other == channel && piece.len() + bytes.len() <= JOIN_BELOW)
        };
        match joinable {
            Some((_, piece)) => piece.extend_from_slice(bytes),
            None => self.pieces.push_back((channel, BytesMut::from(bytes))),
        }
    }

    fn take(&mut self) -> Option<(Incoming, Option<(Channel, u32)>)> {
        if let Some((channel, piece)) = self.pieces.pop_front() {
            let window = &mut self.windows[index(channel)];
            window.consumed(piece.len());
            let due = window.due().map(|bytes| (channel, bytes));
            return Some((Incoming::Bytes(channel, piece.freeze()), due));
        }
        if let Some((exit, duration_us)) = self.exit {
            return Some((Incoming::Exited(exit, duration_us), None));
        }
        if let Some((kind, message)) = self.broken.clone() {
            return Some((Incoming::Refused(kind, message), None));
        }
        if self.lost {
            return Some((Incoming::Lost, None));
        }
        self.eof.then_some((Incoming::Eof, None))
    }
}

fn index(channel: Channel) -> usize {
    match channel {
        Channel::Stdout => 0,
        Channel::Stderr => 1,
    }
}
