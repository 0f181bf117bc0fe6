//! Pause, resume, terminate, and what is done when a sandbox's processes are found gone.

use std::sync::Arc;
use std::time::Duration;

use api::SandboxState;
use driver::Presence;
use rules::{Hold, Operation, decide};
use serde_json::json;
use store::NewEvent;
use tokio::time::Instant;

use super::{Actor, ProcessState, event};
use crate::agent_connect::{BOOT_TIMEOUT, RECONNECT_TIMEOUT, SETUP_TIMEOUT, connect_agent};
use crate::detached::ended_with;
use crate::error::EngineError;
use crate::eviction::{evict_one, remove};
use crate::link::{Agent, LinkError};
use crate::network::{guest, plug};
use crate::status::{PauseResult, ResumeResult, TerminateResult};

/// A killed sandbox's link may end a moment before its last process.
const LOSS_TIMEOUT: Duration = Duration::from_secs(2);
const INSPECT_INTERVAL: Duration = Duration::from_millis(20);
/// Two losses within this are a pattern.
const LINK_LOSS_BACKOFF: Duration = Duration::from_secs(1);
const REMOVAL_ATTEMPTS: u32 = 5;
const REMOVAL_INTERVAL: Duration = Duration::from_secs(10);
/// The reason of a pause that nobody asked for.
pub const IDLE: &str = "idle";
/// What a sandbox's next event says when its processes are gone and its disk is not.
pub const PROCESSES_LOST: &str = "its processes ended outside its control; its disk is as they left it";

/// What became of a sandbox whose link ended.
enum LinkLoss {
    Lost,
    Reached(Agent),
    Unreachable,
}

impl Actor {
    pub(super) async fn pause(&mut self, reason: &str) -> Result<PauseResult, EngineError> {
        decide(self.record.state, Operation::Pause)?;
        if let Err(error) = self.shared.driver.pause(self.id()).await {
            if self.has_lost_processes().await {
                // Nobody was there to hear of the end; what is left of it is paused.
                self.processes_lost().await?;
                return Ok(self.paused_result());
            }
            self.undo_pause().await;
            return Err(error.into());
        }
        let now = self.shared.clock.now();
        let mut next = (*self.record).clone();
        next.state = SandboxState::Paused;
        next.paused_at = Some(now);
        let runtime_duration_ms = next.accounting.paused(now);
        let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
        if let Err(error) = self.commit(next, "sandbox.paused", data, now).await {
            self.undo_pause().await;
            return Err(error.into());
        }
        let counters = &self.shared.counters;
        let counter = if reason == IDLE { &counters.paused_idle } else { &counters.paused_on_request };
        counter.add(1);
        self.reservation.lower(Hold::Paused);
        self.phase = match std::mem::replace(&mut self.phase, ProcessState::Stopped) {
            ProcessState::Running(agent) | ProcessState::Frozen(agent) => ProcessState::Frozen(agent),
            ProcessState::Stopped => ProcessState::Stopped,
        };
        Ok(PauseResult { id: self.id().clone(), paused_at: now, runtime_duration_ms })
    }

    fn paused_result(&self) -> PauseResult {
        PauseResult {
            id: self.id().clone(),
            paused_at: self.record.paused_at.unwrap_or(self.record.created_at),
            runtime_duration_ms: self.record.accounting.finished_ms(),
        }
    }

