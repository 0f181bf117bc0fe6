//! The lifecycle of a sandbox: one value that says what the sandbox does, with the data that only this state has.
//!
//! ```text
//!                create                pause, idle time over, timeout
//!   (nothing) ----------> creating        +-------------+
//!                            |            |             v
//!                            +-------> running       paused <--- host rebooted
//!                            | started    ^             |
//!                            |            +-------------+
//!                            |              resume, or a command, file or port operation that may resume
//!                            v
//!   creating, running, paused ----------> terminated    (final; delete, lifetime over, paused too long)
//! ```
//!
//! The processes of a paused sandbox are frozen in memory, stored on its disk, or ended. The record of a sandbox has its [`Lifecycle`],
//! and only the sandbox's actor and the recovery change it, by the transitions below. [`decide`] says which operation may do so.
//!
//! Nothing fails: a transition that does not fit the state changes nothing, and after the clock was set back a run counts 0 instead of
//! less.
//!
//! [`decide`]: crate::decide

pub mod cost;
pub mod deadlines;
pub mod expiry_notice;
pub mod interruptions;
pub mod operations;
pub mod recovery;

use api::SandboxState;
use serde::{Deserialize, Serialize};

use crate::TimeMs;

/// The state of a sandbox. Its serialized form is stored: only additions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Lifecycle {
    /// It has not run yet.
    Creating,
    Running {
        /// When the present run began.
        since: TimeMs,
        runs: Runs,
    },
    Paused {
        since: TimeMs,
        runs: Runs,
        processes: PausedProcesses,
        next_disk: NextDisk,
    },
    Terminated {
        at: TimeMs,
        reason: String,
        /// If it was paused at its end.
        paused_since: Option<TimeMs>,
        /// `None` if it has never run.
        runs: Option<Runs>,
    },
}

/// The runs of a sandbox, which pauses separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// When the first one began.
    pub started_at: TimeMs,
    /// The running time of those that have ended.
    pub finished_ms: u64,
}

/// Where the processes of a paused sandbox are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PausedProcesses {
    /// In memory, frozen.
    Frozen,
    /// On its disk: the sandbox is hibernated. `note` is for the event of its resume.
    Stored { at: TimeMs, note: Option<String> },
    /// Its resume starts it again on its disk. `note` says why they ended, in the event of the resume.
    Ended { note: String },
}

/// The disk of the next start of a paused sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NextDisk {
    /// The one that it has.
    Own,
    /// The one that a rollback has prepared, which replaces its own.
    Prepared,
}

/// Where the processes of a sandbox are, or have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessState {
    Running,
    Frozen,
    Stored,
    /// It has none.
    Ended,
}

impl Runs {
    fn with_run(self, since: TimeMs, at: TimeMs) -> Self {
        Self { finished_ms: self.finished_ms.saturating_add(at.since(since)), ..self }
    }
}

/// Transitions.
impl Lifecycle {
    /// The first run begins.
    pub fn started(at: TimeMs) -> Self {
        Self::Running { since: at, runs: Runs { started_at: at, finished_ms: 0 } }
    }

    /// The run ends at `at`. Of a sandbox that is paused only the processes change.
    #[must_use]
    pub fn paused(&self, at: TimeMs, processes: PausedProcesses) -> Self {
        match self {
            Self::Running { since, runs } => {
                let (runs, next_disk) = (runs.with_run(*since, at), NextDisk::Own);
                Self::Paused { since: at, runs, processes, next_disk }
            }
            Self::Paused { since, runs, next_disk, .. } => {
                Self::Paused { since: *since, runs: *runs, processes, next_disk: *next_disk }
            }
            Self::Creating | Self::Terminated { .. } => self.clone(),
        }
    }

    /// The processes are stored at `stored_at`. The run, if it goes on, ends at `at`.
    #[must_use]
    pub fn hibernated(&self, at: TimeMs, stored_at: TimeMs) -> Self {
        let note = self.note().map(str::to_owned);
        self.paused(at, PausedProcesses::Stored { at: stored_at, note })
    }

    /// The processes are as a snapshot has them, and the disk of the snapshot is prepared.
    #[must_use]
    pub fn rolled_back(&self, at: TimeMs, processes: PausedProcesses) -> Self {
        self.paused(at, processes).with_disk(NextDisk::Prepared)
    }

    /// The prepared disk is the sandbox's own.
    #[must_use]
    pub fn with_own_disk(&self) -> Self {
        self.clone().with_disk(NextDisk::Own)
    }

    fn with_disk(mut self, disk: NextDisk) -> Self {
        if let Self::Paused { next_disk, .. } = &mut self {
            *next_disk = disk;
        }
        self
    }

    /// The next run begins.
    #[must_use]
    pub fn resumed(&self, at: TimeMs) -> Self {
        match self {
            Self::Paused { runs, .. } => Self::Running { since: at, runs: *runs },
            Self::Creating | Self::Running { .. } | Self::Terminated { .. } => self.clone(),
        }
    }

