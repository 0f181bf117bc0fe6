//! Converts records of snapshots to types of the API.

use api::{SnapshotState, SnapshotView};
use engine::Engine;
use store::SnapshotRecord;

pub fn snapshot(engine: &Engine, record: &SnapshotRecord) -> SnapshotView {
    SnapshotView {
        id: record.id.clone(),
        sandbox_id: record.sandbox.clone(),
        name: record.name.clone(),
        image: record.image.clone(),
        isolation: record.isolation,
        memory: record.memory,
        size_bytes: record.bytes,
        state: SnapshotState::Ready,
        storage: engine.snapshot_storage(record),
        created_at: record.created_at.into(),
        metadata: record.metadata.clone(),
    }
}
