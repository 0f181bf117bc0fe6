//! The valid keys, in memory, so that authentication does not wait for the store.
//!
//! [`crate::Gate`] calls [`Keyring::authenticate`]; [`crate::maintain`] calls [`Keyring::refresh`] several times a second, so that the
//! running server picks up keys that the command line created or revoked. A failed refresh keeps the known keys. An unknown key with a
//! valid checksum may have been created a moment ago: [`Keyring::refresh_and_find`]. Expired keys stay known, so that their holders
//! learn that they expired.

mod changes;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use api::Timestamp;
use base::IgnorePoison;
use rules::{KeyLimits, KeyText, Scopes, TimeMs};
use sha2::{Digest, Sha256};
use store::{KeyRecord, Store, StoreError};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::wall_clock::now;
use changes::{Change, changes, expired};

/// The shortest time between two reads of the store because of unknown keys.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Longer texts are not keys and are not hashed.
const LONGEST: usize = 128;

/// The sender of a request: an extension of every authenticated request.
#[derive(Debug, Clone)]
pub struct Caller {
    pub account: Arc<str>,
    pub key_id: Arc<str>,
    pub scopes: Scopes,
    pub limits: KeyLimits,
}

/// Why a text opens nothing. The message is for its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("the API key is not valid: it may be mistyped, revoked or of another service")]
    Unknown,
    #[error("the API key expired at {}; ask the operator for a new one ('sandboxd key create')", Timestamp::from(*at))]
    Expired { at: TimeMs },
}

/// Why a key is not valid any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEnd {
    Revoked,
    Expired,
}

impl KeyEnd {
    /// The reason in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

/// A key that was valid before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedKey {
    pub key_id: Arc<str>,
    pub end: KeyEnd,
}

/// The valid keys.
#[derive(Debug)]
pub struct Keyring {
    keys: RwLock<Keys>,
    /// When the last read because of an unknown key began.
    last_refresh: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Keys {
    /// The version in the store, read before the keys.
    version: u64,
    /// By the start of the hash. Only the start affects the time of a search, and a client cannot choose it.
    known: HashMap<u64, Vec<Arc<Known>>>,
    /// The same keys by their ids.
    by_id: HashMap<Arc<str>, Arc<Known>>,
    /// The same keys by account, oldest first.
    of_accounts: HashMap<Arc<str>, Vec<Arc<Known>>>,
    /// The ids of revoked keys by their hashes, for the log. They open nothing, so the time of a search may depend on a whole hash.
    revoked: HashMap<[u8; 32], Arc<str>>,
}

/// A key that was not revoked.
#[derive(Debug)]
struct Known {
    hash: [u8; 32],
    caller: Caller,
    /// The label that its creator chose.
    name: Option<String>,
    expires_at: Option<TimeMs>,
}

/// The stored form of a key.
pub fn hash_of(key: &KeyText) -> [u8; 32] {
    Sha256::digest(key.as_str().as_bytes()).into()
}

impl Keyring {
    /// Reads all keys.
    pub async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let keys = Keys::read(store, store.keys_version().await?).await?;
        Ok(Self { keys: RwLock::new(keys), last_refresh: Mutex::default() })
    }

    /// Reads the keys again if any was created or revoked since. Returns whether it did.
    pub async fn refresh(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let version = store.keys_version().await?;
        if version == self.keys.read().ignore_poison().version {
            return Ok(false);
        }
        let keys = Keys::read(store, version).await?;
        // Not logged under the lock: a slow log must not delay requests.
        self.replace(keys).iter().for_each(Change::log);
        Ok(true)
    }

    /// Returns the changes. Found under the lock, so that of two concurrent refreshes one finds a change.
    fn replace(&self, keys: Keys) -> Vec<Change> {
        let mut current = self.keys.write().ignore_poison();
        let changes = changes(&current, &keys);
        *current = keys;
        changes
    }

    /// Logs the keys that expired after `since` and not after `until`.
    pub fn log_expired(&self, since: TimeMs, until: TimeMs) {
        let expired = expired(&self.keys.read().ignore_poison(), since, until);
        expired.iter().for_each(Change::log);
    }

    /// For a text that was not found: whether it may be found now. Concurrent callers share one read and wait for it.
    pub(crate) async fn refresh_and_find(&self, text: &str, store: &dyn Store) -> bool {
        if KeyText::parse_any(text).is_err() {
            return false;
        }
        let called_at = Instant::now();
        let mut last_refresh = self.last_refresh.lock().await;
        if last_refresh.is_none_or(|last| last < called_at) {
            if let Some(last) = *last_refresh {
                tokio::time::sleep_until(last + REFRESH_INTERVAL_MIN).await;
            }
            *last_refresh = Some(Instant::now());
            if let Err(error) = self.refresh(store).await {
                tracing::error!(%error, "the API keys cannot be read to look up an unknown key");
            }
        }
        drop(last_refresh);
        self.find(text).is_some()
    }

    /// The caller of a valid key, in the form of this service or in that of E2B. The checksum is not verified: that costs more than the
    /// hash, and a text that is not a key has no known hash.
    pub fn authenticate(&self, text: &str) -> Result<Caller, InvalidKey> {
        self.authenticate_at(text, now())
    }

    /// As [`Keyring::authenticate`], without the reason of a refusal.
    pub fn find(&self, text: &str) -> Option<Caller> {
        self.authenticate(text).ok()
    }

