//! Compares the ledger with the object store after a start. A crash of this host leaves chunks without a manifest; a store that has lost
//! its latest writes lacks some.

use std::collections::HashSet;
use std::io;

use futures_util::{Stream, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, Result};
use percent_encoding::percent_decode_str;

use crate::ledger::ChunkKey;
use crate::{Archive, ArchiveError};

/// What the comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// What the object store has lost parts of. After [`Archive::forget`] it can be uploaded again.
    pub lost: Vec<String>,
    /// Manifests that are not in the ledger: of other hosts.
    pub others: Vec<String>,
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
        if found.is_empty() && ids.is_empty() && self.ledger.has_any() {
            // A file system that is not mounted, more likely than a loss of everything.
            return Err(ArchiveError::Empty);
        }
        let own: HashSet<String> = self.ledger.ids().into_iter().collect();
        let others = ids.difference(&own).cloned().collect();
        let lost = self.ledger.compare(found, &ids)?;
        for manifest in lost.without_manifest {
            let object = manifest.to_object().map_err(io::Error::from)?;
            self.put(&self.manifest_path(&manifest.id), object).await?;
        }
        Ok(Reconciled { lost: lost.incomplete, others })
    }

    /// Counts a snapshot of this host as not stored. What the object store has of it is used by the next upload, or removed as
    /// unreferenced.
    pub async fn forget(&self, id: &str) -> std::result::Result<(), ArchiveError> {
        let _writer = self.writer.lock().await;
        Ok(self.ledger.forget(id)?)
    }
}

async fn last_parts<T: std::hash::Hash + Eq>(
    listed: impl Stream<Item = Result<ObjectMeta>>,
    read: impl Fn(&Path) -> Option<T>,
) -> Result<HashSet<T>> {
    listed
        .try_fold(HashSet::new(), |mut all, object| {
            // An object without content is what a power failure may leave.
            all.extend(
                Some(object).filter(|object| object.size > 0).and_then(|object| read(&object.location)),
            );
            std::future::ready(Ok(all))
        })
        .await
}
