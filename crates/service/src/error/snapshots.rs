//! Errors of snapshots.

use admission::error::{ApiError, Condition, RefusalCode};
use api::{ErrorCode, SandboxId, SnapshotId};
use archive::ArchiveError;
use engine::SnapshotError;

/// The object store may work again.
const STORE_RETRY_S: u64 = 10;

/// The snapshot does not exist, or was deleted.
pub fn no_snapshot(id: &str) -> ApiError {
    let message = format!("snapshot {} does not exist", rules::quoted(id));
    ApiError::new(ErrorCode::SnapshotNotFound, message).with_detail("snapshotId", id)
}

/// A rollback to the snapshot of another sandbox.
fn of_other_sandbox(id: &SnapshotId, sandbox: &SandboxId) -> ApiError {
    let message = format!(
        "snapshotId is '{id}', a snapshot of sandbox '{sandbox}'; allowed: a snapshot of this sandbox; to use another one, \
         create a sandbox from it"
    );
    ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "snapshotId")
}

/// What stands between a request and a snapshot, or the copy of a sandbox in the object store.
pub fn of_snapshot(error: SnapshotError) -> ApiError {
    let message = error.to_string();
    match error {
        SnapshotError::NotFound { id } => no_snapshot(id.as_str()),
        SnapshotError::Foreign { id, sandbox } => of_other_sandbox(&id, &sandbox),
        SnapshotError::Arriving { .. } => unavailable(&message, Condition::SnapshotCopy),
        SnapshotError::OtherImage { .. } => {
            let message = format!("{message}; ask the operator to import that image");
            ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "image")
        }
        SnapshotError::WeakIsolation { .. } => {
            ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "isolation")
        }
        SnapshotError::OfOtherHost { .. } | SnapshotError::AdoptedElsewhere => {
            ApiError::new(ErrorCode::InvalidState, message)
        }
        SnapshotError::Archive(error) => of_archive(error),
    }
}

fn unavailable(why: &str, condition: Condition) -> ApiError {
    ApiError::refused(RefusalCode::ResourceExhausted, why, condition, STORE_RETRY_S)
}

/// The addresses of objects are only in the log.
fn of_archive(error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Unavailable { .. } => {
            let why = "the snapshot is in the object store, which does not answer now";
            unavailable(why, Condition::ObjectStore).with_cause(error)
        }
        ArchiveError::Damaged { .. } | ArchiveError::Missing { .. } => {
            let message = "the object store has lost or damaged a part of the snapshot, so nothing was created from it; the \
                           operator can find the part in the log by the id of this request";
            ApiError::new(ErrorCode::InternalError, message).with_cause(error)
        }
        ArchiveError::Unauthentic { .. } => {
            let message = "no host that has the secret of this one has stored the copy in the object store, so nothing was created \
                           from it; the operator can find the reason in the log by the id of this request";
            ApiError::new(ErrorCode::InternalError, message).with_cause(error)
        }
        error => ApiError::internal(error),
    }
}
