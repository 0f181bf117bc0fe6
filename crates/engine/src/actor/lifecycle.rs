//! Pause, resume and terminate, and what happens when the sandbox's processes end unexpectedly.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::EventKind;
use driver::{MemoryKills, Presence};
use rules::{AutoPause, Due, Hold, Operation, PausedProcesses, RepeatableWork, decide};
use serde_json::json;
use tokio::time::Instant;

use super::stop::DISK_WAS_READ_ONLY;
use super::{Actor, ProcessState, timeouts};
use crate::capacity::ledger::QuotaCheck;
use crate::error::{CapacityError, EngineError};
use crate::host::{BOOT_TIMEOUT, RECONNECT_TIMEOUT, SETUP_TIMEOUT, guest};
use crate::link::{Agent, LinkError};
use crate::record::events;
use crate::record::status::{PauseResult, ProcessLoss, ResumeResult, TerminateResult};

/// The link of a killed sandbox may end shortly before its last process.
const LOSS_TIMEOUT: Duration = Duration::from_secs(2);
const INSPECT_INTERVAL: Duration = Duration::from_millis(20);
/// After two losses of the link within this time, the link is opened again by the next request only.
const LINK_LOSS_BACKOFF: Duration = Duration::from_secs(1);
const REMOVAL_ATTEMPTS: u32 = 5;
const REMOVAL_INTERVAL: Duration = Duration::from_secs(10);

/// Reasons of a pause.
pub const ON_REQUEST: &str = "request";
/// The sandbox wrote while the host's disk was almost full.
pub const DISK_PRESSURE: &str = "disk_pressure";
/// The reason of a hibernation of a sandbox that stays paused.
const AFTER_PAUSE: &str = "paused";
/// The note of a sandbox whose processes ended unexpectedly. Its next event reports it.
pub const PROCESSES_LOST: &str = "its processes ended unexpectedly; its disk is unchanged";

/// The state of a sandbox after its link ended.
enum LinkLoss {
    ProcessesGone,
    Reconnected(Agent),
    Unreachable,
}

impl Actor {
    pub(super) async fn pause(&mut self, reason: &str) -> Result<PauseResult, EngineError> {
        decide(self.record.state(), Operation::Pause)?;
        if let Err(error) = self.context.host.driver().pause(self.id()).await {
            if self.has_lost_processes().await {
                // The processes ended unnoticed, which leaves the sandbox paused.
                self.processes_lost().await?;
                return Ok(self.paused_result());
            }
            self.undo_pause().await;
            return Err(error.into());
        }
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.paused(now, PausedProcesses::Frozen);
        let runtime_duration_ms = next.lifecycle.finished_ms();
        let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
        if let Err(error) = self.commit(next, EventKind::SandboxPaused, data, now).await {
            self.undo_pause().await;
            return Err(error.into());
        }
        self.context.counters.paused(reason);
        self.reservation.lower(Hold::Paused);
        self.processes = match std::mem::replace(&mut self.processes, ProcessState::Stopped) {
            ProcessState::Running(agent) | ProcessState::Frozen(agent) => ProcessState::Frozen(agent),
            without @ (ProcessState::Hibernated | ProcessState::Stopped) => without,
        };
        Ok(PauseResult { id: self.id().clone(), paused_at: now, runtime_duration_ms })
    }

    pub(super) fn paused_result(&self) -> PauseResult {
        PauseResult {
            id: self.id().clone(),
            paused_at: self.record.lifecycle.paused_since().unwrap_or(self.record.created_at),
            runtime_duration_ms: self.record.lifecycle.finished_ms(),
        }
    }

