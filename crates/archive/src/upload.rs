//! Stores a snapshot: the chunks that the object store lacks, then the manifest.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::blocking;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, PutPayload};
use serde_json::Value;
use tokio::sync::MutexGuard;

use crate::chunk::{ChunkHash, compress};
use crate::ledger::{ChunkKey, Ledger};
use crate::manifest::{Manifest, SnapshotPart, StoredChunk, StoredFile};
use crate::{Archive, ArchiveError, MANIFEST_BYTES, PARALLEL, sparse};

/// A snapshot on this host. The files must not change.
#[derive(Debug, Clone)]
pub struct SourceSnapshot {
    pub id: String,
    pub account: String,
    pub record: Value,
    pub parts: Vec<SourcePart>,
}

/// A part to upload, with a name that is unique in the account and stands for its content.
#[derive(Debug, Clone)]
pub struct SourcePart {
    pub name: String,
    pub files: Vec<SourceFile>,
}

/// A file of this host to upload, and its name in the manifest.
#[derive(Debug, Clone)]
pub struct SourceFile {
    pub name: String,
    pub path: PathBuf,
}

/// A snapshot that the object store has, but which this host does not yet show as stored: whoever sees that it is stored must also see what
/// the caller records of it before [`Uploaded::complete`]. Without that call the next attempt sends the manifest again.
#[must_use]
pub struct Uploaded<'a> {
    /// What was sent: compressed, and without what the object store had already.
    pub bytes: u64,
    manifest: Manifest,
    ledger: &'a Ledger,
    _writer: MutexGuard<'a, ()>,
}

impl Uploaded<'_> {
    /// Shows the snapshot as stored on this host.
    pub fn complete(self) -> Result<(), ArchiveError> {
        Ok(self.ledger.complete(&self.manifest)?)
    }
}

/// A chunk with the object to send, if the store lacks it.
struct Prepared {
    chunk: StoredChunk,
    object: Option<Vec<u8>>,
}

impl Archive {
    /// Stores a snapshot. If that fails, what was sent is used by the next attempt. `is_wanted` is asked before each chunk.
    pub async fn upload(
        &self,
        source: &SourceSnapshot,
        is_wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Uploaded<'_>, ArchiveError> {
        let writer = self.writer.lock().await;
        let sent = AtomicU64::new(0);
        let mut parts = Vec::new();
        for part in &source.parts {
            let known = self.ledger.part(&source.account, &part.name)?;
            parts.push(match known {
                Some(known) => known,
                None => self.store_part(&source.account, part, &sent, is_wanted).await?,
            });
        }
        let manifest = Manifest {
            id: source.id.clone(),
            account: source.account.clone(),
            host: self.ledger.host.clone(),
            record: source.record.clone(),
            parts,
        };
        manifest.check().map_err(ArchiveError::TooLarge)?;
        let object = manifest.to_object(&self.secrets).map_err(io::Error::from)?;
        if object.len() as u64 > MANIFEST_BYTES {
            let reason =
                format!("its manifest has {} bytes; at most {MANIFEST_BYTES} are allowed", object.len());
            return Err(ArchiveError::TooLarge(reason));
        }
        self.ledger.begin(&manifest, &object)?;
        self.put(&self.manifest_path(&manifest.id), object).await?;
        Ok(Uploaded { bytes: sent.into_inner(), manifest, ledger: &self.ledger, _writer: writer })
    }

    async fn store_part(
        &self,
        account: &str,
        part: &SourcePart,
        sent: &AtomicU64,
        is_wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<SnapshotPart, ArchiveError> {
        let mut files = Vec::new();
        for file in &part.files {
            files.push(self.store_file(account, file, sent, is_wanted).await?);
        }
        Ok(SnapshotPart { name: part.name.clone(), files })
    }

    async fn store_file(
        &self,
        account: &str,
        source: &SourceFile,
        sent: &AtomicU64,
        is_wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<StoredFile, ArchiveError> {
        let path = source.path.clone();
        let opened = blocking(move || {
            let file = File::open(path)?;
            let windows = sparse::windows(&file)?;
            Ok::<_, io::Error>((file.metadata()?.len(), windows, Arc::new(file)))
        });
        let (bytes, windows, file) = opened.await?;
        // One chunk at a time is read and compressed, which leaves the other processors to the sandboxes.
        let chunks = stream::iter(windows)
            .then(|window| {
                let (file, account) = (Arc::clone(&file), account.to_owned());
                let (ledger, is_wanted) = (Arc::clone(&self.ledger), is_wanted());
                async move {
                    if !is_wanted {
                        return Err(ArchiveError::Unwanted);
                    }
                    Ok(blocking(move || prepare(&file, window, &account, &ledger)).await?)
                }
            })
            .try_filter_map(async |prepared| Ok(prepared))
            .map_ok(|prepared| self.store_chunk(account, prepared, sent))
            .try_buffered(PARALLEL);
        Ok(StoredFile { name: source.name.clone(), bytes, chunks: chunks.try_collect().await? })
    }

    async fn store_chunk(
        &self,
        account: &str,
        prepared: Prepared,
        sent: &AtomicU64,
    ) -> Result<StoredChunk, ArchiveError> {
        let Prepared { chunk, object } = prepared;
        let StoredChunk(_, hash) = chunk;
        let Some(object) = object else { return Ok(chunk) };
        let key = ChunkKey { account: account.to_owned(), hash };
        let length = object.len() as u64;
        self.ledger.chunk_begins(&key);
        self.put(&self.chunk_path(&self.ledger.host, account, hash), object).await?;
        self.ledger.chunk_stored(key);
        sent.fetch_add(length, Ordering::Relaxed);
        Ok(chunk)
    }

    pub(crate) async fn put(
        &self,
        path: &object_store::path::Path,
        object: Vec<u8>,
    ) -> Result<(), ArchiveError> {
        let put = self.objects.put(path, PutPayload::from(object)).await;
        put.map(drop).map_err(|error| ArchiveError::unavailable(path, error))
    }
}

/// Reads a window. `None` if it has no data.
fn prepare(file: &File, window: u64, account: &str, ledger: &Ledger) -> io::Result<Option<Prepared>> {
    let content = sparse::read(file, window)?;
    if content.is_empty() {
        return Ok(None);
    }
    let hash = ChunkHash::of(&content);
    let is_stored = ledger.is_stored(&ChunkKey { account: account.to_owned(), hash });
    let object = if is_stored { None } else { Some(compress(&content)?) };
    Ok(Some(Prepared { chunk: StoredChunk(window, hash), object }))
}
