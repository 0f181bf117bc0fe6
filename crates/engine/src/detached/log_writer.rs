//! The task that has an execution in its inbox, from its start or from the start of the daemon to its end.
//!
//! ```text
//! waiting for a link ──(the agent has it)──> carrying ──(exited)──> ended
//!      ^        │                              │
//!      │        └──(the agent has it not, or the sandbox's processes are gone)──> lost
//!      └───────────────(link lost)─────────────┘
//! ```
//!
//! It alone writes the log: what comes is written, then acknowledged, then shown. What cannot be written is tried again, and the
//! command waits. When the daemon dies at whatever moment, the log says where the next one's keeper goes on.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::OptionFuture;
use guest_proto::Channel;
use tokio::sync::{oneshot, watch};

use super::events;
use super::initial_stdin::InitialStdin;
use crate::deadline::{AGENT_TIMEOUT, Deadline};
use crate::detached::execution::{DetachedExecution, Progress, WriterCommand, WriterInbox};
use crate::detached::log::Log;
use crate::detached::log::entry::Entry;
use crate::detached::record::{End, remove_stdin_text};
use crate::detached::registry::{AgentAvailability, SandboxExecutions};
use crate::error::EngineError;
use crate::link::{CommandEvent, DetachedCommand, DetachedInput, LinkError};
use crate::mailbox::Permit;
use crate::shared::Shared;
use crate::status::Status;

/// A log that could not be written is tried again after so long.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
const TAKE_AGAIN: Duration = Duration::from_secs(1);
const LOST: &str = "its processes ended with those of its sandbox; how is not known";
const GONE: &str = "its sandbox lost it; how it ended is not known";

/// What a keeper has.
pub struct LogWriter {
    pub shared: Arc<Shared>,
    pub executions: Arc<SandboxExecutions>,
    pub execution: Arc<DetachedExecution>,
    pub log: Option<Log>,
    pub inbox: WriterInbox,
    pub status: watch::Receiver<Status>,
    /// Its place among the commands of its sandbox.
    pub permit: Option<Permit>,
}

/// What came of waiting for a link.
enum Reattached {
    On(DetachedCommand, u64),
    Lost(&'static str),
    Terminated,
}

/// The daemon ends, and the execution goes on.
struct Stopped;

/// Its entries, in pieces that outlive the look at them.
#[derive(Clone)]
enum PendingEntry {
    Output(Channel, Bytes),
    StdinClosed,
    Resized(guest_proto::TerminalSize),
    Ended(End),
    EndEventRecorded,
}

impl LogWriter {
    /// Keeps it to its end, or to that of the daemon.
    pub async fn run(mut self, started: Option<DetachedCommand>) {
        // Either way nothing is left to do here.
        let _ = self.keep(started).await;
        self.execution.input.send_replace(None);
    }

    async fn keep(&mut self, started: Option<DetachedCommand>) -> Result<(), Stopped> {
        let state = self.execution.progress.borrow().log.clone();
        if let Some(end) = state.end {
            self.inbox.stdin_lock = None;
            // The daemon before this one died between the end and its event.
            return self.record_end_event(end).await;
        }
        let mut text = self.text().await?;
        let mut on = started.map(|kept| (kept, 0));
        loop {
            let (kept, fed) = match on.take() {
                Some(on) => on,
                None => match self.taken().await? {
                    Reattached::On(kept, fed) => {
                        if !self.execution.has_started.swap(true, Ordering::Relaxed) {
                            // It started, and the daemon that started it may have died before it said so.
                            let sandbox = Arc::clone(&self.status.borrow().record);
                            events::started(&self.shared, &sandbox, &self.execution.record);
                        }
                        (kept, fed)
                    }
                    Reattached::Lost(why) => {
                        return self.end(events::lost(why, self.shared.clock.now())).await;
                    }
                    Reattached::Terminated => {
                        self.terminated();
                        return Ok(());
                    }
                },
            };
            if self.carry(kept, fed, &mut text).await? {
                return Ok(());
            }
            self.execution.input.send_replace(None);
        }
    }

    /// What is still to be fed, if there is any.
    async fn text(&mut self) -> Result<Option<InitialStdin>, Stopped> {
        let Some(stdin_lock) = self.inbox.stdin_lock.take() else { return Ok(None) };
        let stopping = self.shared.stopping.clone();
        let text = InitialStdin::open(self.execution.dir.clone(), stdin_lock);
        stopping.run_until_cancelled(text).await.ok_or(Stopped)
    }

