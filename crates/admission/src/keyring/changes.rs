//! What happens to keys while the service runs, for its log. The secrets of keys are never logged.

use std::sync::Arc;

use rules::TimeMs;

use super::{Caller, Keys, Known};

/// Something that happened to a key.
pub struct Change {
    key: Arc<Known>,
    what: &'static str,
}

impl Change {
    pub fn log(&self) {
        let Known { caller: Caller { account, key_id, scopes, .. }, name, .. } = &*self.key;
        tracing::info!(key_id = &**key_id, account = &**account, name = name.as_deref(), %scopes, "{}", self.what);
    }
}

/// The keys that were created or revoked between two reads of the store.
pub fn changes(before: &Keys, after: &Keys) -> Vec<Change> {
    let only_in = |keys: &Keys, others: &Keys, what| -> Vec<Change> {
        let only_here = keys.by_id.iter().filter(|(id, _)| !others.by_id.contains_key(*id));
        only_here.map(|(_, known)| Change { key: Arc::clone(known), what }).collect()
    };
    let mut found = only_in(after, before, "an API key was created");
    found.extend(only_in(before, after, "an API key was revoked"));
    found
}

/// The keys that expired after `since` and not after `until`.
pub fn expired(keys: &Keys, since: TimeMs, until: TimeMs) -> Vec<Change> {
    let has_expired = |known: &&Arc<Known>| known.expires_at.is_some_and(|at| since < at && at <= until);
    let expired = keys.by_id.values().filter(has_expired);
    expired.map(|known| Change { key: Arc::clone(known), what: "an API key expired" }).collect()
}
