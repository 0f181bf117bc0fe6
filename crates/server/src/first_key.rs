//! The local key, which the first start creates for the user of this machine. Called by `serve`.
//!
//! Its text is in a file that only root can read. The file is written first: after a crash between file and store, the next start
//! registers the key of the file. A removed file is not created again. Keys that were created before the first start do not prevent it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use admission::keyring;
use anyhow::{Context, Result};
use rules::{KeyLimits, KeyText, Scopes};
use store::{KeyRecord, Store};

use crate::new_key::{NewKey, new_text, register};
use crate::private_file;

const FILE: &str = "local.key";
/// The file that describes the service to clients on this host. It exists once a start was ready.
pub const SERVICE_FILE: &str = "local.json";
/// The account of the local key.
pub const LOCAL_ACCOUNT: &str = "default";
const LABEL: &str = "created at the first start";

/// The state of the local key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalKey {
    /// Created by this start.
    New { text: KeyText, file: PathBuf },
    /// From an earlier start.
    Existing { text: KeyText, file: PathBuf },
    /// A start has made one, and there is no file any more.
    None,
}

/// Finds the local key or creates it.
pub async fn first_key(store: &dyn Store, data_dir: &Path) -> Result<LocalKey> {
    let file = data_dir.join(FILE);
    let keys = store.keys().await?;
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let text = KeyText::parse(text.trim()).with_context(|| {
                format!("{} contains no key; remove the file, or write a key to it", file.display())
            })?;
            let hash = keyring::hash_of(&text);
            match keys.iter().find(|key| key.hash == hash) {
                Some(key) if key.revoked_at.is_some() => {
                    tracing::warn!(id = key.id, file = %file.display(), "the local key was revoked; remove its file");
                    Ok(LocalKey::None)
                }
                Some(_) => Ok(LocalKey::Existing { text, file }),
                None => {
                    register(store, &text, local_key()).await?;
                    Ok(LocalKey::Existing { text, file })
                }
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound && is_first_start(data_dir, &keys) => {
            let text = new_text();
            private_file::write(&file, text.as_str())
                .with_context(|| format!("cannot write {}", file.display()))?;
            register(store, &text, local_key()).await?;
            Ok(LocalKey::New { text, file })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(LocalKey::None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Whether no start has made the local key. `sandboxd key create` may have made others before.
fn is_first_start(data_dir: &Path, keys: &[KeyRecord]) -> bool {
    let has_served = data_dir.join(SERVICE_FILE).exists();
    let is_local = |key: &KeyRecord| key.name.as_deref() == Some(LABEL);
    keys.is_empty() || (!has_served && !keys.iter().any(is_local))
}

fn local_key() -> NewKey {
    NewKey {
        account: LOCAL_ACCOUNT.to_owned(),
        scopes: Scopes::ALL,
        label: Some(LABEL.to_owned()),
        valid_ms: None,
        limits: KeyLimits::OfAccount,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rules::TimeMs;
    use store::{Batch, MemoryStore, Write as StoreWrite};

    use super::*;

    #[tokio::test]
    async fn the_first_start_makes_it_and_later_ones_find_it() {
        let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let LocalKey::New { text, file } = first_key(&store, dir.path()).await.unwrap() else { panic!() };
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let kept = LocalKey::Existing { text: text.clone(), file: file.clone() };
        assert_eq!(first_key(&store, dir.path()).await.unwrap(), kept);
        assert_eq!(store.keys().await.unwrap().len(), 1);

        // As after a death between file and store.
        let other = MemoryStore::new();
        assert_eq!(first_key(&other, dir.path()).await.unwrap(), kept);
        assert_eq!(other.keys().await.unwrap()[0].hash, keyring::hash_of(&text));
    }

    #[tokio::test]
    async fn a_revoked_first_key_is_not_recreated() {
        let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let LocalKey::New { file, .. } = first_key(&store, dir.path()).await.unwrap() else { panic!() };
        let id = store.keys().await.unwrap()[0].id.clone();
        store.commit(Batch::new().with(StoreWrite::RevokeKey { id, at: TimeMs(1) })).await.unwrap();
        assert_eq!(first_key(&store, dir.path()).await.unwrap(), LocalKey::None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(first_key(&store, dir.path()).await.unwrap(), LocalKey::None);
        assert!(!file.exists());
    }

    #[tokio::test]
    async fn a_key_that_was_created_before_the_first_start_does_not_suppress_it() {
        let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let own = NewKey { account: "team".to_owned(), label: None, ..local_key() };
        register(&store, &new_text(), own).await.unwrap();
        let LocalKey::New { file, .. } = first_key(&store, dir.path()).await.unwrap() else { panic!() };
        // A file that was removed is not created again.
        std::fs::remove_file(&file).unwrap();
        assert_eq!(first_key(&store, dir.path()).await.unwrap(), LocalKey::None);
    }

    /// As after an upgrade.
    #[tokio::test]
    async fn a_service_that_has_served_without_it_gets_none() {
        let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let own = NewKey { account: "team".to_owned(), label: None, ..local_key() };
        register(&store, &new_text(), own).await.unwrap();
        std::fs::write(dir.path().join(SERVICE_FILE), "{}").unwrap();
        assert_eq!(first_key(&store, dir.path()).await.unwrap(), LocalKey::None);
    }

    #[tokio::test]
    async fn a_file_that_holds_something_else_is_named() {
        let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join(FILE), "my shopping list").unwrap();
        let error = format!("{:#}", first_key(&store, dir.path()).await.unwrap_err());
        assert!(error.contains(FILE) && !error.contains("shopping"), "{error}");
        assert!(store.keys().await.unwrap().is_empty());
    }
}
