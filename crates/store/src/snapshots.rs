//! Records of snapshots.

use std::collections::BTreeMap;

use api::{Isolation, Resources, SandboxId, SnapshotId};
use rules::TimeMs;

/// A snapshot of a sandbox's disk. It never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    pub id: SnapshotId,
    pub account: String,
    pub sandbox: SandboxId,
    pub name: Option<String>,
    /// The image of the sandbox.
    pub image: String,
    pub image_digest: String,
    /// `NAME=value`.
    pub image_env: Vec<String>,
    /// The working directory of the sandbox, which is the default one above the snapshot. `None` if an earlier daemon took it.
    pub workdir: Option<String>,
    pub isolation: Isolation,
    /// In the form of the driver, topmost first: its own disk, the snapshots below it, and the layers of the image.
    pub layers: Vec<String>,
    /// Those of the sandbox.
    pub resources: Resources,
    /// Whether it has the processes of the sandbox.
    pub memory: bool,
    /// Bytes that its own disk and the processes occupy on the host.
    pub bytes: u64,
    pub metadata: BTreeMap<String, String>,
    pub created_at: TimeMs,
    pub visibility: SnapshotVisibility,
}

/// Who sees a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotVisibility {
    /// Its account.
    Account,
    /// Only the client of the engine that took it, and that finds it again by this key. The text is the client's, which alone knows
    /// what it means.
    Internal { origin_key: String },
}

impl SnapshotRecord {
    /// The key of an internal snapshot.
    pub fn origin_key(&self) -> Option<&str> {
        match &self.visibility {
            SnapshotVisibility::Account => None,
            SnapshotVisibility::Internal { origin_key } => Some(origin_key),
        }
    }

    /// Whether it can be stored, or why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        // The range of integers in databases.
        if [self.bytes, self.created_at.0].into_iter().any(|number| i64::try_from(number).is_err()) {
            return Err("its size or time exceeds 63 bits");
        }
        Ok(())
    }
}
