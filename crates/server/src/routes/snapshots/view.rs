//! Converts records of snapshots to types of the API.

use api::{SnapshotState, SnapshotView};
use store::SnapshotRecord;

pub fn snapshot(record: &SnapshotRecord) -> SnapshotView {
    SnapshotView {
        id: record.id.clone(),
        sandbox_id: record.sandbox.clone(),
        name: record.name.clone(),
        image: record.image.clone(),
        isolation: record.isolation,
        memory: record.memory,
        size_bytes: record.bytes,
        state: SnapshotState::Ready,
        created_at: record.created_at.into(),
        metadata: record.metadata.clone(),
    }
}
