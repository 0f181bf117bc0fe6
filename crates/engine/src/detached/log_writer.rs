//! The log writer: the task of an execution, from its start, or the start of the daemon, to its end.
//!
//! ```text
//! waiting for a link --(reattached)--> attached --(exited)--> ended
//!      ^        |                          |
//!      |        +--(unknown to the agent, or the sandbox's processes are gone)--> lost
//!      +-------------(link lost)-----------+
//! ```
//!
//! It alone writes the log. Output is written, then acknowledged to the agent, then published to readers. A failed
//! write is repeated, and the command waits meanwhile, as it does while the log is full of output that readers need.
//! After a crash of the daemon the log says where the next log writer continues.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::OptionFuture;
use guest_proto::Channel;
use rules::{EndCause, Ended, TimeMs};
use tokio::sync::{oneshot, watch};

use super::back_pressure::BackPressure;
use super::events;
use super::execution::{DetachedExecution, Progress, WriterCommand, WriterInbox};
use super::initial_stdin::InitialStdin;
use super::log::Log;
use super::log::entry::Entry;
use super::record::{End, remove_stdin_text};
use super::registry::{AgentAvailability, SandboxExecutions};
use crate::error::EngineError;
use crate::link::{Agent, CommandEvent, DetachedCommand, DetachedInput, LinkError};
use crate::record::status::Status;
use crate::registry::mailbox::Permit;
use crate::work::agent_timeout::{AGENT_TIMEOUT, AgentTimeout};
use crate::work::deadline::Deadline;
use crate::work::execution::{ended, termination};
use crate::work::memory_watch::MemoryWatch;

/// The delay before a failed write to the log is repeated.
const WRITE_RETRY: Duration = Duration::from_secs(1);
/// The delay before a failed reattach is repeated.
const REATTACH_RETRY: Duration = Duration::from_secs(1);
const UNKNOWN_TO_AGENT: &str = "its sandbox has no such command any more; the outcome is unknown";

pub struct LogWriter {
    executions: Arc<SandboxExecutions>,
    execution: Arc<DetachedExecution>,
    /// `None` while a blocking thread writes to it.
    log: Option<Log>,
    inbox: WriterInbox,
    status: watch::Receiver<Status>,
    /// The execution slot of the command.
    permit: Option<Permit>,
    /// Since the command, or this daemon, began.
    memory: Option<MemoryWatch>,
}

/// How the wait for a link ended.
enum Reattached {
    /// With the number of stdin bytes that the command received so far.
    Command(DetachedCommand, u64),
    Lost(&'static str),
    SandboxTerminated,
}

/// The daemon stops. The execution continues.
struct Stopped;

/// An owned log entry, for the thread that writes it.
#[derive(Clone)]
enum PendingEntry {
    Output(Channel, Bytes),
    StdinClosed,
    Resized(guest_proto::TerminalSize),
    Ended(End),
    EndEventRecorded,
    Running(u32),
}

/// What an event of the command led to.
enum Step {
    Continue,
    Ended,
    LinkLost,
}

impl LogWriter {
    pub fn new(
        executions: Arc<SandboxExecutions>,
        execution: Arc<DetachedExecution>,
        log: Log,
        inbox: WriterInbox,
        status: watch::Receiver<Status>,
        permit: Option<Permit>,
    ) -> Self {
        Self { executions, execution, log: Some(log), inbox, status, permit, memory: None }
    }

    /// Runs until the execution ends or the daemon stops. `started` is the command on the link that started it.
    pub async fn run(mut self, started: Option<DetachedCommand>) {
        // The daemon stops: nothing is left to do.
        let _ = self.follow(started).await;
        self.execution.input.send_replace(None);
    }

    async fn follow(&mut self, started: Option<DetachedCommand>) -> Result<(), Stopped> {
        let end = self.execution.progress.borrow().log.end.clone();
        if let Some(end) = end {
            self.inbox.stdin_lock = None;
            // The earlier daemon stopped between the end and its event.
            return self.record_end_event(end).await;
        }
        let sandbox = Arc::clone(&self.status.borrow().record);
        self.memory = Some(MemoryWatch::begin(&self.executions.context.host, &sandbox).await);
        let mut stdin = self.open_initial_stdin().await?;
        let mut attached = started.map(|command| (command, 0));
        loop {
            let (command, stdin_received) = match attached.take() {
                Some(attached) => attached,
                None => match self.reattach().await? {
                    Reattached::Command(command, stdin_received) => (command, stdin_received),
                    Reattached::Lost(message) => return self.end(self.end_of_lost(message)).await,
                    Reattached::SandboxTerminated => {
                        self.end_with_sandbox();
                        return Ok(());
                    }
                },
            };
            if self.write_output(command, stdin_received, &mut stdin).await? {
                return Ok(());
            }
            self.execution.input.send_replace(None);
        }
    }

