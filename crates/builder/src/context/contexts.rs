//! Uploaded contexts that wait for their builds. They are lost when the daemon stops, and after an hour.

use std::sync::{Mutex, MutexGuard};

use api::BuildContextId;
use base::IgnorePoison;
use rules::TimeMs;

use crate::context::spool::{LARGEST_PER_ACCOUNT, StoredContext};

const VALID_MS: u64 = 3_600_000;
/// Most contexts of an account. The oldest ones are dropped for another one.
const MAX_PER_ACCOUNT: usize = 10;

/// The contexts of all accounts; few, as an account has a bounded number.
#[derive(Debug, Default)]
pub struct Contexts(Mutex<Vec<WaitingContext>>);

#[derive(Debug)]
struct WaitingContext {
    id: BuildContextId,
    account: String,
    context: StoredContext,
    expires_at: TimeMs,
}

impl Contexts {
    fn lock(&self, now: TimeMs) -> MutexGuard<'_, Vec<WaitingContext>> {
        let mut all = self.0.lock().ignore_poison();
        all.retain(|waiting| waiting.expires_at > now);
        all
    }

    /// Removes expired contexts.
    pub fn expire(&self, now: TimeMs) {
        drop(self.lock(now));
    }

    /// Stores a context, and returns when it expires. Replaces one with the same id. `largest` is the largest size of one.
    pub fn add(
        &self,
        account: &str,
        id: BuildContextId,
        context: StoredContext,
        largest: u64,
        now: TimeMs,
    ) -> TimeMs {
        let expires_at = now.after(VALID_MS);
        let mut all = self.lock(now);
        all.retain(|waiting| waiting.account != account || waiting.id != id);
        while let Some(oldest) = all.iter().position(|waiting| waiting.account == account) {
            let own = all.iter().filter(|waiting| waiting.account == account);
            let bytes: u64 = own.clone().map(|waiting| waiting.context.size_bytes).sum();
            if own.count() < MAX_PER_ACCOUNT && bytes + context.size_bytes <= LARGEST_PER_ACCOUNT * largest {
                break;
            }
            all.remove(oldest);
        }
        all.push(WaitingContext { id, account: account.to_owned(), context, expires_at });
        expires_at
    }

    /// The context of an account that has not expired.
    pub fn find(&self, account: &str, id: &BuildContextId, now: TimeMs) -> Option<StoredContext> {
        let all = self.lock(now);
        let found = all.iter().find(|waiting| waiting.account == account && waiting.id == *id);
        found.map(|waiting| waiting.context.clone())
    }
}

#[cfg(test)]
mod tests;
