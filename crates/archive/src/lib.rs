//! Copies of snapshots in an object store, from which other hosts can read them.
//!
//! ```text
//! PREFIX/hosts/HOST/ACCOUNT/XX/HASH   chunks: a megabyte of a file each, compressed, named by the hash of their content
//! PREFIX/snapshots/ID                 manifests: the record of a snapshot, and its files as lists of chunks
//! PREFIX/adopted/HOST/ID              notes: which host has adopted ID from HOST
//! ```
//!
//! A snapshot is stored when its manifest is. Only the host that has stored a chunk removes it, so it knows without asking whether
//! another snapshot has the chunk, too. Chunks are shared within an account only: whether an upload is fast must not tell what others
//! have stored.
//!
//! The [`ledger`] on the local disk has a copy of each manifest. What the object store has beside it is left by a crash, and
//! [`Archive::reconcile`] removes it.

mod adoption;
mod chunk;
mod download;
mod error;
mod ledger;
mod location;
mod manifest;
mod reconcile;
mod remove;
mod sparse;
mod upload;

use std::path::Path as FilePath;
use std::sync::Arc;

use ledger::Ledger;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::Mutex;

pub use chunk::{CHUNK_BYTES, ChunkHash};
pub use error::ArchiveError;
pub use location::{Credentials, Location, S3Options};
pub use manifest::{Manifest, Part, StoredChunk, StoredFile};
pub use reconcile::Reconciled;
pub use upload::{SourceFile, SourcePart, SourceSnapshot, Uploaded};

/// The largest manifest: of nine disks with hundreds of gigabytes.
const MANIFEST_BYTES: u64 = 512 << 20;

/// Requests at a time. Each holds a chunk in memory.
const PARALLEL: usize = 8;

/// The copies of this host's snapshots, and access to those of other hosts.
pub struct Archive {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    ledger: Arc<Ledger>,
    /// Whoever stores or removes chunks: they must not decide about the same chunk at once.
    writer: Mutex<()>,
}

impl Archive {
    /// `dir` is for the ledger. Nothing is sent yet.
    pub fn open(location: &Location, options: &S3Options, dir: &FilePath) -> Result<Self, ArchiveError> {
        let (objects, prefix) = location.open(options)?;
        let archive = Self::with_objects(objects, prefix, dir)?;
        if let Some(before) = archive.ledger.check_location(&location.to_string())? {
            return Err(ArchiveError::Configuration(format!(
                "it was '{before}', and {} says what is stored there; to use another one, move the objects there and remove the file \
                 'location' in that directory, or remove the directory",
                dir.display()
            )));
        }
        Ok(archive)
    }

    fn with_objects(
        objects: Arc<dyn ObjectStore>,
        prefix: Path,
        dir: &FilePath,
    ) -> Result<Self, ArchiveError> {
        let ledger = Arc::new(Ledger::open(dir)?);
        Ok(Self { objects, prefix, ledger, writer: Mutex::default() })
    }

    /// Whether a snapshot of this host is stored.
    pub fn has(&self, id: &str) -> bool {
        self.ledger.has(id)
    }

    /// Whether a part is stored, with any snapshot of an account.
    pub fn has_part(&self, account: &str, name: &str) -> Result<bool, ArchiveError> {
        Ok(self.ledger.part(account, name)?.is_some())
    }

    /// The snapshots of which this host has stored something, completely or not.
    pub fn ids(&self) -> Vec<String> {
        self.ledger.ids()
    }

    fn chunks_of_host(&self, host: &str) -> Path {
        self.prefix.clone().join("hosts").join(host)
    }

    fn chunk_path(&self, host: &str, account: &str, hash: ChunkHash) -> Path {
        let hex = hash.to_string();
        let (first, _) = hex.split_at(2);
        self.chunks_of_host(host).join(account).join(first).join(hex.as_str())
    }

    fn manifests(&self) -> Path {
        self.prefix.clone().join("snapshots")
    }

    fn manifest_path(&self, id: &str) -> Path {
        self.manifests().join(id)
    }

    /// Removes an object. Succeeds if there is none.
    async fn delete(&self, path: &Path) -> Result<(), ArchiveError> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(ArchiveError::unavailable(path, error)),
        }
    }

    /// Whether this host has stored something.
    pub fn is_own(&self, manifest: &Manifest) -> bool {
        manifest.host == self.ledger.host
    }

    /// An object of at most `limit` bytes; `None` if there is none.
    async fn get(&self, path: &Path, limit: u64) -> Result<Option<bytes::Bytes>, ArchiveError> {
        let unavailable = |error| ArchiveError::unavailable(path, error);
        match self.objects.get(path).await {
            Ok(found) if found.meta.size > limit => {
                let reason = format!("it has {} bytes", found.meta.size);
                Err(ArchiveError::Damaged { object: path.to_string(), reason })
            }
            Ok(found) => Ok(Some(found.bytes().await.map_err(unavailable)?)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }
}

#[cfg(test)]
mod tests;