    fn now(&self) -> TimeMs {
        self.executions.context.stamped_store.now()
    }

    async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        self.executions.context.tasks.until_stopped(work).await.ok_or(Stopped)
    }

    /// The part of the initial stdin that has not been sent, if any.
    async fn open_initial_stdin(&mut self) -> Result<Option<InitialStdin>, Stopped> {
        let Some(lock) = self.inbox.stdin_lock.take() else { return Ok(None) };
        self.until_stopped(InitialStdin::open(self.execution.dir.clone(), lock)).await
    }

    /// Waits for a link and reattaches to the command.
    async fn reattach(&self) -> Result<Reattached, Stopped> {
        let reattached = self.until_stopped(self.try_reattach()).await?;
        let is_attached = matches!(reattached, Reattached::Command(..));
        if is_attached && !self.execution.has_started.swap(true, Ordering::Relaxed) {
            // The daemon that started the command may have crashed before it recorded the event.
            let event = events::started(&self.status.borrow().record, &self.execution.record);
            self.executions.context.stamped_store.append(event);
        }
        Ok(reattached)
    }

    async fn try_reattach(&self) -> Reattached {
        let mut availability = self.executions.agent();
        loop {
            let agent = availability.borrow_and_update().clone();
            match agent {
                AgentAvailability::Linked(agent) if !agent.is_closed() => {
                    if let Some(reattached) = self.reattach_over(&agent).await {
                        return reattached;
                    }
                }
                AgentAvailability::ProcessesGone => return Reattached::Lost(events::PROCESSES_GONE),
                AgentAvailability::SandboxTerminated => return Reattached::SandboxTerminated,
                AgentAvailability::Linked(_) | AgentAvailability::Waiting => {
                    // Cannot fail: this task holds the sender.
                    let _ = availability.changed().await;
                }
            }
        }
    }