    /// The key that a refused text was before it was revoked or expired. For the log of the operator: its sender does not learn that a key
    /// was revoked.
    pub fn ended(&self, text: &str) -> Option<EndedKey> {
        let hash = hash_of(&KeyText::parse_any(text).ok()?);
        let keys = self.keys.read().ignore_poison();
        if let Some(key_id) = keys.revoked.get(&hash) {
            return Some(EndedKey { key_id: Arc::clone(key_id), end: KeyEnd::Revoked });
        }
        let mut alike = keys.known.get(&start(&hash)).into_iter().flatten();
        let known = alike.find(|known| known.hash.ct_eq(&hash).into())?;
        let key_id = Arc::clone(&known.caller.key_id);
        known.valid_at(now()).is_err().then_some(EndedKey { key_id, end: KeyEnd::Expired })
    }

    /// Whether an authenticated key is still valid; for long-running requests.
    pub fn has(&self, key_id: &str) -> bool {
        self.of_id(key_id).is_some()
    }

    /// The caller of a valid key, by the id of the key.
    pub fn of_id(&self, key_id: &str) -> Option<Caller> {
        let keys = self.keys.read().ignore_poison();
        keys.by_id.get(key_id).and_then(|known| known.valid_at(now()).ok())
    }

    /// When a key expires, if it does.
    pub fn end_of(&self, key_id: &str) -> Option<TimeMs> {
        let keys = self.keys.read().ignore_poison();
        keys.by_id.get(key_id).and_then(|known| known.expires_at)
    }

    /// The accounts with a valid key.
    pub fn accounts(&self) -> Vec<Arc<str>> {
        let (keys, now) = (self.keys.read().ignore_poison(), now());
        let accounts = keys.of_accounts.iter();
        let valid =
            accounts.filter(|(_, of_account)| of_account.iter().any(|known| known.valid_at(now).is_ok()));
        valid.map(|(account, _)| Arc::clone(account)).collect()
    }

    /// The valid keys of an account, oldest first.
    pub fn of_account(&self, account: &str) -> Vec<Caller> {
        let (keys, now) = (self.keys.read().ignore_poison(), now());
        let of_account = keys.of_accounts.get(account).into_iter().flatten();
        of_account.filter_map(|known| known.valid_at(now).ok()).collect()
    }

    /// The ids of all keys that were not deleted, also of revoked ones.
    pub fn ids(&self) -> HashSet<Arc<str>> {
        let keys = self.keys.read().ignore_poison();
        keys.by_id.keys().chain(keys.revoked.values()).cloned().collect()
    }

    fn authenticate_at(&self, text: &str, now: TimeMs) -> Result<Caller, InvalidKey> {
        if text.len() > LONGEST {
            return Err(InvalidKey::Unknown);
        }
        // The store has the hash of the native form.
        if KeyText::is_e2b_form(text) {
            let key = KeyText::parse_any(text).map_err(|_| InvalidKey::Unknown)?;
            return self.find_hash(&hash_of(&key), now);
        }
        self.find_hash(&Sha256::digest(text.as_bytes()).into(), now)
    }

    fn find_hash(&self, hash: &[u8; 32], now: TimeMs) -> Result<Caller, InvalidKey> {
        let keys = self.keys.read().ignore_poison();
        let mut alike = keys.known.get(&start(hash)).into_iter().flatten();
        let known = alike.find(|known| known.hash.ct_eq(hash).into()).ok_or(InvalidKey::Unknown)?;
        known.valid_at(now)
    }
}

impl Keys {
    async fn read(store: &dyn Store, version: u64) -> Result<Self, StoreError> {
        let mut known: HashMap<u64, Vec<Arc<Known>>> = HashMap::new();
        let mut of_accounts: HashMap<Arc<str>, Vec<Arc<Known>>> = HashMap::new();
        let mut revoked: HashMap<[u8; 32], Arc<str>> = HashMap::new();
        let mut by_id = HashMap::new();
        for record in store.keys().await? {
            if record.revoked_at.is_some() {
                revoked.insert(record.hash, record.id.as_str().into());
                continue;
            }
            if let Some(key) = Known::of(&record).map(Arc::new) {
                by_id.insert(Arc::clone(&key.caller.key_id), Arc::clone(&key));
                of_accounts.entry(Arc::clone(&key.caller.account)).or_default().push(Arc::clone(&key));
                known.entry(start(&key.hash)).or_default().push(key);
            }
        }
        Ok(Self { version, known, by_id, of_accounts, revoked })
    }
}

impl Known {
    /// `None` if this version does not know the scopes: a key must not have other permissions than it says.
    fn of(record: &KeyRecord) -> Option<Self> {
        let scopes = match record.scopes.parse() {
            Ok(scopes) => scopes,
            Err(error) => {
                tracing::warn!(key_id = %record.id, %error, "an API key with unknown scopes is ignored; create a new one in its place");
                return None;
            }
        };
        let (account, key_id) = (record.account.as_str().into(), record.id.as_str().into());
        let caller = Caller { account, key_id, scopes, limits: record.limits };
        Some(Self { hash: record.hash, caller, name: record.name.clone(), expires_at: record.expires_at })
    }

    fn valid_at(&self, now: TimeMs) -> Result<Caller, InvalidKey> {
        match self.expires_at {
            Some(at) if at <= now => Err(InvalidKey::Expired { at }),
            _ => Ok(self.caller.clone()),
        }
    }
}

fn start(hash: &[u8; 32]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests;
