//! Errors of a store. All stores use one enum, so that callers do not depend on the implementation.

use std::path::PathBuf;

use api::SandboxId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A newer version of the record exists: there are two writers for one sandbox.
    #[error("the record of sandbox {id} is stored with revision {stored}; revision {offered} is not newer")]
    Stale { id: SandboxId, stored: u64, offered: u64 },
    /// Two living sandboxes would share their host user ids.
    #[error("slot {slot} is in use by a living sandbox; sandbox {id} needs another")]
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
    AlreadyRemembered { endpoint: String, key: String },
    #[error("a batch has {writes} writes; at most {most} are allowed")]
    BatchTooLarge { writes: usize, most: usize },
    /// The store was closed, or its writer thread ended.
    #[error("the store is closed")]
    Closed,
    /// A step failed. If it was a commit, none of its writes is visible.
    #[error("{step}: {reason}")]
    Failed { step: &'static str, reason: String },
    /// The file cannot be read.
    #[error(
        "the database {} is damaged: {reason}; restore it from a backup, or move it away to start with an empty one",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    /// Another program made the file.
    #[error("{} is not a database of this service: {reason}; choose another path", path.display())]
    Foreign { path: PathBuf, reason: String },
    /// A newer version of the service wrote it.
    #[error(
        "the database {} has version {found} and this program knows up to {known}; run the newer program again, or restore the backup made before its upgrade",
        path.display()
    )]
    TooNew { path: PathBuf, found: i64, known: i64 },
}

impl StoreError {
    pub(crate) fn failed(step: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Failed { step, reason: reason.to_string() }
    }
}
