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
//! Who can write to the object store is not trusted: manifests and notes are authenticated with the [`secret`] of the hosts, and chunks
//! are named by their hashes.
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
mod secret;
mod sparse;
mod upload;

use std::path::Path as FilePath;
use std::sync::Arc;

use ledger::Ledger;
use object_store::path::Path;
use object_store::{GetResult, ObjectStore, ObjectStoreExt};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

pub use chunk::{CHUNK_BYTES, ChunkHash};
pub use error::ArchiveError;
pub use location::{Credentials, Location, S3Options};
pub use manifest::{BadObject, Manifest, SnapshotPart, StoredChunk, StoredFile};
pub use reconcile::Reconciled;
pub use secret::{Code, KeyId, Secrets, Unauthentic, WithoutCode};
pub use upload::{SourceFile, SourcePart, SourceSnapshot, Uploaded};

/// The largest manifest: of about 900 GB of data. Nine disks of the largest size have half of that.
const MANIFEST_BYTES: u64 = 64 << 20;
/// Manifests that are being read, in all. They are in memory before it is known who has written them.
const MANIFEST_MEMORY_BYTES: u64 = 2 * MANIFEST_BYTES;
const KIB: u64 = 1 << 10;

/// Requests at a time. Each holds a chunk in memory.
const PARALLEL: usize = 8;

/// The copies of this host's snapshots, and access to those of other hosts.
pub struct Archive {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    ledger: Arc<Ledger>,
    secrets: Arc<Secrets>,
    /// A permit for each KiB of the manifests that are being read.
    manifest_memory: Semaphore,
    /// Whoever stores or removes chunks: they must not decide about the same chunk at once.
    writer: Mutex<()>,
}

/// A manifest as it is in the object store, with its share of the memory for manifests.
struct UnreadManifest<'a> {
    object: bytes::Bytes,
    _memory: Option<SemaphorePermit<'a>>,
}

/// For a host without an object store: fails if the ledger in `dir` lists copies that it stored in one. Nobody would delete them, and
/// snapshots whose files are only there could not be used.
pub fn require_nothing_stored(dir: &FilePath) -> Result<(), ArchiveError> {
    match ledger::location_of_listed(dir)? {
        None => Ok(()),
        Some(before) => Err(ArchiveError::Configuration(format!(
            "it was '{before}' and is not set any more, and {} says what is stored there; set it again and delete the snapshots, or \
             remove the directory: then the service never deletes the copies, and snapshots whose files are only there are lost",
            dir.display()
        ))),
    }
}

impl Archive {
    /// `dir` is for the ledger. Nothing is sent yet.
    pub fn open(
        location: &Location,
        options: &S3Options,
        dir: &FilePath,
        secrets: Secrets,
    ) -> Result<Self, ArchiveError> {
        let (objects, prefix) = location.open(options)?;
        let archive = Self::with_objects(objects, prefix, dir, secrets)?;
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
        secrets: Secrets,
    ) -> Result<Self, ArchiveError> {
        let ledger = Arc::new(Ledger::open(dir, &secrets)?);
        let permits = usize::try_from(MANIFEST_MEMORY_BYTES / KIB).unwrap_or(Semaphore::MAX_PERMITS);
        Ok(Self {
            objects,
            prefix,
            ledger,
            secrets: Arc::new(secrets),
            manifest_memory: Semaphore::new(permits),
            writer: Mutex::default(),
        })
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
        let Some(found) = self.find(path, limit).await? else { return Ok(None) };
        found.bytes().await.map(Some).map_err(|error| ArchiveError::unavailable(path, error))
    }

    /// The manifest that is stored as `id`. Waits until others have been read, if these are large.
    async fn get_manifest(&self, id: &str) -> Result<Option<UnreadManifest<'_>>, ArchiveError> {
        let path = self.manifest_path(id);
        let Some(found) = self.find(&path, MANIFEST_BYTES).await? else { return Ok(None) };
        let permits = u32::try_from(found.meta.size.div_ceil(KIB)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let memory = self.manifest_memory.acquire_many(permits).await.ok();
        let object = found.bytes().await.map_err(|error| ArchiveError::unavailable(&path, error))?;
        Ok(Some(UnreadManifest { object, _memory: memory }))
    }

    /// Begins to read an object of at most `limit` bytes.
    async fn find(&self, path: &Path, limit: u64) -> Result<Option<GetResult>, ArchiveError> {
        match self.objects.get(path).await {
            Ok(found) if found.meta.size > limit => {
                let reason = format!("it has {} bytes", found.meta.size);
                Err(ArchiveError::Damaged { object: path.to_string(), reason })
            }
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(ArchiveError::unavailable(path, error)),
        }
    }
}

#[cfg(test)]
mod tests;
