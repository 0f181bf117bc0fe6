//! Records of sandboxes, and lists of them. Plain data, with [`SandboxRecord::check`].

use std::collections::BTreeMap;

use api::{PortVisibility, Resources, SandboxConfig, SandboxId, SandboxState};
use rules::{Lifecycle, TimeMs};

/// The maximum number of items in one page.
pub const MAX_PAGE: u32 = 1000;

/// Everything that a new daemon needs to recover a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub account: String,
    pub lifecycle: Lifecycle,
    pub config: SandboxConfig,
    /// Number of its range of host user ids; no two living sandboxes have the same.
    pub slot: u32,
    pub image_digest: String,
    /// The image's layers in the form of the driver, topmost first.
    pub layers: Vec<String>,
    /// The image's environment, `NAME=value`: stored, because the image may be removed or replaced before the next command.
    pub image_env: Vec<String>,
    pub created_at: TimeMs,
    /// Running time at which the timeout ends.
    pub lifetime_ms: u64,
    /// Grows with every write of the record; a write that is not newer than the stored record is refused.
    pub revision: u64,
    /// Exposed ports, each number once.
    pub ports: Vec<ExposedPort>,
}

/// An exposed port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedPort {
    pub port: u16,
    pub visibility: PortVisibility,
    /// Whether traffic resumes the sandbox.
    pub auto_resume: bool,
    pub exposed_at: TimeMs,
    /// Random, and new with each exposure: tokens of an earlier exposure are not valid.
    pub seal: [u8; 16],
}

impl SandboxRecord {
    /// The state that clients see.
    pub fn state(&self) -> SandboxState {
        self.lifecycle.state()
    }

    /// When the timeout ends if the sandbox keeps running; `None` while it does not run.
    pub fn expires_at(&self) -> Option<TimeMs> {
        self.lifecycle.reaches(self.lifetime_ms)
    }

    /// Whether the record is consistent, or why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let exposed = self.ports.iter().map(|port| port.exposed_at);
        let times = self.lifecycle.times().chain([self.created_at]).chain(exposed);
        let numbers =
            times.map(|at| at.0).chain([self.lifecycle.finished_ms(), self.lifetime_ms, self.revision]);
        // The range of integers in databases.
        if numbers.into_iter().any(|number| i64::try_from(number).is_err()) {
            return Err("one of its times or numbers exceeds 63 bits");
        }
        if !self.ports.is_sorted_by(|one, next| one.port < next.port) {
            return Err("its ports must be in ascending order without duplicates");
        }
        Ok(())
    }
}

/// The part of a sandbox that lists contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSummary {
    pub id: SandboxId,
    pub state: SandboxState,
    pub image: String,
    pub resources: Resources,
    pub created_at: TimeMs,
    pub started_at: Option<TimeMs>,
    pub paused_at: Option<TimeMs>,
    pub terminated_at: Option<TimeMs>,
    /// Only of terminated sandboxes: the records of the others are in the memory of the engine.
    pub ended: Option<EndedSandbox>,
}

/// What a list has of the record of a terminated sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSandbox {
    /// With the name that its owner chose, as [`api::NAME_KEY`].
    pub metadata: BTreeMap<String, String>,
    /// Why it was terminated.
    pub reason: String,
}

/// Selects sandboxes of one account that match every given field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub account: String,
    pub state: Option<SandboxState>,
    pub image: Option<String>,
    /// All pairs must match.
    pub metadata: BTreeMap<String, String>,
}

/// A page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// Capped at [`MAX_PAGE`].
    pub limit: u32,
    pub offset: u64,
}

/// One page, newest first by `created_at`; ties are ordered by the time of storing, latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub items: Vec<SandboxSummary>,
    /// The exact number of sandboxes that match the filter, from the same snapshot.
    pub total: u64,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Grows with every event of the store and is never reused.
    pub sequence: u64,
    pub sandbox: SandboxId,
    pub account: String,
    /// The run it belongs to; empty if none.
    pub run: String,
    pub at: TimeMs,
    /// `sandbox.created`, ...
    pub kind: String,
    pub data: serde_json::Value,
}
