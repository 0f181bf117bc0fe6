//! Removes snapshots of this host, and chunks that no snapshot has.

use futures_util::{StreamExt, stream};

use crate::{Archive, ArchiveError};

/// Objects that one request removes.
const BATCH: usize = 1000;

impl Archive {
    /// Removes a snapshot of this host, so that no host can read it. `remove_unreferenced` frees the space.
    pub async fn remove(&self, id: &str) -> Result<(), ArchiveError> {
        let _writer = self.writer.lock().await;
        self.delete(&self.manifest_path(id)).await?;
        Ok(self.ledger.forget(id)?)
    }

    /// Removes the chunks that no snapshot has. Returns their number.
    pub async fn remove_unreferenced(&self) -> Result<usize, ArchiveError> {
        let _writer = self.writer.lock().await;
        let unreferenced = self.ledger.unreferenced();
        for batch in unreferenced.chunks(BATCH) {
            let path = |key: &crate::ledger::ChunkKey| {
                Ok(self.chunk_path(&self.ledger.host, &key.account, key.hash))
            };
            batch.iter().for_each(|key| self.ledger.chunk_removal_begins(key));
            let paths: Vec<object_store::Result<_>> = batch.iter().map(path).collect();
            let mut removed = self.objects.delete_stream(stream::iter(paths).boxed());
            while let Some(removed) = removed.next().await {
                match removed {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => {
                        return Err(ArchiveError::unavailable(
                            &self.chunks_of_host(&self.ledger.host),
                            error,
                        ));
                    }
                }
            }
            batch.iter().for_each(|key| self.ledger.chunk_removed(key));
        }
        Ok(unreferenced.len())
    }
}
