//! Back-pressure from readers to the command: the log writer waits before it drops output that a reader needs, and what it does not
//! write is not acknowledged, so that the command blocks on its pipe.
//!
//! It does not wait for what is left of the output of a command that has ended, was killed, or whose link was lost: that is less than
//! the window of the link and the pipes, and the log keeps it beyond its size limit.

use std::future::pending;
use std::sync::Arc;

use rules::{OutputReaders, ReaderId};
use tokio::sync::watch;
use tokio::time::Instant;

use super::execution::DetachedExecution;
use super::registry::AgentAvailability;

/// The log writer's side.
pub struct BackPressure {
    execution: Arc<DetachedExecution>,
    readers: watch::Receiver<OutputReaders>,
    is_killed: watch::Receiver<bool>,
    agent: watch::Receiver<AgentAvailability>,
    /// When the command was killed at its time limit; `None` for a command without one.
    deadline: Option<watch::Receiver<Option<Instant>>>,
}

/// A reader's side: the log keeps what the reader has not consumed. Dropping it says that the reader left.
pub struct AttachedReader {
    execution: Arc<DetachedExecution>,
    id: ReaderId,
}

impl BackPressure {
    pub fn new(
        execution: Arc<DetachedExecution>,
        agent: watch::Receiver<AgentAvailability>,
        deadline: Option<watch::Receiver<Option<Instant>>>,
    ) -> Self {
        let (readers, is_killed) = (execution.readers.subscribe(), execution.is_killed.subscribe());
        Self { execution, readers, is_killed, agent, deadline }
    }

    /// Waits while the log is full of output that readers need. Cancel safe.
    pub async fn released(&mut self) {
        loop {
            let needed = self.readers.borrow_and_update().needed(self.execution.now_ms());
            if needed.from.is_none_or(|segment| self.execution.has_room(segment)) || self.is_ending() {
                return;
            }
            let until = needed.until_ms.map(|until_ms| self.execution.instant(until_ms));
            tokio::select! {
                // These cannot fail: the senders live as long as the execution and its registry.
                _ = self.readers.changed() => {}
                _ = self.is_killed.changed() => {}
                _ = self.agent.changed() => {}
                () = killed_at_deadline(self.deadline.as_mut()) => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn is_ending(&mut self) -> bool {
        let is_linked = match &*self.agent.borrow_and_update() {
            AgentAvailability::Linked(agent) => !agent.is_closed(),
            _ => false,
        };
        let is_over = self.deadline.as_ref().is_some_and(|deadline| deadline.borrow().is_some());
        !is_linked || is_over || *self.is_killed.borrow_and_update()
    }
}

/// Waits for the kill at the time limit; without end if there is none, or if the limit ended with its sandbox.
async fn killed_at_deadline(deadline: Option<&mut watch::Receiver<Option<Instant>>>) {
    let Some(deadline) = deadline else { return pending().await };
    if deadline.wait_for(Option::is_some).await.is_err() {
        pending::<()>().await;
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => pending().await,
    }
}

impl AttachedReader {
    /// A reader that begins in this segment.
    pub fn new(execution: Arc<DetachedExecution>, segment: u64) -> Self {
        let now_ms = execution.now_ms();
        let mut id = ReaderId::default();
        execution.readers.send_modify(|readers| id = readers.attach(segment, now_ms));
        Self { execution, id }
    }

    /// The reader has consumed everything before this segment.
    pub fn advance(&self, segment: u64) {
        self.execution.readers.send_if_modified(|readers| readers.advance(self.id, segment));
    }

    /// The reader has consumed everything.
    pub fn finish(&self) {
        self.execution.readers.send_modify(|readers| readers.finish(self.id));
    }
}

impl Drop for AttachedReader {
    fn drop(&mut self) {
        let now_ms = self.execution.now_ms();
        self.execution.readers.send_modify(|readers| readers.leave(self.id, now_ms));
    }
}
