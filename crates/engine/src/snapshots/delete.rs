//! Deletes a snapshot. Its disk stays on the host as long as sandboxes or other snapshots are above it.

use api::EventKind;
use rules::TimeMs;
use serde_json::json;
use store::{Batch, NewEvent, SnapshotRecord};

use super::SnapshotRegistry;
use crate::error::EngineError;
use crate::record::events;
use crate::record::stamped_store::StampedStore;

pub async fn delete(
    stamped_store: &StampedStore,
    snapshots: &SnapshotRegistry,
    record: &SnapshotRecord,
    reason: &str,
) -> Result<TimeMs, EngineError> {
    let now = stamped_store.now();
    let data = json!({ "snapshotId": record.id, "reason": reason });
    let event = NewEvent {
        once: Some(format!("deletion of {}", record.id)),
        ..events::of_snapshot(record, now, EventKind::SnapshotDeleted, data)
    };
    let batch = Batch::new().delete_snapshot(record.id.clone()).event(event);
    stamped_store.commit(batch).await?;
    snapshots.remove(&record.id);
    snapshots.request_sync();
    Ok(now)
}
