//! Hibernation: the processes of a paused sandbox are stored on the disk and leave the memory.
//!
//! ```text
//! store and end the processes -> release what the sandbox holds -> commit
//! continue them (see `wake`)  -> commit that it runs -> discard what is stored
//! ```
//!
//! What is stored counts in the account's quota of disk.
//!
//! From the first step on the processes are on the disk, whatever the record says: a crash in between loses nothing.

use api::{EventKind, Isolation, SandboxState};
use driver::{DiskUse, Presence};
use rules::{Hold, Operation, RepeatableWork, decide};
use serde_json::json;

use super::{Actor, ProcessState};
use crate::capacity::ledger::QuotaCheck;
use crate::error::{EngineError, HibernationError, SandboxError};
use crate::host::{BOOT_TIMEOUT, SETUP_TIMEOUT, guest};
use crate::link::Agent;
use crate::record::events;
use crate::record::status::PauseResult;

/// The reason of a hibernation, as the event carries it.
pub const MEMORY_PRESSURE: &str = "memory_pressure";

impl Actor {
    /// Pauses the sandbox, if it runs, and stores its processes. Succeeds if it has none.
    pub(super) async fn hibernate(
        &mut self,
        reason: &str,
        check: QuotaCheck,
    ) -> Result<PauseResult, EngineError> {
        decide(self.record.state(), Operation::Hibernate)?;
        match self.processes {
            ProcessState::Running(_) | ProcessState::Frozen(_) => {
                self.admit_stored_processes(check).await?;
                let stored = self.store_processes().await;
                self.count_stored_processes().await;
                stored?;
            }
            ProcessState::Hibernated if self.record.lifecycle.hibernated_at().is_none() => {}
            ProcessState::Hibernated | ProcessState::Stopped => return Ok(self.paused_result()),
        }
        self.commit_hibernated(reason).await?;
        Ok(self.paused_result())
    }

    /// Whether the sandbox holds memory that it does not need while it is paused.
    pub(super) fn can_free_memory(&self) -> bool {
        matches!(self.processes, ProcessState::Frozen(_))
            && (self.can_hibernate() || self.paged_out != self.record.lifecycle.paused_since())
    }

    fn can_hibernate(&self) -> bool {
        self.context.host.driver().can_store_processes(self.record.config.isolation)
    }

    /// Hibernates a paused sandbox. If its isolation cannot store processes, moves its memory to the host's swap space, once for
    /// each pause. Returns whether that freed memory.
    pub(super) async fn free_memory(&mut self, reason: &str) -> Result<bool, EngineError> {
        if !self.can_free_memory() {
            return Ok(false);
        }
        if self.can_hibernate() {
            if !self.timeouts.allow_hibernation(self.context.stamped_store.now()) {
                return Ok(false);
            }
            // It frees memory of the host, so no quota prevents it.
            return self.hibernate(reason, QuotaCheck::CountOnly).await.map(|_| true);
        }
        self.paged_out = self.record.lifecycle.paused_since();
        let bytes = self.context.host.driver().page_out(self.id()).await?;
        if bytes > 0 {
            tracing::debug!(id = %self.id(), bytes, "moved the memory of a paused sandbox to swap space");
            self.context.counters.paged_out.add(1);
        }
        Ok(bytes > 0)
    }

    /// Counts what the processes are going to take on the disk: at most their memory.
    async fn admit_stored_processes(&mut self, check: QuotaCheck) -> Result<(), EngineError> {
        let used = self.context.host.driver().resource_use(self.id()).await?;
        let bytes = used.map_or(0, |used| used.memory);
        Ok(self.reservation.set_stored_bytes(bytes, check)?)
    }

    /// Counts the stored processes that are on the disk.
    pub(super) async fn count_stored_processes(&mut self) {
        match self.context.host.driver().disk_use(self.id()).await {
            // Not refused: they are on the disk.
            Ok(DiskUse { stored, .. }) => {
                let _ = self.reservation.set_stored_bytes(stored, QuotaCheck::CountOnly);
            }
            Err(error) => {
                tracing::warn!(id = %self.id(), %error, "could not find out the size of stored processes");
            }
        }
    }

    /// Fails if the isolation of the sandbox cannot store processes, with one that can.
    pub(super) async fn check_isolation(&self) -> Result<(), EngineError> {
        let driver = self.context.host.driver();
        let isolation = self.actual_isolation().await;
        if driver.can_store_processes(isolation) {
            return Ok(());
        }
        let other = Isolation::ALL.into_iter().find(|other| driver.can_store_processes(*other));
        let advice = match other {
            Some(other) => format!("create it with isolation '{other}'"),
            None => "this host has no isolation that can".to_owned(),
        };
        let reason = format!("its isolation is '{isolation}'; {advice}");
        Err(EngineError::Hibernation(HibernationError::NotStorable { reason }))
    }

