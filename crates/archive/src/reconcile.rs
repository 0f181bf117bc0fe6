//! Compares the ledger with the object store after a start. A crash of this host leaves chunks without a manifest; a store that has lost
//! its latest writes lacks some.

use std::collections::HashSet;

use futures_util::{Stream, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, Result};
use percent_encoding::percent_decode_str;

use crate::ledger::ChunkKey;
use crate::{Archive, ArchiveError};

/// What the comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Snapshots of which the object store has lost something. They count as not stored, and can be uploaded again.
    pub lost: Vec<String>,
}

impl Archive {
    pub async fn reconcile(&self) -> std::result::Result<Reconciled, ArchiveError> {
        let _writer = self.writer.lock().await;
        let chunks = self.chunks_of_host(&self.ledger.host);
        let found = last_parts(self.objects.list(Some(&chunks)), |path| {
            let mut parts: Vec<_> = path.prefix_match(&chunks)?.collect();
            let hash = parts.pop()?.as_ref().parse().ok()?;
            let account = percent_decode_str(parts.first()?.as_ref()).decode_utf8().ok()?.into_owned();
            Some(ChunkKey { account, hash })
        });
        let found = found.await.map_err(|error| ArchiveError::unavailable(&chunks, error))?;
        let manifests = self.manifests();
        let ids = last_parts(self.objects.list(Some(&manifests)), |path| path.filename().map(str::to_owned));
        let ids = ids.await.map_err(|error| ArchiveError::unavailable(&manifests, error))?;
        let lost = self.ledger.compare(found, &ids)?;
        for id in &lost {
            self.ledger.forget(id)?;
        }
        Ok(Reconciled { lost })
    }
}

async fn last_parts<T: std::hash::Hash + Eq>(
    listed: impl Stream<Item = Result<ObjectMeta>>,
    read: impl Fn(&Path) -> Option<T>,
) -> Result<HashSet<T>> {
    listed
        .try_fold(HashSet::new(), |mut all, object| {
            all.extend(read(&object.location));
            std::future::ready(Ok(all))
        })
        .await
}
