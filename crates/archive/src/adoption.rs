//! Adopts what another host has stored. A note in the object store tells that host, which then ends its own sandbox. The note is created
//! only if there is none, so one of several hosts succeeds.
//!
//! ```text
//! PREFIX/adopted/HOST/ID   the name of the host that has adopted ID from HOST
//! ```

use std::collections::HashSet;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutPayload};

use crate::{Archive, ArchiveError, MANIFEST_BYTES, Manifest};

const NOTE_BYTES: u64 = 1024;

impl Archive {
    fn notes(&self, host: &str) -> Path {
        self.prefix.clone().join("adopted").join(host)
    }

    /// Adopts `id` from another host. False if a third host was faster. Succeeds again if this host did so before.
    pub async fn adopt(&self, host: &str, id: &str) -> Result<bool, ArchiveError> {
        let note = self.notes(host).join(id);
        let own = PutPayload::from(self.ledger.host.clone().into_bytes());
        match self.objects.put_opts(&note, own, PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                let taken = self.get(&note, NOTE_BYTES).await?;
                Ok(taken.is_some_and(|taken| taken == self.ledger.host.as_bytes()))
            }
            Err(error) => Err(ArchiveError::unavailable(&note, error)),
        }
    }

    /// Another host has adopted what this one has stored. The copy stays until that host has withdrawn it.
    pub fn hand_over(&self, id: &str) -> Result<(), ArchiveError> {
        Ok(self.ledger.set_handed_over(id, true)?)
    }

    pub fn is_handed_over(&self, id: &str) -> bool {
        self.ledger.is_handed_over(id)
    }

    pub fn handed_over(&self) -> Vec<String> {
        self.ledger.handed_over()
    }

    /// Lets others adopt what this host has adopted and could not start.
    pub async fn give_back(&self, host: &str, id: &str) -> Result<(), ArchiveError> {
        self.delete(&self.notes(host).join(id)).await
    }

    /// Removes the manifest of something that this host has adopted. The host that has stored it removes the chunks.
    pub async fn withdraw(&self, id: &str) -> Result<(), ArchiveError> {
        if self.ledger.ids().iter().any(|own| own == id) {
            return Ok(());
        }
        self.delete(&self.manifest_path(id)).await
    }

    /// What other hosts have adopted from this one.
    pub async fn adopted(&self) -> Result<HashSet<String>, ArchiveError> {
        let notes = self.notes(&self.ledger.host);
        let listed = self
            .objects
            .list(Some(&notes))
            .try_filter_map(|object| std::future::ready(Ok(object.location.filename().map(str::to_owned))));
        listed.try_collect().await.map_err(|error| ArchiveError::unavailable(&notes, error))
    }

    /// Whether the object store has a manifest of this host.
    pub async fn is_offered(&self, id: &str) -> Result<bool, ArchiveError> {
        let found = self.get(&self.manifest_path(id), MANIFEST_BYTES).await?;
        let manifest = found.and_then(|object| Manifest::from_object(&object).ok());
        Ok(manifest.is_some_and(|manifest| manifest.host == self.ledger.host))
    }

    /// Forgets what another host has adopted and withdrawn.
    pub async fn acknowledge(&self, id: &str) -> Result<(), ArchiveError> {
        self.ledger.forget(id)?;
        self.delete(&self.notes(&self.ledger.host).join(id)).await?;
        Ok(self.ledger.set_handed_over(id, false)?)
    }

    /// Whether the object store accepts objects.
    pub async fn probe(&self) -> Result<(), ArchiveError> {
        let path = self.chunks_of_host(&self.ledger.host).join("probe");
        self.put(&path, b"probe".to_vec()).await?;
        self.delete(&path).await
    }
}
