//! One operation as the host keeps it: what came in and waits for its reader, what may go out, and how it ended.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use guest_proto::{Channel, Credits, Exit, ProtoError, RefusalKind, Window};
use tokio::sync::Notify;

use super::LinkError;

/// Pieces up to this size are joined, so that a command that writes byte by byte costs bytes and not allocations.
const JOIN_BELOW: usize = 64 * 1024;
/// So many pieces wait at most; past that order between the two channels gives way to boundedness.
const MAX_PIECES: usize = 256;

/// The agent's first answer to an operation.
#[derive(Debug, Clone)]
pub enum Answer {
    Started,
    Opened,
    Done,
    Taken { stdin: u64 },
    Refused { kind: RefusalKind, message: String },
}

impl Answer {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Opened => "opened",
            Self::Done => "done",
            Self::Taken { .. } => "taken",
            Self::Refused { .. } => "refused",
        }
    }
}

/// What a reader finds next.
#[derive(Debug)]
pub enum Incoming {
    Bytes(Channel, Bytes),
    Eof,
    Exited(Exit, u64),
    Refused(RefusalKind, String),
    Lost,
}

pub struct Op {
    state: Mutex<State>,
    /// Something for the reader, or the first answer.
    readable: Notify,
    /// Credit for the writer.
    writable: Notify,
}

struct State {
    answer: Option<Answer>,
    pieces: VecDeque<(Channel, BytesMut)>,
    windows: [Window; 2],
    credits: Credits,
    eof: bool,
    exit: Option<(Exit, u64)>,
    /// A refusal after the first answer: the connection broke.
    broken: Option<(RefusalKind, String)>,
    lost: bool,
    held: Option<Held>,
}

/// Something that an operation gives back when it ends, read to its end or not.
pub type Held = Box<dyn std::any::Any + Send>;

impl Op {
    pub fn new(window: u32) -> Self {
        Self {
            state: Mutex::new(State {
                answer: None,
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

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves fields that are each whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn answer(&self, answer: Answer, credit: u32) -> Result<(), ProtoError> {
        {
            let mut state = self.state();
            match (&state.answer, answer) {
                (None, answer) => state.answer = Some(answer),
                (Some(_), Answer::Refused { kind, message }) => state.broken = Some((kind, message)),
                // A second answer of another kind has no meaning and no effect.
                (Some(_), _) => return Ok(()),
            }
            if credit > 0 {
                state.credits.grant(credit)?;
            }
        }
        self.wake();
        Ok(())
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

    /// The end of a connection's bytes. A command's channels end too, but what its reader waits for is its exit.
    pub fn eof(&self) {
        let mut state = self.state();
        state.eof = matches!(state.answer, Some(Answer::Opened));
        drop(state);
        self.readable.notify_one();
    }

    pub fn exited(&self, exit: Exit, duration_us: u64) {
        self.state().exit = Some((exit, duration_us));
        self.let_go();
        self.wake();
    }

    pub fn lose(&self) {
        self.state().lost = true;
        self.let_go();
        self.wake();
    }

    /// Keeps something until the operation ends.
    pub fn hold(&self, held: Held) {
        self.state().held = Some(held);
        if self.has_ended() {
            self.let_go();
        }
    }

    /// Gives back what is held.
    pub fn let_go(&self) {
        let held = self.state().held.take();
        // Outside the lock: whose it is may come back to us.
        drop(held);
    }

    fn wake(&self) {
        self.readable.notify_one();
        self.writable.notify_one();
    }

    /// Waits for the agent's first answer.
    pub async fn answered(&self) -> Result<Answer, LinkError> {
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

    /// Waits for what comes next, with the credit that is now due to the agent. Loses nothing when its future is dropped.
    pub async fn next(&self) -> (Incoming, Option<(Channel, u32)>) {
        loop {
            if let Some(found) = self.state().take() {
                return found;
            }
            self.readable.notified().await;
        }
    }

    /// What has come already, as [`Op::next`].
    pub fn try_next(&self) -> Option<(Incoming, Option<(Channel, u32)>)> {
        self.state().take()
    }

    /// Waits until something may be sent and takes the right to send up to `want` bytes. `None` when nobody listens any more.
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

    pub fn has_ended(&self) -> bool {
        let state = self.state();
        state.exit.is_some() || state.lost
    }
}

impl State {
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