    async fn store_processes(&mut self) -> Result<(), EngineError> {
        self.check_isolation().await?;
        if self.context.host.has_read_only_disk(self.id()).await {
            // The disk lacks what the processes have written last, also once it is mounted again: they must not continue on it.
            self.timeouts.retry_hibernation(self.context.stamped_store.now());
            return Err(SandboxError::ReadOnlyDisk.into());
        }
        let driver = self.context.host.driver();
        let work = self.begin_work(RepeatableWork::Hibernation).await.map_err(EngineError::of_hibernation);
        let work = work.inspect_err(|_| self.timeouts.retry_hibernation(self.context.stamped_store.now()))?;
        let stored = driver.hibernate(self.id()).await;
        work.end().await;
        if stored.is_err() {
            self.timeouts.retry_hibernation(self.context.stamped_store.now());
        }
        // If only what follows the storing has failed, the next attempt records it.
        if stored.is_err() && !matches!(driver.inspect(self.id()).await, Ok(Presence::Hibernated)) {
            if self.has_lost_processes().await {
                self.processes_lost().await?;
            }
            return Ok(stored.map(drop)?);
        }
        self.processes = ProcessState::Hibernated;
        self.publish_agent();
        self.context.counters.hibernated.add(1);
        if let Err(error) = self.context.host.stop(&guest(&self.record)).await {
            tracing::error!(id = %self.id(), %error, "could not remove what a hibernated sandbox left on the host");
        }
        self.reservation.lower(Hold::Stopped);
        Ok(stored.map(drop)?)
    }

    /// Records that the processes are stored.
    async fn commit_hibernated(&mut self, reason: &str) -> Result<(), EngineError> {
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.hibernated(now, now);
        let mut recorded = Vec::new();
        if self.record.state() == SandboxState::Running {
            let runtime_duration_ms = next.lifecycle.finished_ms();
            let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
            recorded.push(events::of_sandbox(&next, now, EventKind::SandboxPaused, data));
            self.context.counters.paused(reason);
        }
        let data = json!({ "reason": reason });
        recorded.push(events::of_sandbox(&next, now, EventKind::SandboxHibernated, data));
        Ok(self.commit_events(next, recorded, now).await?)
    }

    /// Records a hibernation whose record could not be committed before.
    pub(super) async fn settle_hibernation(&mut self) -> Result<(), EngineError> {
        if matches!(self.processes, ProcessState::Hibernated) && self.record.state() == SandboxState::Running
        {
            self.commit_hibernated(super::ON_REQUEST).await?;
        }
        Ok(())
    }

    /// Continues the stored processes. The network opens last: after they are told that they may be copies.
    pub(super) async fn wake_processes(&mut self) -> Result<Agent, EngineError> {
        let work = self.begin_work(RepeatableWork::Wake).await.map_err(EngineError::of_wake)?;
        let woken = self.continue_processes().await;
        work.end().await;
        woken
    }

    async fn continue_processes(&mut self) -> Result<Agent, EngineError> {
        self.context.host.wake(&self.spec).await.map_err(EngineError::of_wake)?;
        // The stored processes no longer match the disk: if something else fails, the running ones are frozen.
        self.processes = ProcessState::Frozen(None);
        let agent = self.connect(BOOT_TIMEOUT).await.map_err(EngineError::of_wake)?;
        self.complete_wake(Some(&agent)).await?;
        Ok(agent)
    }

    /// The steps of a wake after the processes run. A wake whose record was not committed may have missed them.
    pub(super) async fn complete_wake(&self, agent: Option<&Agent>) -> Result<(), EngineError> {
        if let Some(agent) = agent.filter(|_| self.can_hibernate())
            && let Err(error) = agent.adopt(&self.id().host_name(), SETUP_TIMEOUT).await
        {
            // The owner has put something else in place of the file that announces the copy.
            tracing::warn!(id = %self.id(), %error, "could not announce to a sandbox that its processes continue");
        }
        // Also if the record does not say that the processes were stored: their network was removed then.
        let egress = &self.record.config.network.egress;
        Ok(self.context.host.network().apply(&guest(&self.record), egress).await?)
    }

    /// Removes the stored processes of a sandbox that runs again.
    pub(super) async fn discard_memory(&mut self) {
        if let Err(error) = self.context.host.driver().discard_memory(self.id()).await {
            tracing::error!(id = %self.id(), %error, "could not remove the stored processes of a sandbox that runs");
            return;
        }
        self.count_stored_processes().await;
    }
}
