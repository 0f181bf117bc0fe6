//! The caller's handle to a running command. Dropping it before the command ends kills the command's process tree.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use guest_proto::{Channel, Exit, ToGuest};

use super::op::{FirstReply, Incoming, Op};
use super::{Agent, LinkError};

/// An event of a running command.
#[derive(Debug)]
pub enum CommandEvent {
    Output(Channel, Bytes),
    Exited {
        exit: Exit,
        duration_us: u64,
    },
    /// The link ended before the command; the outcome is unknown.
    Lost,
}

pub struct Command {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
    stdin: Option<Stdin>,
}

/// The write end of a command's standard input. Dropping it closes the input.
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

    /// Takes the standard input, if the command was started with one. `None` from the second call on.
    pub fn take_stdin(&mut self) -> Option<Stdin> {
        self.stdin.take()
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> CommandEvent {
        let (incoming, due) = self.op.next().await;
        if let Some((channel, bytes)) = due {
            // If the link is lost, the next call returns `Lost`.
            let _ = self.agent.inner.send(&ToGuest::Credit { op: self.number, channel, bytes });
        }
        match incoming {
            Incoming::Bytes(channel, bytes) => CommandEvent::Output(channel, bytes),
            Incoming::Exited(exit, duration_us) => CommandEvent::Exited { exit, duration_us },
            // `Eof` and `Refused` do not apply to a command: an agent that sends them is broken.
            Incoming::Lost | Incoming::Eof | Incoming::Refused(..) => CommandEvent::Lost,
        }
    }

    /// Drops `held` when the command has ended, whether or not its output has been read, or when this handle is dropped.
    pub fn release_at_end(&self, held: impl std::any::Any + Send) {
        self.op.release_at_end(Box::new(held));
    }

    /// A handle that kills the command. The end still arrives as an event here.
    pub fn killer(&self) -> Killer {
        Killer { agent: self.agent.clone(), number: self.number }
    }

    /// The command, if the agent's first reply says that it has started. One that was refused is dropped without killing anything.
    pub(super) fn started(self, answer: FirstReply) -> Result<Self, LinkError> {
        match answer {
            FirstReply::Started => Ok(self),
            FirstReply::Refused { kind, message } => {
                self.agent.inner.forget(self.number);
                self.op.lose();
                Err(LinkError::Refused { kind, message })
            }
            other => Err(LinkError::Unexpected { wanted: "started", got: other.name() }),
        }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if !self.op.has_ended() {
            self.killer().kill();
            // The agent discards further output. Frames already under way find no operation and are ignored.
            let _ = self.agent.inner.send(&ToGuest::Close { op: self.number });
            self.agent.inner.forget(self.number);
        }
        self.op.release_guard();
    }
}

/// Kills a command.
pub struct Killer {
    agent: Agent,
    number: u64,
}

impl Killer {
    pub(super) fn new(agent: Agent, number: u64) -> Self {
        Self { agent, number }
    }

    /// Kills the command's process tree.
    pub fn kill(&self) {
        // If the link is lost, the command's reader gets `Lost`.
        let _ = self.agent.inner.send(&ToGuest::Kill { op: self.number });
    }
}

impl Stdin {
    /// Writes bytes as fast as the command reads them. Fails when the command accepts no more input.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.send_data(self.number, &self.op, bytes).await
    }

    /// Writes a part of an upload, in the pieces of the protocol of files.
    pub async fn write_pieces(&mut self, parts: VecDeque<Bytes>) -> Result<(), LinkError> {
        self.agent.inner.send_pieces(self.number, &self.op, parts).await
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        // Fails only if the link is lost.
        let _ = self.agent.inner.send(&ToGuest::Eof { op: self.number });
    }
}
