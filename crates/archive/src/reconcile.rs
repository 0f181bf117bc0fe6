//! Compares the ledger with the object store after a start. A crash of this host leaves chunks without a manifest; a store that has lost
//! its latest writes lacks some. Manifests that an earlier release or another secret has authenticated are written again.

use std::collections::HashSet;
use std::io;

use futures_util::{Stream, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, Result};
use percent_encoding::percent_decode_str;

use crate::ledger::ChunkKey;
use crate::{Archive, ArchiveError};

/// Objects that the ledger does not have, for each kind: what a crash has left, and manifests of other hosts.
const MOST_UNKNOWN: usize = 1_000_000;

/// What the comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// What the object store has lost parts of. After [`Archive::forget`] it can be uploaded again.
    pub lost: Vec<String>,
    /// Manifests that are not in the ledger: of other hosts.
    pub others: Vec<String>,
}

impl Archive {
    /// Compares the ledger with the object store. Manifests that are lost or outdated are stored again. Fails if nothing is there.
    pub async fn reconcile(&self) -> std::result::Result<Reconciled, ArchiveError> {
        let _writer = self.writer.lock().await;
        let chunks = self.chunks_of_host(&self.ledger.host);
        let found = last_parts(
            self.objects.list(Some(&chunks)),
            |path| {
                let mut parts: Vec<_> = path.prefix_match(&chunks)?.collect();
                let hash = parts.pop()?.as_ref().parse().ok()?;
                let account = percent_decode_str(parts.first()?.as_ref()).decode_utf8().ok()?.into_owned();
                Some(ChunkKey { account, hash })
            },
            |key| self.ledger.knows(key),
        );
        let found = found.await.map_err(|error| ArchiveError::unavailable(&chunks, error))?;
        let manifests = self.manifests();
        let own: HashSet<String> = self.ledger.ids().into_iter().collect();
        let ids = last_parts(
            self.objects.list(Some(&manifests)),
            |path| path.filename().map(str::to_owned),
            |id| own.contains(id),
        );
        let ids = ids.await.map_err(|error| ArchiveError::unavailable(&manifests, error))?;
        if found.is_empty() && ids.is_empty() && self.ledger.has_any() {
            // A file system that is not mounted, more likely than a loss of everything.
            return Err(ArchiveError::Empty);
        }
        let others = ids.difference(&own).cloned().collect();
        let lost = self.ledger.compare(found, &ids)?;
        for id in lost.without_manifest {
            let Some(manifest) = self.ledger.manifest(&id)? else { continue };
            let object = manifest.to_object(&self.secrets).map_err(io::Error::from)?;
            self.put(&self.manifest_path(&manifest.id), object.clone()).await?;
            self.ledger.replace(&manifest, &object)?;
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

/// What a listing has, and of what this host does not know at most [`MOST_UNKNOWN`]: others can write to the object store. The rest is
/// found by the next start.
async fn last_parts<T: std::hash::Hash + Eq>(
    listed: impl Stream<Item = Result<ObjectMeta>>,
    read: impl Fn(&Path) -> Option<T>,
    is_known: impl Fn(&T) -> bool,
) -> Result<HashSet<T>> {
    let found = listed.try_fold((HashSet::new(), 0), |(mut all, mut unknown), object| {
        // An object without content is what a power failure may leave.
        let found = Some(object).filter(|object| object.size > 0).and_then(|object| read(&object.location));
        if let Some(found) = found {
            let is_known = is_known(&found);
            unknown += usize::from(!is_known);
            if is_known || unknown <= MOST_UNKNOWN {
                all.insert(found);
            }
        }
        std::future::ready(Ok((all, unknown)))
    });
    Ok(found.await?.0)
}