    /// `None` if the link failed.
    async fn reattach_over(&self, agent: &Agent) -> Option<Reattached> {
        let op = self.execution.record.op;
        let from = self.execution.progress.borrow().log.printed;
        let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, self.status.clone());
        match timeout.answer(agent.reattach(op, from)).await {
            Ok(Some((command, stdin_received))) => Some(Reattached::Command(command, stdin_received)),
            Ok(None) => Some(Reattached::Lost(events::PROCESSES_GONE)),
            Err(LinkError::Refused { .. } | LinkError::TooOld) => {
                agent.abandon(op);
                Some(Reattached::Lost(UNKNOWN_TO_AGENT))
            }
            Err(error) => {
                tracing::warn!(id = %self.execution.record.id, %error, "could not reattach to an execution; retrying");
                // Closes the link, because a late reply must not be taken for the reply to the next attempt.
                agent.close();
                tokio::time::sleep(REATTACH_RETRY).await;
                None
            }
        }
    }

    /// Writes output to the log and sends the initial stdin. True at the end of the command, false if the link is lost.
    async fn write_output(
        &mut self,
        mut command: DetachedCommand,
        stdin_received: u64,
        stdin: &mut Option<InitialStdin>,
    ) -> Result<bool, Stopped> {
        self.record_pid(command.pid()).await?;
        let input = command.input();
        self.execution.input.send_replace(Some(input.clone()));
        let clock = self.executions.context.stamped_store.clock();
        let deadline = self
            .execution
            .record
            .ends_at_running_ms
            .map(|at| Deadline::at(input.killer(), self.status.clone(), clock, at));
        let over = deadline.as_ref().map(Deadline::over);
        let mut back_pressure = BackPressure::new(Arc::clone(&self.execution), self.executions.agent(), over);
        let had_stdin = stdin.is_some();
        if stdin.as_ref().is_none_or(|stdin| stdin.is_sent(stdin_received)) {
            *stdin = None;
            if self.is_stdin_closed() {
                // The daemon that recorded the close may have crashed before it sent the close to the agent.
                let _ = input.close();
            } else if had_stdin {
                self.initial_stdin_sent(&input).await?;
            }
        }
        let stopping = self.executions.context.tasks.stopping().clone();
        let sending = stdin.as_ref().map(|stdin| stdin.send(input.clone(), stdin_received));
        let mut sending = pin!(OptionFuture::from(sending));
        loop {
            tokio::select! {
                () = stopping.cancelled() => return Err(Stopped),
                event = next_event(&mut back_pressure, &mut command) => {
                    match self.write_event(event, &mut command, deadline.as_ref()).await? {
                        Step::Continue => {}
                        Step::Ended => {
                            command.release();
                            return Ok(true);
                        }
                        Step::LinkLost => return Ok(false),
                    }
                }
                _ = &mut sending, if stdin.is_some() => {
                    *stdin = None;
                    self.initial_stdin_sent(&input).await?;
                }
                Some(request) = self.inbox.commands.recv() => self.carry_out(request, &input).await?,
            }
        }
    }

    /// Writes the pid of a process to the log, unless it is there already.
    async fn record_pid(&mut self, pid: Option<u32>) -> Result<(), Stopped> {
        let is_known = self.execution.progress.borrow().log.pid.is_some();
        let Some(pid) = pid.filter(|_| !is_known && self.execution.record.process.is_some()) else {
            return Ok(());
        };
        self.execution.pid.store(pid, Ordering::Relaxed);
        self.write(vec![PendingEntry::Running(pid)]).await
    }

    /// Writes all output that has arrived, then handles the event behind it.
    async fn write_event(
        &mut self,
        event: CommandEvent,
        command: &mut DetachedCommand,
        deadline: Option<&Deadline>,
    ) -> Result<Step, Stopped> {
        let mut entries = Vec::new();
        let mut last = Some(event);
        while let Some(CommandEvent::Output(channel, bytes)) = last {
            entries.push(PendingEntry::Output(channel, bytes));
            last = command.try_next();
        }
        if !entries.is_empty() {
            self.write(entries).await?;
            command.acknowledge();
        }
        match last {
            Some(CommandEvent::Exited { exit, duration_us }) => {
                let ended = ended(exit);
                let cause = self.cause_of_end(ended, deadline).await;
                self.end(events::exited(ended, &cause, duration_us, self.now())).await?;
                Ok(Step::Ended)
            }
            Some(CommandEvent::Lost) => Ok(Step::LinkLost),
            Some(CommandEvent::Output(..)) | None => Ok(Step::Continue),
        }
    }

    /// The stdin file stays until the end of the execution: sent bytes may be lost with the link and are then sent again.
    async fn initial_stdin_sent(&mut self, input: &DetachedInput) -> Result<(), Stopped> {
        if !self.execution.record.open_stdin && !self.is_stdin_closed() {
            self.write(vec![PendingEntry::StdinClosed]).await?;
        }
        if self.is_stdin_closed() {
            // If the link is lost, the next link repeats this.
            let _ = input.close();
        }
        Ok(())
    }

    fn is_stdin_closed(&self) -> bool {
        self.execution.progress.borrow().log.is_stdin_closed
    }

    async fn carry_out(&mut self, request: WriterCommand, input: &DetachedInput) -> Result<(), Stopped> {
        let (entry, done): (PendingEntry, oneshot::Sender<Result<(), EngineError>>) = match request {
            WriterCommand::CloseStdin(done) => (PendingEntry::StdinClosed, done),
            WriterCommand::Resize(size, done) => (PendingEntry::Resized(size), done),
        };
        self.write(vec![entry.clone()]).await?;
        // If the link is lost, the next link repeats this.
        let _ = match entry {
            PendingEntry::Resized(size) => input.resize(size),
            _ => input.close(),
        };
        let _ = done.send(Ok(()));
        Ok(())
    }

    async fn cause_of_end(&self, ended: Ended, deadline: Option<&Deadline>) -> EndCause {
        let is_over = deadline.is_some_and(Deadline::is_over);
        if let Some(timeout_ms) = self.execution.record.timeout_ms.filter(|_| is_over) {
            return EndCause::Timeout { timeout_ms };
        }
        // The agent may report the end of a killed command before it is killed itself.
        let terminated = termination(&self.status.borrow().record);
        if let Some(cause) = terminated {
            return cause;
        }
        let out_of_memory = match &self.memory {
            Some(memory) if ended.is_killed() => memory.out_of_memory().await,
            _ => None,
        };
        out_of_memory.map_or(EndCause::Unknown, EndCause::OutOfMemory)
    }

    /// The end of an execution that the agent does not know, or whose agent is gone.
    fn end_of_lost(&self, message: &str) -> End {
        let status = self.status.borrow();
        let memory = self.memory.as_ref();
        if let Some(cause) = memory.and_then(|memory| memory.out_of_memory_at(status.process_loss?)) {
            return events::killed(&self.execution.record, &EndCause::OutOfMemory(cause), self.now());
        }
        let sandbox = &status.record;
        // Why the sandbox has no processes.
        let note = sandbox.lifecycle.note();
        let of_sandbox = note.map(|note| format!("sandbox '{}': {note}; the outcome is unknown", sandbox.id));
        events::lost(of_sandbox.as_deref().unwrap_or(message), self.now())
    }

    /// The execution was killed with its sandbox. Its log is removed, so only the event is recorded.
    fn end_with_sandbox(&mut self) {
        let cause = termination(&self.status.borrow().record).unwrap_or(EndCause::Unknown);
        let end = events::killed(&self.execution.record, &cause, self.now());
        self.append_end_event(&end);
        self.permit = None;
        self.execution.progress.send_modify(|progress| progress.log.end = Some(end));
    }

    /// Writes the end to the log and records its event.
    async fn end(&mut self, end: End) -> Result<(), Stopped> {
        // Released first, so that a client that sees the end can start another execution.
        self.permit = None;
        self.write(vec![PendingEntry::Ended(end.clone())]).await?;
        self.record_end_event(end).await
    }

    async fn record_end_event(&mut self, end: End) -> Result<(), Stopped> {
        let dir = self.execution.dir.clone();
        let _ = tokio::task::spawn_blocking(move || remove_stdin_text(&dir)).await;
        self.append_end_event(&end);
        self.write(vec![PendingEntry::EndEventRecorded]).await
    }

    fn append_end_event(&self, end: &End) {
        let log = self.execution.progress.borrow().log.clone();
        let event = events::ended(&self.status.borrow().record, &self.execution.record, &log, end);
        self.executions.context.stamped_store.append(event);
    }

    /// Writes entries to the log, however long that takes, and publishes the progress.
    async fn write(&mut self, mut entries: Vec<PendingEntry>) -> Result<(), Stopped> {
        loop {
            let Some(mut log) = self.log.take() else { return Err(Stopped) };
            let (at_ms, kept_from) = (self.now().0, self.execution.kept_from());
            let writing = tokio::task::spawn_blocking(move || {
                let written = append(&mut log, &entries, at_ms, kept_from);
                (log, entries, written)
            });
            // If the thread panicked, the open log is lost. The next daemon opens it again.
            let Ok((log, unwritten, written)) = writing.await else { return Err(Stopped) };
            let progress = written.is_ok().then(|| Progress::of(&log));
            self.log = Some(log);
            let Err(error) = written else {
                progress.map(|progress| self.execution.progress.send_replace(progress));
                return Ok(());
            };
            entries = unwritten;
            if self.executions.is_sandbox_terminated() {
                // The directory was removed with the sandbox.
                return Ok(());
            }
            tracing::error!(id = %self.execution.record.id, %error, "could not write to the log of an execution; retrying");
            self.until_stopped(tokio::time::sleep(WRITE_RETRY)).await?;
        }
    }
}

