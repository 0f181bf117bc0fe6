//! What snapshots count as in the quotas of their account.

use store::{SnapshotRecord, SnapshotVisibility};

/// Which quotas a snapshot counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind {
    Requested,
    /// A client of the engine takes it for itself: only its bytes count.
    Internal,
    /// It never has a record: its bytes count as those of a snapshot and as disk.
    Hidden,
}

impl SnapshotKind {
    pub(super) fn of(record: &SnapshotRecord) -> Self {
        match record.visibility {
            SnapshotVisibility::Account => Self::Requested,
            SnapshotVisibility::Internal { .. } => Self::Internal,
        }
    }

    pub(super) const fn counts_as(self) -> u64 {
        match self {
            Self::Requested => 1,
            Self::Internal | Self::Hidden => 0,
        }
    }
}

/// What the snapshots of an account use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotUsage {
    pub count: u64,
    pub bytes: u64,
}
