//! What a stored copy of a hibernated sandbox says of it, for the host that adopts it.

use api::{SandboxConfig, SnapshotId};
use driver::Disks;
use rules::{Lifecycle, Runs, TimeMs};
use serde::{Deserialize, Serialize};
use store::{SandboxRecord, SnapshotRecord};

use super::document::Document;

/// The copy of the disk and the processes, like a snapshot, and the sandbox. Exposed ports are left out: their tokens are of its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDocument {
    copy_id: SnapshotId,
    copy: Document,
    config: SandboxConfig,
    created_at_ms: u64,
    started_at_ms: Option<u64>,
    paused_at_ms: Option<u64>,
    pub hibernated_at_ms: u64,
    /// Running time until the pause.
    runtime_ms: u64,
    lifetime_ms: u64,
    revision: u64,
}

impl SandboxDocument {
    /// `copy` was taken of the sandbox while it was hibernated.
    pub fn of(record: &SandboxRecord, copy: &SnapshotRecord) -> Option<Self> {
        Some(Self {
            copy_id: copy.id.clone(),
            copy: Document::of(copy),
            config: record.config.clone(),
            created_at_ms: record.created_at.0,
            started_at_ms: record.lifecycle.started_at().map(|at| at.0),
            paused_at_ms: record.lifecycle.paused_since().map(|at| at.0),
            hibernated_at_ms: record.lifecycle.hibernated_at()?.0,
            runtime_ms: record.lifecycle.finished_ms(),
            lifetime_ms: record.lifetime_ms,
            revision: record.revision,
        })
    }

    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// The copy as a snapshot of the host that adopts the sandbox.
    pub fn copy(&self, account: &str, driver: &dyn Disks, image_layers: Vec<String>) -> SnapshotRecord {
        self.copy.clone().into_record(self.copy_id.clone(), account, driver, image_layers)
    }

    pub fn image(&self) -> (&str, &str) {
        (&self.config.image, self.copy.image_digest())
    }

    /// The names of what it was created from, as its host knows them.
    pub fn images(&self) -> [&str; 2] {
        [&self.config.image, self.copy.image()]
    }

    /// The record of the sandbox, which goes on here, from that of a new sandbox. Returns how long it was paused, too.
    pub fn continue_as(&self, new: SandboxRecord, now: TimeMs) -> (SandboxRecord, u64) {
        let since = TimeMs(self.paused_at_ms.unwrap_or(self.hibernated_at_ms));
        let started_at = TimeMs(self.started_at_ms.unwrap_or(self.created_at_ms));
        let runs = Runs { started_at, finished_ms: self.runtime_ms };
        let record = SandboxRecord {
            created_at: TimeMs(self.created_at_ms),
            lifecycle: Lifecycle::Running { since: now, runs },
            lifetime_ms: self.lifetime_ms,
            revision: self.revision.saturating_add(1),
            ..new
        };
        (record, now.since(since))
    }
}
