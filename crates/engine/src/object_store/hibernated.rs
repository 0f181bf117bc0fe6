//! Copies of hibernated sandboxes, so that another host can adopt them if this one is lost.
//!
//! The copy is taken like a snapshot with processes, so that the sandbox can wake meanwhile. When it has, the copy is removed.

use std::sync::Arc;

use api::SandboxId;
use driver::SnapshotScope;
use rules::TimeMs;
use store::SandboxRecord;

use super::find::document;
use super::upload::Worker;
use crate::capacity::ledger::QuotaCheck;
use crate::error::EngineError;
use crate::registry::mailbox::ActorRequest;
use crate::snapshots::{SandboxDocument, take};

/// The reason of the termination of a sandbox that another host has adopted.
const ADOPTED: &str = "adopted";

impl Worker {
    fn hibernated_at(&self, id: &SandboxId) -> Option<TimeMs> {
        self.services.registry.find(id)?.status.borrow().record.lifecycle.hibernated_at()
    }

    /// Whether the stored copy of a sandbox is that of its present hibernation.
    pub(super) fn is_current(&self, id: &str) -> bool {
        let Ok(id) = id.parse::<SandboxId>() else { return false };
        let stored = self.copies.stored_hibernation(&id);
        stored.is_some() && stored == self.hibernated_at(&id)
    }

    /// Hibernated sandboxes without a copy.
    pub(super) fn hibernated(&self) -> Vec<Arc<SandboxRecord>> {
        let mut records = self.services.registry.records();
        records.retain(|record| {
            let hibernated_at = record.lifecycle.hibernated_at();
            hibernated_at.is_some() && self.copies.stored_hibernation(&record.id) != hibernated_at
        });
        records
    }

    pub(super) async fn upload_hibernated(&self, record: &SandboxRecord) -> Result<(), EngineError> {
        // The copy below would be useless if the store accepts nothing.
        self.copies.archive.probe().await?;
        let Some(actor) = self.services.registry.find(&record.id) else { return Ok(()) };
        // The service wants the copy: it counts, and no quota keeps it from being made.
        let copy = take::hidden_copy(
            &self.services.taking(),
            &actor,
            SnapshotScope::Processes,
            QuotaCheck::CountOnly,
        )
        .await?;
        let Some(document) = SandboxDocument::of(&copy.copied.sandbox, &copy.record) else { return Ok(()) };
        let hibernated_at = TimeMs(document.hibernated_at_ms);
        // Serializing text and numbers cannot fail.
        let document = serde_json::to_value(document).unwrap_or_default();
        let source = self.source(record.id.as_str(), &copy.record, document).await?;
        let is_wanted = || self.hibernated_at(&record.id) == Some(hibernated_at);
        let sent = self.copies.archive.upload(&source, &is_wanted).await?;
        self.services.counters.snapshot_bytes_sent.add(sent.bytes);
        sent.complete()?;
        self.copies.set_stored_hibernation(&record.id, Some(hibernated_at));
        self.services.counters.sandboxes_stored.add(1);
        Ok(())
    }

    /// After a start: which hibernations are stored.
    pub(super) async fn read_hibernations(&self) -> Result<(), EngineError> {
        let archive = &self.copies.archive;
        for id in archive.ids() {
            let Ok(sandbox) = id.parse::<SandboxId>() else { continue };
            let Some(manifest) = archive.manifest(&id).await?.filter(|_| archive.has(&id)) else { continue };
            if let Ok(document) = document::<SandboxDocument>(&manifest) {
                self.copies.set_stored_hibernation(&sandbox, Some(TimeMs(document.hibernated_at_ms)));
            }
        }
        Ok(())
    }

    /// Ends the sandboxes that another host has adopted while this one was down. Their copies stay until that host has withdrawn them: it
    /// may need them again.
    pub(super) async fn give_up_adopted(&self) -> Result<(), EngineError> {
        let archive = &self.copies.archive;
        for id in archive.adopted().await? {
            // Before the termination, after which nothing else keeps the copy.
            archive.hand_over(&id)?;
            if let Ok(sandbox) = id.parse::<SandboxId>()
                && let Some(actor) = self.services.registry.find(&sandbox)
            {
                tracing::warn!(id, "another host has adopted this sandbox");
                let reason = ADOPTED.to_owned();
                actor.request(|reply| ActorRequest::Terminate { reason, reply }).await?;
            }
        }
        self.forget_withdrawn().await
    }

    /// Forgets adopted sandboxes whose copies their new hosts have withdrawn.
    pub(super) async fn forget_withdrawn(&self) -> Result<(), EngineError> {
        let archive = &self.copies.archive;
        for id in archive.handed_over() {
            if !archive.is_offered(&id).await? {
                archive.acknowledge(&id).await?;
            }
        }
        Ok(())
    }

    /// Withdraws the copies of sandboxes that this host has adopted, if that has failed before. `others` are stored by other hosts.
    pub(super) async fn withdraw_adopted(&self, others: &[String]) -> Result<(), EngineError> {
        for id in others {
            let is_here = id.parse().is_ok_and(|id| self.services.registry.find(&id).is_some());
            if is_here {
                self.copies.archive.withdraw(id).await?;
            }
        }
        Ok(())
    }
}
