//! A detached command on one link. The command outlives the link; dropping this handle does not end it.
//!
//! Output is acknowledged after it is written to the execution log, not before: the agent keeps unacknowledged output for the
//! next link.

use std::sync::Arc;

use guest_proto::{
    Channel, DETACHED_SINCE, DETACHED_WINDOW, ExecSpec, RefusalKind, RunAs, StdinMode, TerminalSize, ToGuest,
};
use rules::OutputPosition;

use super::command::{CommandEvent, Killer};
use super::op::{FirstReply, Incoming, Op};
use super::{Agent, LinkError};

pub struct DetachedCommand {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
    /// Bytes of each channel that were handed out and are not yet acknowledged.
    unacknowledged: [u32; 2],
}

/// Sends input and signals to a detached command over one link. Clones are equivalent.
#[derive(Clone)]
pub struct DetachedInput {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
}

impl Agent {
    /// Allocates the operation number of a detached command.
    pub fn next_op(&self) -> u64 {
        self.inner.next_number()
    }

    /// Starts a command that outlives this link.
    pub async fn start_detached(
        &self,
        number: u64,
        spec: ExecSpec<'_>,
        run_as: Option<RunAs<'_>>,
        terminal: Option<TerminalSize>,
    ) -> Result<DetachedCommand, LinkError> {
        debug_assert!(terminal.is_none() || spec.stdin == StdinMode::Pipe, "a terminal takes input");
        if run_as.is_some() {
            self.require_users()?;
        }
        let command = self.command(number)?;
        self.inner.send(&match run_as {
            Some(run_as) => ToGuest::StartDetachedAs { op: number, spec, run_as, terminal },
            None => ToGuest::StartDetached { op: number, spec, terminal },
        })?;
        match command.op.answered().await? {
            FirstReply::Started => Ok(command),
            FirstReply::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "started", got: other.name() }),
        }
    }

    /// Reattaches to a command that an earlier link started. The agent sends its output from position `from` on. Returns the
    /// command with the number of stdin bytes that it received so far, or `None` if the agent does not know it.
    pub async fn reattach(
        &self,
        number: u64,
        from: OutputPosition,
    ) -> Result<Option<(DetachedCommand, u64)>, LinkError> {
        let command = self.command(number)?;
        self.inner.send(&ToGuest::Attach { op: number, stdout: from.stdout, stderr: from.stderr })?;
        match command.op.answered().await? {
            FirstReply::Attached { stdin } => Ok(Some((command, stdin))),
            FirstReply::Refused { kind: RefusalKind::UnknownOp, .. } => Ok(None),
            FirstReply::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            other => Err(LinkError::Unexpected { wanted: "attached", got: other.name() }),
        }
    }

    /// Kills a detached command and makes the agent release it. No effect if the agent does not know it.
    pub fn abandon(&self, number: u64) {
        // If this link is lost, the next link ends commands that the host does not know.
        let _ = self.inner.send(&ToGuest::Kill { op: number });
        if self.inner.version >= DETACHED_SINCE {
            let _ = self.inner.send(&ToGuest::Release { op: number });
        }
    }

    /// Ends the link and all its operations.
    pub fn close(&self) {
        self.inner.end();
    }

    fn command(&self, number: u64) -> Result<DetachedCommand, LinkError> {
        if self.inner.version < DETACHED_SINCE {
            return Err(LinkError::TooOld);
        }
        let op = self.inner.begin_as(number, DETACHED_WINDOW);
        Ok(DetachedCommand { agent: self.clone(), number, op, unacknowledged: [0; 2] })
    }
}

impl DetachedCommand {
    /// The first process of the command, as the sandbox sees it. Unknown after a reattach to an agent of version 2.
    pub fn pid(&self) -> Option<u32> {
        self.op.pid()
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> CommandEvent {
        let (incoming, unacknowledged) = self.op.next().await;
        self.event(incoming, unacknowledged)
    }

    /// Waits for the end of the command or of the link: what is left of the output has arrived. Cancel safe.
    pub async fn ended(&self) {
        self.op.ended().await;
    }

    /// The next event, if it has arrived already.
    pub fn try_next(&mut self) -> Option<CommandEvent> {
        let (incoming, unacknowledged) = self.op.try_next()?;
        Some(self.event(incoming, unacknowledged))
    }

    fn event(&mut self, incoming: Incoming, unacknowledged: Option<(Channel, u32)>) -> CommandEvent {
        if let Some((channel, bytes)) = unacknowledged {
            self.unacknowledged[channel as usize] += bytes;
        }
        match incoming {
            Incoming::Bytes(channel, bytes) => CommandEvent::Output(channel, bytes),
            Incoming::Exited(exit, duration_us) => CommandEvent::Exited { exit, duration_us },
            Incoming::Lost | Incoming::Eof | Incoming::Refused(..) => CommandEvent::Lost,
        }
    }

    /// Acknowledges all output that was handed out: it is in the execution log.
    pub fn acknowledge(&mut self) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            let bytes = std::mem::take(&mut self.unacknowledged[channel as usize]);
            if bytes > 0 {
                // If the link is lost, the next event is `Lost`.
                let _ = self.agent.inner.send(&ToGuest::Credit { op: self.number, channel, bytes });
            }
        }
    }

    /// Makes the agent release the command: its end is in the execution log.
    pub fn release(self) {
        // If this link is lost, the next link ends commands that the host does not know.
        let _ = self.agent.inner.send(&ToGuest::Release { op: self.number });
    }

    pub fn input(&self) -> DetachedInput {
        DetachedInput { agent: self.agent.clone(), number: self.number, op: Arc::clone(&self.op) }
    }
}

impl Drop for DetachedCommand {
    fn drop(&mut self) {
        self.agent.inner.forget(self.number);
        self.op.lose();
    }
}

impl DetachedInput {
    /// Writes bytes as fast as the command reads them. Fails when the command accepts no more input or the link is lost.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.send_data(self.number, &self.op, bytes).await
    }

    pub fn close(&self) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Eof { op: self.number })
    }

    pub fn resize(&self, size: TerminalSize) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Resize { op: self.number, size })
    }

    pub fn signal(&self, signal: i32) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Signal { op: self.number, signal })
    }

    /// Whether both lead to the same command over the same link.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.op, &other.op)
    }

    pub fn killer(&self) -> Killer {
        Killer::new(self.agent.clone(), self.number)
    }
}