    /// Thaws the sandbox after a failed pause, if it is frozen.
    async fn undo_pause(&self) {
        let driver = self.context.host.driver();
        let thawed = match driver.inspect(self.id()).await {
            Ok(Presence::Paused) => driver.resume(self.id()).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = thawed {
            tracing::error!(id = %self.id(), %error, "could not undo a failed pause");
        }
    }

    pub(super) async fn resume(&mut self) -> Result<ResumeResult, EngineError> {
        decide(self.record.state(), Operation::Resume)?;
        if matches!(self.processes, ProcessState::Frozen(_))
            && self.context.host.has_read_only_disk(self.id()).await
        {
            return self.restart(DISK_WAS_READ_ONLY).await;
        }
        let begun = Instant::now();
        let resumed = match self.try_resume().await {
            // The end of frozen processes is noticed only here.
            Err(error) if error.is_backend_failure() && self.has_lost_processes().await => {
                self.processes_lost().await?;
                self.try_resume().await
            }
            resumed => resumed,
        };
        if resumed.is_ok() {
            let latencies = self.context.counters.latencies.of(self.record.config.isolation);
            latencies.resume.observe(begun.elapsed());
        }
        resumed
    }

    pub(super) async fn try_resume(&mut self) -> Result<ResumeResult, EngineError> {
        self.raise_reservation().await?;
        let was_stored = matches!(self.processes, ProcessState::Hibernated)
            || self.record.lifecycle.hibernated_at().is_some();
        let resumed = match self.wake().await {
            Ok(agent) => self.commit_resumed(agent).await,
            Err(error) => Err(error),
        };
        if resumed.is_ok() && was_stored {
            self.context.counters.woken.add(1);
            self.discard_memory().await;
        }
        if resumed.is_err() {
            let before = match self.processes {
                ProcessState::Stopped | ProcessState::Hibernated => Hold::Stopped,
                ProcessState::Running(_) | ProcessState::Frozen(_) => Hold::Paused,
            };
            self.undo_resume(before).await;
        }
        resumed
    }

    /// Reserves what the sandbox needs to run.
    pub(super) async fn raise_reservation(&mut self) -> Result<(), EngineError> {
        while let Err(error) = self.reservation.raise() {
            // Evicting warm sandboxes helps only if the host's capacity is what is missing.
            if !matches!(error, CapacityError::NoCapacity(_)) || !self.context.provisioner.evict_one().await {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Thaws the processes, or starts the sandbox again on its disk. Returns the link to the agent, if it is open.
    async fn wake(&mut self) -> Result<Option<Agent>, EngineError> {
        if self.record.lifecycle.has_prepared_disk() {
            self.adopt_prepared().await?;
        }
        match &self.processes {
            ProcessState::Frozen(agent) => {
                self.context.host.driver().resume(self.id()).await?;
                match agent {
                    Some(agent) => Ok(Some(agent.clone())),
                    // Frozen by an earlier daemon, or by a wake that failed halfway. The new link kills the commands whose clients were
                    // connected to that daemon.
                    None => {
                        let agent = self.connect(RECONNECT_TIMEOUT).await.ok();
                        self.complete_wake(agent.as_ref()).await?;
                        Ok(agent)
                    }
                }
            }
            ProcessState::Running(agent) => Ok(agent.clone()),
            ProcessState::Hibernated => self.wake_processes().await.map(Some),
            ProcessState::Stopped => {
                let host = &self.context.host;
                host.start(&self.spec).await?;
                host.network().apply(&guest(&self.record), &self.record.config.network.egress).await?;
                let agent = self.connect(BOOT_TIMEOUT).await?;
                match agent.make_dirs(&[&self.record.config.workdir], SETUP_TIMEOUT).await {
                    Ok(()) => {}
                    // The owner has put something else at this path. Commands that use the directory report it.
                    Err(LinkError::Refused { message, .. }) => {
                        tracing::warn!(id = %self.id(), message, "could not create the working directory again");
                    }
                    Err(error) => return Err(error.into()),
                }
                Ok(Some(agent))
            }
        }
    }

    async fn commit_resumed(&mut self, agent: Option<Agent>) -> Result<ResumeResult, EngineError> {
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.resumed(now);
        timeouts::renew(&mut next);
        let paused = &self.record.lifecycle;
        let paused_duration_ms = paused.paused_since().map_or(0, |since| now.since(since));
        let mut data = json!({ "pausedDurationMs": paused_duration_ms });
        if let Some(note) = paused.note() {
            data["note"] = json!(note);
        }
        self.commit(next, EventKind::SandboxResumed, data, now).await?;
        self.processes = ProcessState::Running(agent);
        // What the recovery gave up works again.
        self.context.interruptions.forget(RepeatableWork::Recovery, self.id().as_str()).await;
        self.timeouts.touch(self.context.stamped_store.now());
        self.context.counters.resumed.add(1);
        Ok(ResumeResult { id: self.id().clone(), resumed_at: now, paused_duration_ms })
    }

    /// Freezes or stops the sandbox again after a failed resume.
    async fn undo_resume(&mut self, before: Hold) {
        let host = &self.context.host;
        let undone = match before {
            Hold::Stopped => host.stop(&guest(&self.record)).await,
            Hold::Paused | Hold::Running => match host.driver().inspect(self.id()).await {
                Ok(Presence::Running) => host.driver().pause(self.id()).await.map_err(Into::into),
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            },
        };
        if let Err(error) = undone {
            tracing::error!(id = %self.id(), %error, "could not undo a failed resume");
        }
        self.reservation.lower(before);
    }

    /// Pauses or terminates the sandbox if its timeout is due.
    pub(super) async fn run_due_timeout(&mut self) -> ControlFlow<()> {
        let record = Arc::clone(&self.record);
        let (watch, now) = self.watch(&record);
        let Some(due) = self.timeouts.due(&watch, now) else { return ControlFlow::Continue(()) };
        let result = match due {
            Due::Pause(cause) => self.pause_automatically(cause).await.map(|_| ControlFlow::Continue(())),
            Due::FreeMemory => self.free_memory(AFTER_PAUSE).await.map(|_| ControlFlow::Continue(())),
            Due::Expire(expiry) => self.terminate(expiry.reason()).await.map(|_| ControlFlow::Break(())),
        };
        result.unwrap_or_else(|error| {
            if error.prevents_hibernation() {
                tracing::debug!(id = %self.id(), %error, "a paused sandbox stays in memory");
                return ControlFlow::Continue(());
            }
            tracing::error!(id = %self.id(), %error, ?due, "could not pause or terminate a sandbox at its timeout; retrying");
            self.timeouts.retry_later(now);
            ControlFlow::Continue(())
        })
    }

    async fn pause_automatically(&mut self, cause: AutoPause) -> Result<PauseResult, EngineError> {
        let options = self.record.config.e2b.as_deref();
        if cause == AutoPause::Timeout && options.is_some_and(|options| options.pause_without_memory) {
            return self.stop(cause.reason()).await;
        }
        self.pause(cause.reason()).await
    }

    pub(super) async fn terminate(&mut self, reason: &str) -> Result<TerminateResult, EngineError> {
        decide(self.record.state(), Operation::Terminate)?;
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.terminated(now, reason);
        next.ports.clear();
        let total_runtime_ms = next.lifecycle.finished_ms();
        let data = json!({ "reason": reason, "totalRuntimeMs": total_runtime_ms });
        let mut events = self.executions.final_events(&next, now);
        events.push(events::of_sandbox(&next, now, EventKind::SandboxTerminated, data));
        self.commit_events(next, events, now).await?;
        self.context.counters.terminated(reason);
        if let Err(error) = self.context.host.driver().kill(self.id()).await {
            tracing::error!(id = %self.id(), %error, "could not kill a terminated sandbox; its removal retries");
        }
        self.context.registry.remove(self.id());
        // Released before the reply, so that the caller can use the capacity at once.
        self.reservation.release();
        self.remove_in_background();
        Ok(TerminateResult { id: self.id().clone(), terminated_at: now, total_runtime_ms })
    }

    /// Removes the sandbox from the host. Its range of user ids and its address are released when nothing is left of it.
    fn remove_in_background(&mut self) {
        let context = Arc::clone(&self.context);
        // Its layers may be the last trace of a deleted snapshot.
        context.snapshots.request_sweep();
        let guest = guest(&self.record);
        let slot = self.slot.take();
        let ledger = Arc::clone(&context.ledger);
        let (account, disk_bytes) =
            (self.record.account.clone(), u64::from(self.record.config.resources.disk_mb) << 20);
        self.context.tasks.spawn(async move {
            if let Err(error) = context.detached.remove(guest.id.clone()).await {
                tracing::error!(id = %guest.id, %error, "could not remove the executions of a terminated sandbox");
            }
            let mut retained = None;
            for attempt in 1..=REMOVAL_ATTEMPTS {
                match context.host.remove(&guest).await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::error!(id = %guest.id, %error, attempt, "could not remove a terminated sandbox");
                    }
                }
                // A removal takes a moment, so its disk counts only if it stays.
                retained =
                    retained.or_else(|| ledger.retain(&account, disk_bytes, QuotaCheck::CountOnly).ok());
                // After the last attempt, or when the engine stops, the next recovery removes the sandbox.
                if context.tasks.until_stopped(tokio::time::sleep(REMOVAL_INTERVAL)).await.is_none() {
                    break;
                }
            }
            if let Some(slot) = slot {
                slot.keep();
            }
            if let Some(retained) = retained {
                retained.keep();
            }
        });
    }

    /// Opens a link to the agent. Detached executions continue.
    pub(super) async fn connect(&self, timeout: Duration) -> Result<Agent, EngineError> {
        self.context.host.connect(self.id(), &self.executions.running_ops(), timeout).await
    }

    /// Handles the end of the link: opens it again if the sandbox has processes, records their loss if it has none.
    pub(super) async fn link_lost(&mut self) {
        let was_frozen = matches!(self.processes, ProcessState::Frozen(_));
        self.processes = if was_frozen { ProcessState::Frozen(None) } else { ProcessState::Running(None) };
        let last_loss = self.last_link_loss.replace(Instant::now());
        let may_reconnect = last_loss.is_none_or(|last| last.elapsed() >= LINK_LOSS_BACKOFF);
        match tokio::time::timeout(LOSS_TIMEOUT, self.inspect_after_link_loss(may_reconnect)).await {
            Ok(LinkLoss::ProcessesGone) => {
                if let Err(error) = self.processes_lost().await {
                    tracing::error!(id = %self.id(), %error, "could not record that a sandbox's processes ended");
                }
            }
            Ok(LinkLoss::Reconnected(agent)) => self.processes = ProcessState::Running(Some(agent)),
            Ok(LinkLoss::Unreachable) | Err(_) => {}
        }
    }

    async fn inspect_after_link_loss(&self, may_reconnect: bool) -> LinkLoss {
        loop {
            match self.context.host.driver().inspect(self.id()).await {
                Ok(Presence::Stopped | Presence::Hibernated | Presence::Absent) => {
                    return LinkLoss::ProcessesGone;
                }
                // A frozen agent cannot answer. The link is opened after the resume.
                Ok(Presence::Paused) => return LinkLoss::Unreachable,
                Ok(Presence::Running) if may_reconnect => {
                    if let Ok(agent) = self.connect(RECONNECT_TIMEOUT).await {
                        return LinkLoss::Reconnected(agent);
                    }
                }
                Ok(Presence::Running) => {}
                Err(error) => {
                    tracing::warn!(id = %self.id(), %error, "could not inspect a sandbox after the loss of its link");
                }
            }
            tokio::time::sleep(INSPECT_INTERVAL).await;
        }
    }

    /// Whether the sandbox should have processes and has none.
    pub(super) async fn has_lost_processes(&self) -> bool {
        !matches!(self.processes, ProcessState::Stopped | ProcessState::Hibernated)
            && self.context.host.has_no_processes(self.id()).await
    }

    /// Stops the sandbox and records the loss of its processes. If the record cannot be committed, the next request tries again.
    pub(super) async fn processes_lost(&mut self) -> Result<(), EngineError> {
        // Before the stop, which removes the count.
        let memory_kills = self.context.host.driver().memory_kills(self.id()).await;
        let note = note_of_loss(memory_kills, self.record.config.resources.memory_mb);
        tracing::warn!(id = %self.id(), %note, "a sandbox's processes ended unexpectedly; it is paused on its disk");
        self.process_loss = Some(ProcessLoss { number: self.record.revision + 1, memory_kills });
        self.processes = ProcessState::Stopped;
        self.context.counters.processes_lost.add(1);
        self.reservation.lower(Hold::Stopped);
        if let Err(error) = self.context.host.stop(&guest(&self.record)).await {
            tracing::error!(id = %self.id(), %error, "could not stop a sandbox after the loss of its processes");
        }
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.paused(now, PausedProcesses::Ended { note: note.to_string() });
        let data = json!({ "message": note });
        Ok(self.commit(next, EventKind::SandboxError, data, now).await?)
    }
}

/// The note about an unexpected end of all processes. The kernel may have killed others earlier, so it is named as a fact and not as the
/// cause.
fn note_of_loss(memory_kills: Option<MemoryKills>, memory_mb: u32) -> Cow<'static, str> {
    match memory_kills {
        Some(MemoryKills { count: 1.., .. }) => Cow::Owned(format!(
            "its processes ended unexpectedly, and the kernel has killed some for lack of memory (resources.memoryMb is {memory_mb}); its disk is unchanged"
        )),
        _ => Cow::Borrowed(PROCESSES_LOST),
    }
}