/// The next event of the command, once the log has room for its output. Cancel safe.
async fn next_event(back_pressure: &mut BackPressure, command: &mut DetachedCommand) -> CommandEvent {
    tokio::select! {
        () = back_pressure.released() => {}
        // Its end does not wait for readers.
        () = command.ended() => {}
    }
    command.next().await
}

fn append(log: &mut Log, entries: &[PendingEntry], at_ms: u64, kept_from: u64) -> io::Result<()> {
    let has_end = entries.iter().any(|entry| matches!(entry, PendingEntry::Ended(_)));
    let entries: Vec<Entry<'_>> = entries
        .iter()
        .map(|entry| match entry {
            PendingEntry::Output(channel, bytes) => Entry::Output(*channel, bytes),
            PendingEntry::StdinClosed => Entry::StdinClosed,
            PendingEntry::Resized(size) => Entry::Resized(*size),
            PendingEntry::Ended(end) => Entry::Ended(end.clone()),
            PendingEntry::EndEventRecorded => Entry::EndEventRecorded,
            PendingEntry::Running(pid) => Entry::Running(*pid),
        })
        .collect();
    log.append_keeping(&entries, at_ms, kept_from)?;
    // The agent forgets the execution next, so the end has to survive a power loss.
    if has_end { log.sync() } else { Ok(()) }
}
