//! A command that runs inside, as its caller holds it. Dropped before its end, it kills the command's whole tree.

use std::sync::Arc;

use bytes::Bytes;
use guest_proto::{Channel, Exit, ToGuest};

use super::op::{Incoming, Op};
use super::{Agent, LinkError};

/// What happens to a command.
#[derive(Debug)]
pub enum CommandEvent {
    Output(Channel, Bytes),
    Exited {
        exit: Exit,
        duration_us: u64,
    },
    /// The link ended first; nothing more will be known.
    Lost,
}

pub struct Command {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
    stdin: Option<Stdin>,
}

/// Where a command's standard input goes in. Dropped, it is at its end.
pub struct Stdin {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
}

impl Command {
    pub(super) fn new(agent: Agent, number: u64, op: Arc<Op>, wants_stdin: bool) -> Self {
        let stdin = wants_stdin.then(|| Stdin { agent: agent.clone(), number, op: Arc::clone(&op) });
        Self { agent, number, op, stdin }
    }

    /// Its standard input, if it was asked for; once.
    pub fn take_stdin(&mut self) -> Option<Stdin> {
        self.stdin.take()
    }

    /// What happens next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> CommandEvent {
        let (incoming, due) = self.op.next().await;
        if let Some((channel, bytes)) = due {
            // A lost link is what the next look finds.
            let _ = self.agent.inner.send(&ToGuest::Credit { op: self.number, channel, bytes });
        }
        match incoming {
            Incoming::Bytes(channel, bytes) => CommandEvent::Output(channel, bytes),
            Incoming::Exited(exit, duration_us) => CommandEvent::Exited { exit, duration_us },
            // The last two do not belong to a command; an agent that says so has lost its mind, and with it the command.
            Incoming::Lost | Incoming::Eof | Incoming::Refused(..) => CommandEvent::Lost,
        }
    }

    /// Keeps something until the command has ended, whether its output is read by then or not, or until this is dropped.
    pub fn hold(&self, held: impl std::any::Any + Send) {
        self.op.hold(Box::new(held));
    }

    /// For somebody else to end it with. Its end still comes as an event here.
    pub fn killer(&self) -> Killer {
        Killer { agent: self.agent.clone(), number: self.number }
    }

    /// For a command that never started: there is nothing to kill.
    pub(super) fn forget(self) {
        self.agent.inner.forget(self.number);
        self.op.lose();
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if !self.op.has_ended() {
            self.killer().kill();
            // What it still prints is thrown away inside, and what crosses with this has no place here any more.
            let _ = self.agent.inner.send(&ToGuest::Close { op: self.number });
            self.agent.inner.forget(self.number);
        }
        self.op.let_go();
    }
}

/// Ends a command.
pub struct Killer {
    agent: Agent,
    number: u64,
}

impl Killer {
    pub(super) fn new(agent: Agent, number: u64) -> Self {
        Self { agent, number }
    }

    /// Has the command's whole tree killed.
    pub fn kill(&self) {
        // A lost link is what the command's reader finds.
        let _ = self.agent.inner.send(&ToGuest::Kill { op: self.number });
    }
}

impl Stdin {
    /// Feeds bytes as fast as the command takes them. An error when it takes no more.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.feed(self.number, &self.op, bytes).await
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        // Where the command is gone there is nobody to tell.
        let _ = self.agent.inner.send(&ToGuest::Eof { op: self.number });
    }
}
