//! Why a copy could not be stored or read.

use std::io;

use object_store::path::Path;

use crate::secret::Unauthentic;

/// Why the object store could not be written or read. The caller decides by the variant whether to try again.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The object store cannot be reached, refuses the request, or fails. The same call may succeed later.
    #[error("the object store failed at '{object}': {source}")]
    Unavailable { object: String, source: object_store::Error },
    /// An object that a manifest names does not exist.
    #[error("the object store has lost '{object}'")]
    Missing { object: String },
    /// An object is not what was stored. It was read twice.
    #[error("the object store has a damaged '{object}': {reason}")]
    Damaged { object: String, reason: String },
    /// An object is not from a host that has the secret of this one. It was read twice.
    #[error("the object store has a '{object}' that is not accepted: {reason}")]
    Unauthentic { object: String, reason: Unauthentic },
    /// The manifest of a snapshot would be larger than any host reads.
    #[error("the snapshot has too many parts for an object store: {0}")]
    TooLarge(String),
    /// There is nothing at all, although something was stored.
    #[error("the object store is empty: is its file system mounted, and is the prefix right?")]
    Empty,
    /// The configuration of the object store cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// The snapshot was deleted during the upload.
    #[error("the snapshot is not wanted any more")]
    Unwanted,
    /// A file on this host cannot be read or written.
    #[error("{0}")]
    Local(#[from] io::Error),
}

impl ArchiveError {
    pub(crate) fn unavailable(object: &Path, source: object_store::Error) -> Self {
        Self::Unavailable { object: object.to_string(), source }
    }

    /// Whether the object store is to blame, and may work again later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Empty)
    }
}