    /// Waits for a link on which the agent goes on with it.
    async fn taken(&mut self) -> Result<Reattached, Stopped> {
        let stopping = self.shared.stopping.clone();
        let take = async {
            let mut reach = self.executions.agent.subscribe();
            loop {
                let now = reach.borrow_and_update().clone();
                match now {
                    AgentAvailability::Linked(agent) if !agent.is_closed() => {
                        let from = self.execution.progress.borrow().log.printed;
                        match agent.reattach(self.execution.record.op, from, AGENT_TIMEOUT).await {
                            Ok(Some((kept, fed))) => return Reattached::On(kept, fed),
                            Ok(None) => return Reattached::Lost(LOST),
                            Err(LinkError::Refused { .. } | LinkError::TooOld) => {
                                agent.abandon(self.execution.record.op);
                                return Reattached::Lost(GONE);
                            }
                            Err(error) => {
                                // What it answers later must not be taken for the answer to the next.
                                tracing::warn!(id = %self.execution.record.id, %error, "could not take a command up");
                                agent.close();
                                tokio::time::sleep(TAKE_AGAIN).await;
                            }
                        }
                    }
                    AgentAvailability::Gone => return Reattached::Lost(LOST),
                    AgentAvailability::Terminated => return Reattached::Terminated,
                    AgentAvailability::Linked(_) | AgentAvailability::Waiting => {
                        // The sender is in the list of executions, which is ours too.
                        let _ = reach.changed().await;
                    }
                }
            }
        };
        stopping.run_until_cancelled(take).await.ok_or(Stopped)
    }

    /// Carries what it prints into the log. True at its end, false when the link is lost.
    async fn carry(
        &mut self,
        mut kept: DetachedCommand,
        fed: u64,
        text: &mut Option<InitialStdin>,
    ) -> Result<bool, Stopped> {
        let input = kept.input();
        self.execution.input.send_replace(Some(input.clone()));
        let deadline = self
            .execution
            .record
            .ends_at_running_ms
            .map(|at| Deadline::at(input.killer(), self.status.clone(), self.shared.clock, at));
        let had_text = text.is_some();
        let is_fed = text.as_ref().is_none_or(|text| text.is_fed(fed));
        if is_fed {
            *text = None;
            if self.is_stdin_closed() {
                // The daemon that wrote it down may have died before it said so.
                let _ = input.close();
            } else if had_text {
                self.all_fed(&input).await?;
            }
        }
        let stopping = self.shared.stopping.clone();
        let mut feeding = pin!(OptionFuture::from(text.as_ref().map(|text| text.feed(input.clone(), fed))));
        loop {
            tokio::select! {
                () = stopping.cancelled() => return Err(Stopped),
                event = kept.next() => match self.came(event, &mut kept, deadline.as_ref()).await? {
                    Carried::Output => {}
                    Carried::End => {
                        kept.forget();
                        return Ok(true);
                    }
                    Carried::Loss => return Ok(false),
                },
                _ = &mut feeding, if text.is_some() => {
                    *text = None;
                    self.all_fed(&input).await?;
                }
                Some(command) = self.inbox.commands.recv() => self.obey(command, &input).await?,
            }
        }
    }

    /// Writes down what has come by now.
    async fn came(
        &mut self,
        event: CommandEvent,
        kept: &mut DetachedCommand,
        deadline: Option<&Deadline>,
    ) -> Result<Carried, Stopped> {
        let mut lines = Vec::new();
        let mut next = Some(event);
        let last = loop {
            match next {
                Some(CommandEvent::Output(channel, bytes)) => {
                    lines.push(PendingEntry::Output(channel, bytes));
                }
                last => break last,
            }
            next = kept.try_next();
        };
        if !lines.is_empty() {
            self.write(lines).await?;
            kept.acknowledge();
        }
        match last {
            Some(CommandEvent::Exited { exit, duration_us }) => {
                let is_timed_out = deadline.is_some_and(Deadline::is_over);
                self.end(events::exited(exit, duration_us, is_timed_out, self.shared.clock.now())).await?;
                Ok(Carried::End)
            }
            Some(CommandEvent::Lost) => Ok(Carried::Loss),
            Some(CommandEvent::Output(..)) | None => Ok(Carried::Output),
        }
    }

