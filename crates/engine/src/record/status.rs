//! The published status of a sandbox, and the results of its lifecycle operations.

use std::sync::Arc;

use api::{SandboxId, SandboxState};
use driver::MemoryKills;
use rules::TimeMs;
use store::SandboxRecord;

/// A published status. Its number is the revision of the record; later statuses have greater numbers.
#[derive(Debug, Clone)]
pub struct Status {
    pub record: Arc<SandboxRecord>,
    /// The last unexpected end of all processes that this daemon has seen.
    pub process_loss: Option<ProcessLoss>,
}

/// An unexpected end of all processes of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLoss {
    /// The number of the first status after it.
    pub number: u64,
    /// What the kernel had killed by then; `None` if the backend does not know.
    pub memory_kills: Option<MemoryKills>,
}

impl Status {
    pub fn new(record: SandboxRecord) -> Self {
        Self { record: Arc::new(record), process_loss: None }
    }

    pub fn number(&self) -> u64 {
        self.record.revision
    }

    pub fn state(&self) -> SandboxState {
        self.record.state()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseResult {
    pub id: SandboxId,
    pub paused_at: TimeMs,
    pub runtime_duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeResult {
    pub id: SandboxId,
    pub resumed_at: TimeMs,
    pub paused_duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminateResult {
    pub id: SandboxId,
    pub terminated_at: TimeMs,
    pub total_runtime_ms: u64,
}