    #[must_use]
    pub fn terminated(&self, at: TimeMs, reason: &str) -> Self {
        let runs = match self {
            Self::Creating => None,
            Self::Running { since, runs } => Some(runs.with_run(*since, at)),
            Self::Paused { runs, .. } => Some(*runs),
            Self::Terminated { .. } => return self.clone(),
        };
        Self::Terminated { at, reason: reason.to_owned(), paused_since: self.paused_since(), runs }
    }
}

/// What follows from the value.
impl Lifecycle {
    /// The state that clients see.
    pub fn state(&self) -> SandboxState {
        match self {
            Self::Creating => SandboxState::Creating,
            Self::Running { .. } => SandboxState::Running,
            Self::Paused { .. } => SandboxState::Paused,
            Self::Terminated { .. } => SandboxState::Terminated,
        }
    }

    /// Where its processes have to be.
    pub fn process_state(&self) -> ProcessState {
        match self {
            Self::Creating | Self::Running { .. } => ProcessState::Running,
            Self::Paused { processes: PausedProcesses::Frozen, .. } => ProcessState::Frozen,
            Self::Paused { processes: PausedProcesses::Stored { .. }, .. } => ProcessState::Stored,
            Self::Paused { processes: PausedProcesses::Ended { .. }, .. } | Self::Terminated { .. } => {
                ProcessState::Ended
            }
        }
    }

    /// What the event of its resume reports.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Paused { processes: PausedProcesses::Stored { note, .. }, .. } => note.as_deref(),
            Self::Paused { processes: PausedProcesses::Ended { note }, .. } => Some(note),
            Self::Creating | Self::Running { .. } | Self::Paused { .. } | Self::Terminated { .. } => None,
        }
    }

    /// Whether its next start replaces its disk by the prepared one.
    pub fn has_prepared_disk(&self) -> bool {
        matches!(self, Self::Paused { next_disk: NextDisk::Prepared, .. })
    }

    fn runs(&self) -> Option<Runs> {
        match self {
            Self::Creating => None,
            Self::Running { runs, .. } | Self::Paused { runs, .. } => Some(*runs),
            Self::Terminated { runs, .. } => *runs,
        }
    }

    /// When the first run began.
    pub fn started_at(&self) -> Option<TimeMs> {
        self.runs().map(|runs| runs.started_at)
    }

    /// When the current run began.
    pub fn running_since(&self) -> Option<TimeMs> {
        match self {
            Self::Running { since, .. } => Some(*since),
            Self::Creating | Self::Paused { .. } | Self::Terminated { .. } => None,
        }
    }

    /// When the present pause began; `None` if the sandbox is not paused.
    pub fn paused_since(&self) -> Option<TimeMs> {
        match self {
            Self::Paused { since, .. } => Some(*since),
            Self::Creating | Self::Running { .. } | Self::Terminated { .. } => None,
        }
    }

    /// When the pause began in which it is, or in which it was terminated.
    pub fn paused_at(&self) -> Option<TimeMs> {
        match self {
            Self::Terminated { paused_since, .. } => *paused_since,
            Self::Creating | Self::Running { .. } | Self::Paused { .. } => self.paused_since(),
        }
    }

    /// When its processes were stored, if they are.
    pub fn hibernated_at(&self) -> Option<TimeMs> {
        match self {
            Self::Paused { processes: PausedProcesses::Stored { at, .. }, .. } => Some(*at),
            Self::Creating | Self::Running { .. } | Self::Paused { .. } | Self::Terminated { .. } => None,
        }
    }

    /// When it was terminated, and why.
    pub fn end(&self) -> Option<(TimeMs, &str)> {
        match self {
            Self::Terminated { at, reason, .. } => Some((*at, reason)),
            Self::Creating | Self::Running { .. } | Self::Paused { .. } => None,
        }
    }

    /// The running time of all finished runs, without the current one.
    pub fn finished_ms(&self) -> u64 {
        self.runs().map_or(0, |runs| runs.finished_ms)
    }

    /// The running time over all runs until `at`, including the current one.
    pub fn running_ms(&self, at: TimeMs) -> u64 {
        let current_ms = self.running_since().map_or(0, |since| at.since(since));
        self.finished_ms().saturating_add(current_ms)
    }

    /// When the running time reaches `lifetime_ms` if the current run continues; `None` while the sandbox does not run.
    pub fn reaches(&self, lifetime_ms: u64) -> Option<TimeMs> {
        let since = self.running_since()?;
        Some(since.after(lifetime_ms.saturating_sub(self.finished_ms())))
    }

    /// All of its times.
    pub fn times(&self) -> impl Iterator<Item = TimeMs> {
        let end = self.end().map(|(at, _)| at);
        let times = [self.started_at(), self.running_since(), self.paused_at(), self.hibernated_at(), end];
        times.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
