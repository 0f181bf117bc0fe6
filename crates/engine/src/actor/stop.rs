//! Ends the processes of a sandbox on request and keeps its disk: a pause without processes, and a resume without them.

use std::time::Duration;

use api::EventKind;
use rules::{Hold, Operation, PausedProcesses, RepeatableWork, decide};
use serde_json::json;
use tokio::time::Instant;

use super::{Actor, ProcessState};
use crate::error::EngineError;
use crate::host::guest;
use crate::record::status::{PauseResult, ResumeResult};

/// The note of a sandbox whose processes ended at a pause.
const STOPPED: &str = "its processes ended at the pause; its disk is unchanged";
/// The note of a sandbox whose frozen or stored processes were discarded.
pub(super) const DISCARDED: &str = "its processes were discarded; its disk is unchanged";
/// The note of a sandbox whose frozen processes ended so that its disk can be mounted again.
pub(super) const DISK_WAS_READ_ONLY: &str =
    "its processes ended at the resume, because its disk had become read-only";
/// How long the detached executions may take to record their end.
const EXECUTIONS_TIMEOUT: Duration = Duration::from_secs(2);
const EXECUTIONS_INTERVAL: Duration = Duration::from_millis(2);

impl Actor {
    /// Pauses a running sandbox without its processes.
    pub(super) async fn stop(&mut self, reason: &str) -> Result<PauseResult, EngineError> {
        decide(self.record.state(), Operation::Pause)?;
        self.end_processes().await?;
        self.reservation.lower(Hold::Stopped);
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.paused(now, PausedProcesses::Ended { note: STOPPED.to_owned() });
        let runtime_duration_ms = next.lifecycle.finished_ms();
        let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
        if let Err(error) = self.commit(next, EventKind::SandboxPaused, data, now).await {
            self.processes_lost().await?;
            return Err(error.into());
        }
        self.context.counters.paused(reason);
        Ok(PauseResult { id: self.id().clone(), paused_at: now, runtime_duration_ms })
    }

    /// Resumes a paused sandbox without the processes that it has. `note` says why they ended.
    pub(super) async fn restart(&mut self, note: &str) -> Result<ResumeResult, EngineError> {
        decide(self.record.state(), Operation::Resume)?;
        let before = self.reservation.hold();
        // A sandbox that does not fit keeps its processes.
        self.raise_reservation().await?;
        if let Err(error) = self.discard_processes(note).await {
            let is_stopped = matches!(self.processes, ProcessState::Stopped);
            self.reservation.lower(if is_stopped { Hold::Stopped } else { before });
            return Err(error);
        }
        let resumed = self.try_resume().await;
        if resumed.is_err() {
            self.reservation.lower(Hold::Stopped);
        }
        resumed
    }

    /// Ends frozen processes and removes stored ones. The record is first: after a crash in between, the recovery does the rest.
    async fn discard_processes(&mut self, note: &str) -> Result<(), EngineError> {
        if matches!(self.processes, ProcessState::Stopped) {
            return Ok(());
        }
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.paused(now, PausedProcesses::Ended { note: note.to_owned() });
        self.commit_events(next, Vec::new(), now).await?;
        if !matches!(self.processes, ProcessState::Hibernated) {
            return self.end_processes().await;
        }
        self.context.host.driver().discard_memory(self.id()).await?;
        self.context.interruptions.forget(RepeatableWork::Wake, self.id().as_str()).await;
        self.count_stored_processes().await;
        self.processes = ProcessState::Stopped;
        self.publish_agent();
        Ok(())
    }

    /// Ends all processes, and waits until their executions know.
    pub(super) async fn end_processes(&mut self) -> Result<(), EngineError> {
        if let Err(error) = self.context.host.stop(&guest(&self.record)).await {
            if self.has_lost_processes().await {
                self.processes_lost().await?;
            }
            return Err(error);
        }
        self.processes = ProcessState::Stopped;
        self.publish_agent();
        self.wait_for_executions().await;
        Ok(())
    }

    /// Waits until all executions have recorded their end. False if they do not in time.
    pub(super) async fn wait_for_executions(&self) -> bool {
        let begin = Instant::now();
        while !self.executions.running_ops().is_empty() {
            if begin.elapsed() > EXECUTIONS_TIMEOUT {
                return false;
            }
            tokio::time::sleep(EXECUTIONS_INTERVAL).await;
        }
        true
    }
}