    async fn all_fed(&mut self, input: &DetachedInput) -> Result<(), Stopped> {
        // The text stays until the end: what is fed is on its way, and the agent may not have it when we die.
        if !self.execution.record.open_stdin && !self.is_stdin_closed() {
            self.write(vec![PendingEntry::StdinClosed]).await?;
        }
        if self.is_stdin_closed() {
            // A lost link is what the next look finds.
            let _ = input.close();
        }
        Ok(())
    }

    fn is_stdin_closed(&self) -> bool {
        self.execution.progress.borrow().log.is_stdin_closed
    }

    async fn obey(&mut self, command: WriterCommand, input: &DetachedInput) -> Result<(), Stopped> {
        let (line, done): (PendingEntry, oneshot::Sender<Result<(), EngineError>>) = match command {
            WriterCommand::CloseStdin(done) => (PendingEntry::StdinClosed, done),
            WriterCommand::Resize(size, done) => (PendingEntry::Resized(size), done),
        };
        self.write(vec![line.clone()]).await?;
        // Over a lost link it is said by the next.
        let _ = match line {
            PendingEntry::Resized(size) => input.resize(size),
            _ => input.close(),
        };
        let _ = done.send(Ok(()));
        Ok(())
    }

    /// It was killed with its sandbox, and all that was written of it goes.
    fn terminated(&mut self) {
        let end = events::killed(&self.execution.record, self.shared.clock.now());
        let state = self.execution.progress.borrow().log.clone();
        events::ended(&self.shared, &self.status.borrow().record, &self.execution.record, &state, &end);
        self.permit = None;
        self.execution.progress.send_modify(|progress| progress.log.end = Some(end));
    }

    /// Writes its end down, and has it state.
    async fn end(&mut self, end: End) -> Result<(), Stopped> {
        // Who hears of the end may start another in its place.
        self.permit = None;
        self.write(vec![PendingEntry::Ended(end.clone())]).await?;
        self.record_end_event(end).await
    }

    async fn record_end_event(&mut self, end: End) -> Result<(), Stopped> {
        let dir = self.execution.dir.clone();
        let _ = tokio::task::spawn_blocking(move || remove_stdin_text(&dir)).await;
        let state = self.execution.progress.borrow().log.clone();
        events::ended(&self.shared, &self.status.borrow().record, &self.execution.record, &state, &end);
        self.write(vec![PendingEntry::EndEventRecorded]).await
    }

    /// Writes to the log, however long that takes, and shows it.
    async fn write(&mut self, mut lines: Vec<PendingEntry>) -> Result<(), Stopped> {
        loop {
            let Some(mut log) = self.log.take() else { return Err(Stopped) };
            let at_ms = self.shared.clock.now().0;
            let writing = tokio::task::spawn_blocking(move || {
                let written = append(&mut log, &lines, at_ms);
                (log, lines, written)
            });
            // A panic of that thread has taken the log with it; the next daemon opens it again.
            let Ok((log, same, written)) = writing.await else { return Err(Stopped) };
            let progress = written.is_ok().then(|| Progress::of(&log));
            self.log = Some(log);
            let Err(error) = written else {
                progress.map(|progress| self.execution.progress.send_replace(progress));
                return Ok(());
            };
            lines = same;
            if self.is_terminated() {
                // Its directory is gone: there is nobody to write for.
                return Ok(());
            }
            tracing::error!(id = %self.execution.record.id, %error, "could not write to the log of an execution; it waits");
            let stopping = self.shared.stopping.clone();
            stopping.run_until_cancelled(tokio::time::sleep(WRITE_AGAIN)).await.ok_or(Stopped)?;
        }
    }

    fn is_terminated(&self) -> bool {
        matches!(*self.executions.agent.borrow(), AgentAvailability::Terminated)
    }
}

/// What came.
enum Carried {
    Output,
    End,
    Loss,
}

fn append(log: &mut Log, lines: &[PendingEntry], at_ms: u64) -> io::Result<()> {
    let mut ends = false;
    let entries: Vec<Entry<'_>> = lines
        .iter()
        .map(|line| match line {
            PendingEntry::Output(channel, bytes) => Entry::Output(*channel, bytes),
            PendingEntry::StdinClosed => Entry::StdinClosed,
            PendingEntry::Resized(size) => Entry::Resized(*size),
            PendingEntry::Ended(end) => {
                ends = true;
                Entry::Ended(end.clone())
            }
            PendingEntry::EndEventRecorded => Entry::EndEventRecorded,
        })
        .collect();
    log.append(&entries, at_ms)?;
    // The agent forgets it now: it has to outlive a power loss as well.
    if ends { log.sync() } else { Ok(()) }
}
