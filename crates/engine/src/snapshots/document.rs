//! What a stored copy says of its snapshot, for other hosts. Paths of this host are left out: layers of snapshots are named by their ids,
//! and those of the image by its digest.

use std::collections::BTreeMap;

use api::{Isolation, Resources, SandboxId, SnapshotId};
use driver::Disks;
use rules::TimeMs;
use serde::{Deserialize, Serialize};
use store::{SnapshotRecord, SnapshotVisibility};

use super::snapshot_ids;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    sandbox_id: SandboxId,
    name: Option<String>,
    image: String,
    image_digest: String,
    image_env: Vec<String>,
    /// Missing in copies of earlier versions.
    #[serde(default)]
    workdir: Option<String>,
    isolation: Isolation,
    /// Topmost first: the snapshot and those below it.
    snapshots: Vec<SnapshotId>,
    resources: Resources,
    memory: bool,
    size_bytes: u64,
    metadata: BTreeMap<String, String>,
    created_at_ms: u64,
}

impl Document {
    pub fn of(record: &SnapshotRecord) -> Self {
        Self {
            sandbox_id: record.sandbox.clone(),
            name: record.name.clone(),
            image: record.image.clone(),
            image_digest: record.image_digest.clone(),
            image_env: record.image_env.clone(),
            workdir: record.workdir.clone(),
            isolation: record.isolation,
            snapshots: snapshot_ids(&record.layers),
            resources: record.resources,
            memory: record.memory,
            size_bytes: record.bytes,
            metadata: record.metadata.clone(),
            created_at_ms: record.created_at.0,
        }
    }

    pub fn image(&self) -> &str {
        &self.image
    }

    pub fn image_digest(&self) -> &str {
        &self.image_digest
    }

    /// The record as this host would have it.
    pub fn into_record(
        self,
        id: SnapshotId,
        account: &str,
        driver: &dyn Disks,
        image_layers: Vec<String>,
    ) -> SnapshotRecord {
        let snapshots = self.snapshots.iter().map(|below| driver.snapshot_layer(below));
        let snapshots = snapshots.map(|layer| layer.to_string_lossy().into_owned());
        SnapshotRecord {
            id,
            account: account.to_owned(),
            sandbox: self.sandbox_id,
            name: self.name,
            image: self.image,
            image_digest: self.image_digest,
            image_env: self.image_env,
            workdir: self.workdir,
            isolation: self.isolation,
            layers: snapshots.chain(image_layers).collect(),
            resources: self.resources,
            memory: self.memory,
            bytes: self.size_bytes,
            metadata: self.metadata,
            created_at: TimeMs(self.created_at_ms),
            visibility: SnapshotVisibility::Account,
        }
    }
}