    /// LinkLoss a pause that failed, at whatever point: as it was before.
    async fn undo_pause(&self) {
        let thawed = match self.shared.driver.inspect(self.id()).await {
            Ok(Presence::Paused) => self.shared.driver.resume(self.id()).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = thawed {
            tracing::error!(id = %self.id(), %error, "could not undo a pause that failed");
        }
    }

    pub(super) async fn resume(&mut self) -> Result<ResumeResult, EngineError> {
        decide(self.record.state, Operation::Resume)?;
        match self.try_resume().await {
            // Frozen, nobody hears of the end of the processes before it is wanted again.
            Err(error) if error.is_backend_failure() && self.has_lost_processes().await => {
                self.processes_lost().await?;
                self.try_resume().await
            }
            resumed => resumed,
        }
    }

    async fn try_resume(&mut self) -> Result<ResumeResult, EngineError> {
        while let Err(error) = self.reservation.raise() {
            // What stands ready for others gives way.
            if !evict_one(&self.shared).await {
                return Err(error);
            }
        }
        let before = if matches!(self.phase, ProcessState::Stopped) { Hold::Stopped } else { Hold::Paused };
        let resumed = match self.wake().await {
            Ok(agent) => self.commit_resumed(agent).await,
            Err(error) => Err(error),
        };
        if resumed.is_err() {
            self.undo_resume(before).await;
        }
        resumed
    }

    /// Lets the processes go on, or starts the sandbox again on its disk.
    async fn wake(&mut self) -> Result<Option<Agent>, EngineError> {
        match &self.phase {
            ProcessState::Frozen(agent) => {
                self.shared.driver.resume(self.id()).await?;
                match agent {
                    Some(agent) => Ok(Some(agent.clone())),
                    // Paused since before this daemon: only a new link ends the commands whose clients died with the last one.
                    None => Ok(connect_agent(&self.shared, self.id(), RECONNECT_TIMEOUT).await.ok()),
                }
            }
            ProcessState::Running(agent) => Ok(agent.clone()),
            ProcessState::Stopped => {
                let guest = guest(&self.record);
                let plug = plug(&self.shared, guest.clone());
                self.shared.driver.start(&self.spec, Some(plug)).await?;
                self.shared.network.apply(&guest, &self.record.config.network.egress).await?;
                let agent = connect_agent(&self.shared, self.id(), BOOT_TIMEOUT).await?;
                match agent.make_dirs(&[&self.record.config.workdir], SETUP_TIMEOUT).await {
                    Ok(()) => {}
                    // Its owner put something else in the way; commands that want the directory say so.
                    Err(LinkError::Refused { message, .. }) => {
                        tracing::warn!(id = %self.id(), message, "the working directory could not be made again");
                    }
                    Err(error) => return Err(error.into()),
                }
                Ok(Some(agent))
            }
        }
    }

    async fn commit_resumed(&mut self, agent: Option<Agent>) -> Result<ResumeResult, EngineError> {
        let now = self.shared.clock.now();
        let mut next = (*self.record).clone();
        next.state = SandboxState::Running;
        next.paused_at = None;
        let paused_duration_ms = next.accounting.resumed(now);
        let mut data = json!({ "pausedDurationMs": paused_duration_ms });
        if let Some(note) = next.note.take() {
            data["note"] = json!(note);
        }
        self.commit(next, "sandbox.resumed", data, now).await?;
        self.phase = ProcessState::Running(agent);
        self.touch();
        self.shared.counters.resumed.add(1);
        Ok(ResumeResult { id: self.id().clone(), resumed_at: now, paused_duration_ms })
    }

    /// LinkLoss a resume that failed: as it was before.
    async fn undo_resume(&mut self, before: Hold) {
        let undone = match before {
            Hold::Stopped => self.stop().await,
            Hold::Paused | Hold::Running => match self.shared.driver.inspect(self.id()).await {
                Ok(Presence::Running) => self.shared.driver.pause(self.id()).await.map_err(Into::into),
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            },
        };
        if let Err(error) = undone {
            tracing::error!(id = %self.id(), %error, "could not undo a resume that failed");
        }
        self.reservation.lower(before);
    }

    /// Clears away all but the disk. The network goes also where something else resists.
    async fn stop(&self) -> Result<(), EngineError> {
        let stopped = self.shared.driver.stop(self.id()).await;
        self.shared.network.unplug(&guest(&self.record)).await?;
        Ok(stopped?)
    }

    pub(super) async fn terminate(&mut self, reason: &str) -> Result<TerminateResult, EngineError> {
        decide(self.record.state, Operation::Terminate)?;
        let now = self.shared.clock.now();
        let mut next = (*self.record).clone();
        next.state = SandboxState::Terminated;
        next.terminated_at = Some(now);
        next.reason = Some(reason.to_owned());
        next.ports.clear();
        let total_runtime_ms = next.accounting.terminated(now);
        let data = json!({ "reason": reason, "totalRuntimeMs": total_runtime_ms });
        let mut events = ended_with(&next, &self.executions, now);
        events.push(NewEvent { at: now, ..event(&next, "sandbox.terminated", data) });
        self.commit_events(next, events, now).await?;
        self.shared.counters.terminated(reason);
        if let Err(error) = self.shared.driver.kill(self.id()).await {
            tracing::error!(id = %self.id(), %error, "could not kill a terminated sandbox at once; its removal tries again");
        }
        self.shared.unregister(self.id());
        // Before the answer: who hears of it may use the room at once.
        self.reservation.release();
        self.remove_in_background();
        Ok(TerminateResult { id: self.id().clone(), terminated_at: now, total_runtime_ms })
    }

    /// Its range of user ids and its address are given out again only when nothing of it is left.
    fn remove_in_background(&mut self) {
        let shared = Arc::clone(&self.shared);
        let guest = guest(&self.record);
        let lease = self.slot.take();
        self.shared.tasks.spawn(async move {
            let id = guest.id.clone();
            let shared_by_thread = Arc::clone(&shared);
            let removed = tokio::task::spawn_blocking(move || shared_by_thread.detached.remove(&id)).await;
            if let Ok(Err(error)) = removed {
                tracing::error!(id = %guest.id, %error, "could not remove the executions of a terminated sandbox");
            }
            for attempt in 1..=REMOVAL_ATTEMPTS {
                match remove(&shared, &guest).await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::error!(id = %guest.id, %error, attempt, "could not remove a terminated sandbox");
                    }
                }
                // Past the last attempt, or when the engine stops, it is left to the next recovery.
                if shared.stopping.run_until_cancelled(tokio::time::sleep(REMOVAL_INTERVAL)).await.is_none() {
                    break;
                }
            }
            if let Some(lease) = lease {
                lease.keep();
            }
        });
    }

    /// The link ended. Where processes are left it is opened again; where none are, the sandbox is stopped.
    pub(super) async fn link_lost(&mut self) {
        let was_frozen = matches!(self.phase, ProcessState::Frozen(_));
        self.phase = if was_frozen { ProcessState::Frozen(None) } else { ProcessState::Running(None) };
        // An agent that hangs up again and again is called back by requests only.
        let again = self
            .last_link_loss
            .replace(Instant::now())
            .is_some_and(|last| last.elapsed() < LINK_LOSS_BACKOFF);
        match tokio::time::timeout(LOSS_TIMEOUT, self.inspect_after_loss(again)).await {
            Ok(LinkLoss::Lost) => {
                if let Err(error) = self.processes_lost().await {
                    tracing::error!(id = %self.id(), %error, "could not record that a sandbox's processes are gone");
                }
            }
            Ok(LinkLoss::Reached(agent)) => self.phase = ProcessState::Running(Some(agent)),
            Ok(LinkLoss::Unreachable) | Err(_) => {}
        }
    }

    async fn inspect_after_loss(&self, again: bool) -> LinkLoss {
        loop {
            match self.shared.driver.inspect(self.id()).await {
                Ok(Presence::Stopped | Presence::Absent) => return LinkLoss::Lost,
                // A frozen agent cannot answer; the link is opened after the resume.
                Ok(Presence::Paused) => return LinkLoss::Unreachable,
                Ok(Presence::Running) if !again => {
                    if let Ok(agent) = connect_agent(&self.shared, self.id(), RECONNECT_TIMEOUT).await {
                        return LinkLoss::Reached(agent);
                    }
                }
                Ok(Presence::Running) => {}
                Err(error) => {
                    tracing::warn!(id = %self.id(), %error, "could not look at a sandbox that fell silent");
                }
            }
            tokio::time::sleep(INSPECT_INTERVAL).await;
        }
    }

    /// Clears away and records it. Where it cannot be recorded the next request tries again.
    pub(super) async fn processes_lost(&mut self) -> Result<(), EngineError> {
        tracing::warn!(id = %self.id(), "a sandbox's processes are gone; it is paused on its disk");
        self.phase = ProcessState::Stopped;
        self.shared.counters.processes_lost.add(1);
        self.reservation.lower(Hold::Stopped);
        if let Err(error) = self.stop().await {
            tracing::error!(id = %self.id(), %error, "could not clear away after lost processes");
        }
        let now = self.shared.clock.now();
        let mut next = (*self.record).clone();
        next.note = Some(PROCESSES_LOST.to_owned());
        if next.state == SandboxState::Running {
            next.state = SandboxState::Paused;
            next.paused_at = Some(now);
            next.accounting.paused(now);
        }
        Ok(self.commit(next, "sandbox.error", json!({ "message": PROCESSES_LOST }), now).await?)
    }
}
