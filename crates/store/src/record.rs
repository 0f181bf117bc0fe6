//! What is stored and what is read back. Plain data; only [`SandboxRecord::check`] decides anything.

use std::collections::BTreeMap;

use api::{PortVisibility, Resources, SandboxConfig, SandboxId, SandboxState};
use rules::{Accounting, Phase, TimeMs};

/// The most items that one read of a list or of events brings.
pub const MAX_PAGE: u32 = 1000;

/// All that has to be known of a sandbox to find it again after the daemon died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub account: String,
    pub state: SandboxState,
    pub config: SandboxConfig,
    /// Number of its range of host user ids; no two living sandboxes have the same.
    pub slot: u32,
    pub image_digest: String,
    /// The image's layers as the driver takes them, topmost first.
    pub layers: Vec<String>,
    /// The image's environment, `NAME=value`: kept, for the image may be gone or another by the next command.
    pub image_env: Vec<String>,
    pub created_at: TimeMs,
    pub started_at: Option<TimeMs>,
    pub paused_at: Option<TimeMs>,
    /// Set exactly when the state is `terminated`.
    pub terminated_at: Option<TimeMs>,
    /// Why it was terminated.
    pub reason: Option<String>,
    pub accounting: Accounting,
    /// Goes up with every write of the record; a write that is not newer than what is stored is refused.
    pub revision: u64,
    /// What its next event has to say, such as that its processes were lost.
    pub note: Option<String>,
    /// Reached from outside, by their numbers; each number once.
    pub ports: Vec<ExposedPort>,
}

/// A port of a sandbox that is reached from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedPort {
    pub port: u16,
    pub visibility: PortVisibility,
    /// Whether traffic resumes the sandbox.
    pub auto_resume: bool,
    pub exposed_at: TimeMs,
    /// Random, and another with each exposure: what was given out for an earlier one opens nothing.
    pub seal: [u8; 16],
}

impl SandboxRecord {
    /// Whether the record agrees with itself; if not, why.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if (self.state == SandboxState::Terminated) != self.terminated_at.is_some() {
            return Err("its terminated_at must be set exactly when its state is terminated");
        }
        let since = match self.accounting.phase() {
            Phase::Running { since } | Phase::Paused { since } => Some(since),
            Phase::NotStarted | Phase::Ended => None,
        };
        let times = [Some(self.created_at), self.started_at, self.paused_at, self.terminated_at, since];
        let exposed = self.ports.iter().map(|port| port.exposed_at.0);
        let numbers = times
            .into_iter()
            .flatten()
            .map(|at| at.0)
            .chain([self.accounting.finished_ms(), self.revision])
            .chain(exposed);
        // What a database calls an integer; every store keeps to it.
        if numbers.into_iter().any(|number| i64::try_from(number).is_err()) {
            return Err("one of its times or numbers is past the range of 63 bits");
        }
        if !self.ports.is_sorted_by(|one, next| one.port < next.port) {
            return Err("its ports must be in order, each once");
        }
        Ok(())
    }
}

/// A sandbox as lists show it.
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
}

/// Which sandboxes a list shows: those of one account that fit everything given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub account: String,
    pub state: Option<SandboxState>,
    pub image: Option<String>,
    /// Every pair has to be there.
    pub metadata: BTreeMap<String, String>,
}

/// Which part of a list is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// At most [`MAX_PAGE`] are read, whatever this says.
    pub limit: u32,
    pub offset: u64,
}

/// One page, newest first by `created_at`, of those created together the one stored later first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub items: Vec<SandboxSummary>,
    /// All that fit the filter, exactly, at the moment of the page.
    pub total: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Goes up with every event of the store and is never given twice.
    pub sequence: u64,
    pub sandbox: SandboxId,
    pub account: String,
    /// The run it belongs to; empty for none.
    pub run: String,
    pub at: TimeMs,
    /// `sandbox.created`, ...
    pub kind: String,
    pub data: serde_json::Value,
}
