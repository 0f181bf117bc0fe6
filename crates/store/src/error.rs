//! Errors of a store. All stores use one enum, so that callers do not depend on the implementation.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use api::SandboxId;

/// The cause of an error, which clones of the error share. Two causes are equal if their texts are.
#[derive(Debug, Clone)]
pub struct StoreCause(Arc<dyn Error + Send + Sync>);

impl StoreCause {
    /// Takes any error, or its text.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(cause.into()))
    }
}

impl PartialEq for StoreCause {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for StoreCause {}

impl fmt::Display for StoreCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// `#[source]` of an error is the cause itself, so this type must not be an error.
impl Deref for StoreCause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Why records could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A newer version of the record exists: there are two writers for one sandbox.
    #[error("the record of sandbox {id} is stored with revision {stored}; revision {offered} is not newer")]
    Stale { id: SandboxId, stored: u64, offered: u64 },
    /// Two living sandboxes would share their host user ids.
    #[error("slot {slot} is in use by another sandbox; sandbox {id} needs a free one")]
    SlotTaken { id: SandboxId, slot: u32 },
    #[error("the record of sandbox {id} cannot be stored: {reason}")]
    BadRecord { id: SandboxId, reason: &'static str },
    #[error("{what} cannot be stored: {reason}")]
    BadRow { what: &'static str, reason: &'static str },
    #[error("a key with the id {id} or with the same text exists already; create another")]
    KeyTaken { id: String },
    #[error("there is no key {id}; list the keys to see their ids")]
    NoSuchKey { id: String },
    /// A record with this idempotency key exists; nothing of the batch was applied.
    #[error("{endpoint} already has a record for the idempotency key {key:?}")]
    AlreadyRecorded { endpoint: String, key: String },
    #[error("a batch has {writes} writes; at most {most} are allowed")]
    BatchTooLarge { writes: usize, most: usize },
    /// The store was closed, or its writer thread ended.
    #[error("the store is closed")]
    Closed,
    /// A step failed. If it was a commit, none of its writes is visible.
    #[error("{step}: {source}")]
    Failed { step: &'static str, source: StoreCause },
    /// The file cannot be read.
    #[error(
        "the database {} is damaged: {source}; restore it from a backup, or move it away and start once with 'sandboxd serve --discard-orphans', which makes an empty one and deletes all sandboxes and snapshots",
        path.display()
    )]
    Damaged { path: PathBuf, source: StoreCause },
    /// Another program made the file.
    #[error("{} is not a database of this service: {source}; choose another path", path.display())]
    Foreign { path: PathBuf, source: StoreCause },
    /// A newer version of the service wrote it.
    #[error(
        "the database {} has version {found} and this program knows up to {known}; run the newer program again, or restore the backup made before its upgrade",
        path.display()
    )]
    TooNew { path: PathBuf, found: i64, known: i64 },
}

impl StoreError {
    /// An error of the system or of the database at a step.
    pub fn failed(step: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed { step, source: StoreCause::new(cause) }
    }

    /// Whether the disk of the store has no space left for a write. Reads and small writes may still succeed.
    pub fn is_disk_full(&self) -> bool {
        let Self::Failed { source, .. } = self else { return false };
        let sqlite = source.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
        sqlite == Some(rusqlite::ErrorCode::DiskFull) || base::is_disk_full(&**source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let sqlite = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        assert!(StoreError::failed("cannot commit", sqlite(rusqlite::ffi::SQLITE_FULL)).is_disk_full());
        assert!(!StoreError::failed("cannot commit", sqlite(rusqlite::ffi::SQLITE_BUSY)).is_disk_full());
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(StoreError::failed("cannot append an event", full).is_disk_full());
        assert!(!StoreError::Closed.is_disk_full());
    }

    #[test]
    fn a_failed_step_has_the_cause_as_source() {
        let error =
            StoreError::failed("cannot commit", std::io::Error::from(std::io::ErrorKind::StorageFull));
        let source = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(error.to_string(), format!("cannot commit: {source}"));
        assert_eq!(error.clone(), error);
        assert_ne!(error, StoreError::failed("cannot commit", "another cause"));
    }
}
