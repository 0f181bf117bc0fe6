//! Errors of snapshots.

use api::{ErrorCode, SandboxId, SnapshotId};

use super::ApiError;

/// The snapshot does not exist, or was deleted.
pub fn no_snapshot(id: &str) -> ApiError {
    let message = format!("snapshot {} does not exist", rules::quoted(id));
    ApiError::new(ErrorCode::SnapshotNotFound, message).with_detail("snapshotId", id)
}

/// A rollback to the snapshot of another sandbox.
pub fn of_other_sandbox(id: &SnapshotId, sandbox: &SandboxId) -> ApiError {
    let message = format!(
        "snapshotId is '{id}', a snapshot of sandbox '{sandbox}'; allowed: a snapshot of this sandbox; to use another one, \
         create a sandbox from it"
    );
    ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "snapshotId")
}
