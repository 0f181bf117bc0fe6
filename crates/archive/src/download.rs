//! Reads stored snapshots. A manifest is authenticated, and every chunk is compared with the hash that the manifest has of it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base::blocking;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::chunk::decompress;
use crate::manifest::{BadObject, Manifest, StoredChunk, StoredFile};
use crate::{Archive, ArchiveError, CHUNK_BYTES, PARALLEL, sparse};

/// A damaged object is read once more: the damage may have happened on its way.
const ATTEMPTS: usize = 2;
/// What cannot be compressed becomes a little larger.
const LARGEST_CHUNK: u64 = CHUNK_BYTES as u64 + (64 << 10);

impl Archive {
    /// What is stored of a snapshot of any host; `None` if nothing is. Only a host that has the secret can have stored it.
    pub async fn manifest(&self, id: &str) -> Result<Option<Manifest>, ArchiveError> {
        if let Some(own) = self.ledger.manifest(id)? {
            return Ok(Some(own));
        }
        let mut reason = BadObject::Damaged(String::new());
        for _ in 0..ATTEMPTS {
            let Some(found) = self.get_manifest(id).await? else { return Ok(None) };
            let (object, secrets, name) = (found.object.clone(), Arc::clone(&self.secrets), id.to_owned());
            // A large one takes too long for an async worker.
            let read = blocking(move || Ok::<_, io::Error>(Manifest::from_object(&name, &object, &secrets)));
            match read.await? {
                Ok(manifest) => return Ok(Some(manifest)),
                Err(error) => reason = error,
            }
        }
        let object = self.manifest_path(id).to_string();
        Err(match reason {
            BadObject::Damaged(reason) => ArchiveError::Damaged { object, reason },
            BadObject::Unauthentic(reason) => ArchiveError::Unauthentic { object, reason },
        })
    }

    /// Writes a stored file to a new file, and makes that durable.
    pub async fn download(
        &self,
        manifest: &Manifest,
        stored: &StoredFile,
        to: &Path,
    ) -> Result<(), ArchiveError> {
        let (path, bytes) = (to.to_owned(), stored.bytes);
        let file = blocking(move || {
            let file = File::options().write(true).create(true).truncate(true).open(path)?;
            file.set_len(bytes)?;
            Ok::<_, io::Error>(Arc::new(file))
        });
        let file = file.await?;
        stream::iter(stored.chunks.iter().copied())
            .map(|chunk| self.write_chunk(manifest, chunk, &file, bytes))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        Ok(blocking(move || file.sync_all()).await?)
    }

    async fn write_chunk(
        &self,
        manifest: &Manifest,
        chunk: StoredChunk,
        file: &Arc<File>,
        bytes: u64,
    ) -> Result<(), ArchiveError> {
        let StoredChunk(window, hash) = chunk;
        let path = self.chunk_path(&manifest.host, &manifest.account, hash);
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let Some(object) = self.get(&path, LARGEST_CHUNK).await? else {
                return Err(ArchiveError::Missing { object: path.to_string() });
            };
            let file = Arc::clone(file);
            let written = blocking(move || match decompress(&object, hash) {
                Ok(content) if sparse::fits(window, content.len(), bytes) => {
                    sparse::write(&file, window, &content).map(Ok)
                }
                Ok(_) => Ok(Err("it does not fit into its file".to_owned())),
                Err(reason) => Ok(Err(reason)),
            });
            match written.await? {
                Ok(()) => return Ok(()),
                Err(error) => reason = error,
            }
        }
        Err(ArchiveError::Damaged { object: path.to_string(), reason })
    }
}
