//! Errors of snapshots, and of what other hosts have stored.

use api::{Isolation, SandboxId, SnapshotId};
use archive::ArchiveError;

use super::class::{ErrorClass, Retry};

/// What stands between a request and a snapshot, or the copy of a sandbox in the object store.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The account has no such snapshot.
    #[error("no such snapshot")]
    NotFound { id: SnapshotId },
    /// A sandbox can be rolled back only to its own snapshots.
    #[error("snapshot {id} was taken of sandbox {sandbox}")]
    Foreign { id: SnapshotId, sandbox: SandboxId },
    /// Another host has taken the snapshot; only that one deletes it.
    #[error("snapshot {id} was taken by another host; it can be deleted there")]
    OfOtherHost { id: SnapshotId },
    /// A third host has adopted the sandbox.
    #[error("another host has adopted the sandbox")]
    AdoptedElsewhere,
    /// The snapshot is being copied from the object store to this host.
    #[error("snapshot {id} is being copied to this host")]
    Arriving { id: SnapshotId },
    /// Another host has stored the snapshot, and this host lacks the image below it.
    #[error("the snapshot is above the image {image} with the digest {digest}, which this host lacks")]
    OtherImage { image: String, digest: String },
    /// Another host has stored a sandbox whose isolation is weaker than the rules of this host allow.
    #[error(
        "the sandbox has the isolation '{isolation}'; with its image and account this host allows '{minimum}' or a stronger one"
    )]
    WeakIsolation { isolation: Isolation, minimum: Isolation },
    /// The copy of a snapshot in the object store could not be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl SnapshotError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. }
            | Self::Foreign { .. }
            | Self::OfOtherHost { .. }
            | Self::AdoptedElsewhere
            | Self::OtherImage { .. }
            | Self::WeakIsolation { .. } => ErrorClass::Refused(Retry::Useless),
            Self::Arriving { .. } => ErrorClass::Refused(Retry::Useful),
            Self::Archive(error) if error.is_transient() => ErrorClass::ServiceFailed(Retry::Useful),
            Self::Archive(_) => ErrorClass::ServiceFailed(Retry::Useless),
        }
    }
}
