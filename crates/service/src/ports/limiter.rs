//! Limits the connections through ports: of each sandbox, of each account and of all. Dropping a permit frees its connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use api::SandboxId;
use base::IgnorePoison;

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortsFull {
    Sandbox { most: u32 },
    Account { most: u32 },
    Service { most: u32 },
}

/// The limits.
#[derive(Debug, Clone, Copy)]
pub struct PortLimits {
    pub of_sandbox: u32,
    /// Below `of_all`, so that one account cannot take all connections.
    pub of_account: u32,
    pub of_all: u32,
}

#[derive(Debug)]
pub struct PortLimiter {
    most: PortLimits,
    in_use: Arc<Mutex<InUse>>,
}

#[derive(Debug, Default)]
struct InUse {
    all: u32,
    by_account: HashMap<String, u32>,
    by_sandbox: HashMap<SandboxId, u32>,
}

/// The right to one connection.
#[derive(Debug)]
pub struct PortPermit {
    account: String,
    id: SandboxId,
    in_use: Arc<Mutex<InUse>>,
}

impl PortLimiter {
    pub fn new(most: PortLimits) -> Self {
        Self { most, in_use: Arc::default() }
    }

    pub fn take(&self, account: &str, id: &SandboxId) -> Result<PortPermit, PortsFull> {
        let PortLimits { of_sandbox, of_account, of_all } = self.most;
        let mut in_use = self.in_use.lock().ignore_poison();
        if in_use.by_sandbox.get(id).is_some_and(|count| *count >= of_sandbox) {
            return Err(PortsFull::Sandbox { most: of_sandbox });
        }
        if in_use.by_account.get(account).is_some_and(|count| *count >= of_account) {
            return Err(PortsFull::Account { most: of_account });
        }
        if in_use.all >= of_all {
            return Err(PortsFull::Service { most: of_all });
        }
        let account = account.to_owned();
        *in_use.by_sandbox.entry(id.clone()).or_default() += 1;
        *in_use.by_account.entry(account.clone()).or_default() += 1;
        in_use.all += 1;
        Ok(PortPermit { account, id: id.clone(), in_use: Arc::clone(&self.in_use) })
    }
}

impl Drop for PortPermit {
    fn drop(&mut self) {
        let mut in_use = self.in_use.lock().ignore_poison();
        in_use.all -= 1;
        give_back(&mut in_use.by_sandbox, &self.id);
        give_back(&mut in_use.by_account, &self.account);
    }
}

fn give_back<K: Clone + Eq + Hash>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Entry::Occupied(mut entry) = counts.entry(key.clone()) {
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SandboxId {
        name.parse().unwrap()
    }

    #[test]
    fn permits_are_counted_and_released() {
        let (one, two) = (id("sb_aaaaaaaa"), id("sb_bbbbbbbb"));
        let limiter = PortLimiter::new(PortLimits { of_sandbox: 2, of_account: 9, of_all: 3 });
        let mut held = vec![limiter.take("a", &one).unwrap(), limiter.take("a", &one).unwrap()];
        assert_eq!(limiter.take("a", &one).unwrap_err(), PortsFull::Sandbox { most: 2 });
        held.push(limiter.take("a", &two).unwrap());
        assert_eq!(limiter.take("a", &two).unwrap_err(), PortsFull::Service { most: 3 });
        held.remove(0);
        held.push(limiter.take("a", &two).unwrap());
        drop(held);
        let in_use = limiter.in_use.lock().unwrap();
        assert!(in_use.all == 0 && in_use.by_sandbox.is_empty() && in_use.by_account.is_empty());
    }

    #[test]
    fn one_account_cannot_take_all_connections() {
        let limiter = PortLimiter::new(PortLimits { of_sandbox: 2, of_account: 3, of_all: 4 });
        let sandboxes = [id("sb_aaaaaaaa"), id("sb_bbbbbbbb"), id("sb_cccccccc")];
        let held: Vec<_> = sandboxes.iter().map(|id| limiter.take("a", id).unwrap()).collect();
        assert_eq!(limiter.take("a", &sandboxes[0]).unwrap_err(), PortsFull::Account { most: 3 });
        let other = limiter.take("b", &id("sb_dddddddd")).unwrap();
        drop(held);
        assert!(limiter.take("a", &sandboxes[0]).is_ok());
        drop(other);
    }
}
