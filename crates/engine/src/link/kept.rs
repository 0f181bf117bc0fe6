//! A command that outlives its link, as the host has it while this link lasts. Dropped, it runs on.
//!
//! What comes is acknowledged when its reader says that it is written down, and not before: until then the agent keeps it for the
//! next link.

use std::sync::Arc;
use std::time::Duration;

use guest_proto::{
    Channel, ExecSpec, KEPT_SINCE, KEPT_WINDOW, RefusalKind, StdinMode, TerminalSize, ToGuest,
};
use rules::OutputPosition;

use super::command::{CommandEvent, Killer};
use super::op::{Answer, Incoming, Op};
use super::{Agent, LinkError};
use crate::patience::Patience;

pub struct Kept {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
    /// Credit for what was handed out and is not yet written down.
    due: [u32; 2],
}

/// What a kept command is told, over the link it is on. Clones are the same.
#[derive(Clone)]
pub struct KeptInput {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
}

impl Agent {
    /// A number for a command that is to be kept.
    pub fn number(&self) -> u64 {
        self.inner.next_number()
    }

    /// Starts a command that outlives this link.
    pub async fn keep(
        &self,
        number: u64,
        spec: ExecSpec<'_>,
        terminal: Option<TerminalSize>,
        patience: &mut Patience,
    ) -> Result<Kept, LinkError> {
        debug_assert!(terminal.is_none() || spec.stdin == StdinMode::Pipe, "a terminal takes input");
        let kept = self.kept(number)?;
        self.inner.send(&ToGuest::Keep { op: number, spec, terminal })?;
        match patience.wait(kept.op.answered()).await.map_err(LinkError::Silent)?? {
            Answer::Started => Ok(kept),
            Answer::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "started", got: other.name() }),
        }
    }

    /// Goes on with one that an earlier link began, behind what is written down of it. `None`: there is no such command. With it
    /// comes how many bytes of its stdin it ever got.
    pub async fn take(
        &self,
        number: u64,
        from: OutputPosition,
        patience: Duration,
    ) -> Result<Option<(Kept, u64)>, LinkError> {
        let kept = self.kept(number)?;
        self.inner.send(&ToGuest::Take { op: number, stdout: from.stdout, stderr: from.stderr })?;
        let answer = tokio::time::timeout(patience, kept.op.answered()).await;
        match answer.map_err(|_| LinkError::Silent(patience))?? {
            Answer::Taken { stdin } => Ok(Some((kept, stdin))),
            Answer::Refused { kind: RefusalKind::UnknownOp, .. } => Ok(None),
            Answer::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "taken", got: other.name() }),
        }
    }

    /// Kills a kept command of which nothing is to be heard any more, whether the agent has it or not.
    pub fn give_up(&self, number: u64) {
        // Over a lost link it is said by the next, to which it is unknown.
        let _ = self.inner.send(&ToGuest::Kill { op: number });
        if self.inner.version >= KEPT_SINCE {
            let _ = self.inner.send(&ToGuest::Forget { op: number });
        }
    }

    /// Ends the link.
    pub fn hang_up(&self) {
        self.inner.end();
    }

    fn kept(&self, number: u64) -> Result<Kept, LinkError> {
        if self.inner.version < KEPT_SINCE {
            return Err(LinkError::TooOld);
        }
        let op = self.inner.begin_as(number, KEPT_WINDOW);
        Ok(Kept { agent: self.clone(), number, op, due: [0; 2] })
    }
}

impl Kept {
    /// What happens next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> CommandEvent {
        let (incoming, due) = self.op.next().await;
        self.note(incoming, due)
    }

    /// What has happened already.
    pub fn try_next(&mut self) -> Option<CommandEvent> {
        let (incoming, due) = self.op.try_next()?;
        Some(self.note(incoming, due))
    }

    fn note(&mut self, incoming: Incoming, due: Option<(Channel, u32)>) -> CommandEvent {
        if let Some((channel, bytes)) = due {
            self.due[channel as usize] += bytes;
        }
        match incoming {
            Incoming::Bytes(channel, bytes) => CommandEvent::Output(channel, bytes),
            Incoming::Exited(exit, duration_us) => CommandEvent::Exited { exit, duration_us },
            Incoming::Lost | Incoming::Eof | Incoming::Refused(..) => CommandEvent::Lost,
        }
    }

    /// All that came so far is written down.
    pub fn written(&mut self) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            let bytes = std::mem::take(&mut self.due[channel as usize]);
            if bytes > 0 {
                // A lost link is what the next look finds.
                let _ = self.agent.inner.send(&ToGuest::Credit { op: self.number, channel, bytes });
            }
        }
    }

    /// Its end is written down: the agent need not keep it.
    pub fn forget(self) {
        // Over a link that is lost it is said by the next.
        let _ = self.agent.inner.send(&ToGuest::Forget { op: self.number });
    }

    pub fn input(&self) -> KeptInput {
        KeptInput { agent: self.agent.clone(), number: self.number, op: Arc::clone(&self.op) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.agent.inner.forget(self.number);
        self.op.lose();
    }
}

impl KeptInput {
    /// Feeds bytes as fast as the command takes them. An error when it takes no more, or the link is lost.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.feed(self.number, &self.op, bytes).await
    }

    pub fn end(&self) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Eof { op: self.number })
    }

    pub fn resize(&self, size: TerminalSize) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Resize { op: self.number, size })
    }

    pub fn signal(&self, signal: i32) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Signal { op: self.number, signal })
    }

    pub fn killer(&self) -> Killer {
        Killer::new(self.agent.clone(), self.number)
    }
}
