//! Deletes a snapshot. Its disk stays on the host as long as sandboxes or other snapshots are above it.

use api::EventKind;
use rules::TimeMs;
use serde_json::json;
use store::{Batch, NewEvent, SnapshotRecord};

use crate::error::EngineError;
use crate::services::Services;

pub async fn delete(
    services: &Services,
    record: &SnapshotRecord,
    reason: &str,
) -> Result<TimeMs, EngineError> {
    let now = services.stamped_store.now();
    let event = NewEvent {
        sandbox: record.sandbox.clone(),
        account: record.account.clone(),
        run: String::new(),
        at: now,
        kind: EventKind::SnapshotDeleted,
        data: json!({ "snapshotId": record.id, "reason": reason }),
        once: Some(format!("deletion of {}", record.id)),
    };
    let batch = Batch::new().delete_snapshot(record.id.clone()).event(event);
    services.stamped_store.commit(batch).await?;
    services.snapshots.remove(&record.id);
    services.snapshots.request_store();
    Ok(now)
}
