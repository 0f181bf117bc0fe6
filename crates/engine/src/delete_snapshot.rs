//! Deletes a snapshot. Its disk stays on the host as long as sandboxes or other snapshots are above it.

use api::EventKind;
use rules::TimeMs;
use serde_json::json;
use store::{Batch, NewEvent, SnapshotRecord};

use crate::error::EngineError;
use crate::events;
use crate::services::Services;

pub async fn delete(
    services: &Services,
    record: &SnapshotRecord,
    reason: &str,
) -> Result<TimeMs, EngineError> {
    let now = services.stamped_store.now();
    let data = json!({ "snapshotId": record.id, "reason": reason });
    let event = NewEvent {
        once: Some(format!("deletion of {}", record.id)),
        ..events::of_snapshot(record, now, EventKind::SnapshotDeleted, data)
    };
    let batch = Batch::new().delete_snapshot(record.id.clone()).event(event);
    services.stamped_store.commit(batch).await?;
    services.snapshots.remove(&record.id);
    services.snapshots.request_sync();
    Ok(now)
}
