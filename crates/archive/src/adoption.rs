//! Adopts what another host has stored. A note in the object store tells that host, which then ends its own sandbox. The note is created
//! only if there is none, so one of several hosts succeeds. It is authenticated: otherwise whoever can write to the object store could end
//! sandboxes.
//!
//! ```text
//! PREFIX/adopted/HOST/ID   the name of the host that has adopted ID from HOST, and an authentication code
//! ```

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutPayload};

use crate::{Archive, ArchiveError, Code, Manifest, Unauthentic};

const NOTE_BYTES: u64 = 1024;
/// Notes that are read at a start. A host has far fewer sandboxes.
const MOST_NOTES: usize = 16_384;

/// What the code of a note covers: who has adopted what from whom.
fn covered<'a>(from: &'a str, id: &'a str, by: &'a str) -> [&'a str; 4] {
    ["sandboxd-adoption", from, id, by]
}

/// The host that a note names, and its code. Notes of earlier releases have none.
fn parse_note(note: &[u8]) -> Option<(&str, Option<Code>)> {
    let text = str::from_utf8(note).ok()?;
    match text.split_once(' ') {
        None => Some((text, None)),
        Some((host, code)) => Some((host, Some(Code::parse(code)?))),
    }
}

impl Archive {
    pub(crate) fn notes(&self, host: &str) -> Path {
        self.prefix.clone().join("adopted").join(host)
    }

    /// The note with which this host adopts something.
    fn own_note(&self, host: &str, id: &str) -> Vec<u8> {
        let own = &self.ledger.host;
        format!("{own} {}", self.secrets.code(&covered(host, id, own))).into_bytes()
    }

    /// Adopts `id` from another host. False if a third host was faster. Succeeds again if this host did so before.
    pub async fn adopt(&self, host: &str, id: &str) -> Result<bool, ArchiveError> {
        let note = self.notes(host).join(id);
        let own = self.own_note(host, id);
        let payload = PutPayload::from(own.clone());
        match self.objects.put_opts(&note, payload, PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                let taken = self.get(&note, NOTE_BYTES).await?;
                let is_own =
                    |taken: &bytes::Bytes| parse_note(taken).is_some_and(|(by, _)| by == self.ledger.host);
                let Some(taken) = taken.filter(is_own) else { return Ok(false) };
                if taken != own {
                    // An earlier release of this host has written it.
                    self.put(&note, own).await?;
                }
                Ok(true)
            }
            Err(error) => Err(ArchiveError::unavailable(&note, error)),
        }
    }

    /// Another host has adopted what this one has stored. The copy stays until that host has withdrawn it.
    pub fn hand_over(&self, id: &str) -> Result<(), ArchiveError> {
        Ok(self.ledger.hand_over(id)?)
    }

    /// Whether another host has adopted the sandbox that this one has stored.
    pub fn is_handed_over(&self, id: &str) -> bool {
        self.ledger.is_handed_over(id)
    }

    /// The ids of what other hosts have adopted, until [`Self::acknowledge`] forgets them.
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

    /// What other hosts have adopted from this one. Notes of others than these hosts are ignored.
    pub async fn adopted(&self) -> Result<HashSet<String>, ArchiveError> {
        let notes = self.notes(&self.ledger.host);
        let listed = self.objects.list(Some(&notes)).take(MOST_NOTES);
        let listed = listed
            .try_filter_map(|object| std::future::ready(Ok(object.location.filename().map(str::to_owned))));
        let listed: Vec<String> =
            listed.try_collect().await.map_err(|error| ArchiveError::unavailable(&notes, error))?;
        let mut adopted = HashSet::new();
        for id in listed {
            match self.check_note(&id).await? {
                Ok(()) => adopted.extend([id]),
                Err(reason) => {
                    tracing::error!(id, %reason, "ignoring a note that another host has adopted a sandbox of this one");
                }
            }
        }
        Ok(adopted)
    }

    /// Whether a host with the secret has written the note about something of this host.
    async fn check_note(&self, id: &str) -> Result<Result<(), Unauthentic>, ArchiveError> {
        let own = &self.ledger.host;
        let note = match self.get(&self.notes(own).join(id), NOTE_BYTES).await {
            // Too large, or removed since it was listed.
            Err(ArchiveError::Damaged { .. }) | Ok(None) => return Ok(Err(Unauthentic::NoCode)),
            note => note?.unwrap_or_default(),
        };
        let Some((by, code)) = parse_note(&note) else { return Ok(Err(Unauthentic::WrongCode)) };
        Ok(self.secrets.verify(&covered(own, id, by), code))
    }

    /// Whether the object store has a manifest of this host. It need not be authentic: whoever can replace it can also remove it.
    pub async fn is_offered(&self, id: &str) -> Result<bool, ArchiveError> {
        let Some(found) = self.get_manifest(id).await? else { return Ok(false) };
        let manifest = Manifest::from_copy(&found.object);
        Ok(manifest.is_ok_and(|(manifest, _)| manifest.host == self.ledger.host))
    }

    /// Forgets what another host has adopted and withdrawn.
    pub async fn acknowledge(&self, id: &str) -> Result<(), ArchiveError> {
        self.ledger.forget(id)?;
        self.delete(&self.notes(&self.ledger.host).join(id)).await?;
        Ok(self.ledger.forget_handed_over(id)?)
    }

    /// Whether the object store accepts objects.
    pub async fn probe(&self) -> Result<(), ArchiveError> {
        let path = self.chunks_of_host(&self.ledger.host).join("probe");
        self.put(&path, b"probe".to_vec()).await?;
        self.delete(&path).await
    }
}
