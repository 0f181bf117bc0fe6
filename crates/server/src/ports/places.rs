//! How many connections there are through ports, of each sandbox, of each account and of all. A place is given back when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use api::SandboxId;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Sandbox { most: u32 },
    Account { most: u32 },
    Service,
}

/// The most of each.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    pub of_sandbox: u32,
    /// Fewer than of all, so that one account leaves room for the others.
    pub of_account: u32,
    pub of_all: u32,
}

#[derive(Debug)]
pub struct Places {
    most: Most,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u32,
    by_account: HashMap<String, u32>,
    by_sandbox: HashMap<SandboxId, u32>,
}

/// Room for one connection.
#[derive(Debug)]
pub struct Place {
    account: String,
    id: SandboxId,
    taken: Arc<Mutex<Taken>>,
}

impl Places {
    pub fn new(most: Most) -> Self {
        Self { most, taken: Arc::default() }
    }

    pub fn take(&self, account: &str, id: &SandboxId) -> Result<Place, Full> {
        let Most { of_sandbox, of_account, of_all } = self.most;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.by_sandbox.get(id).is_some_and(|count| *count >= of_sandbox) {
            return Err(Full::Sandbox { most: of_sandbox });
        }
        if taken.by_account.get(account).is_some_and(|count| *count >= of_account) {
            return Err(Full::Account { most: of_account });
        }
        if taken.all >= of_all {
            return Err(Full::Service);
        }
        let account = account.to_owned();
        *taken.by_sandbox.entry(id.clone()).or_default() += 1;
        *taken.by_account.entry(account.clone()).or_default() += 1;
        taken.all += 1;
        Ok(Place { account, id: id.clone(), taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        give_back(&mut taken.by_sandbox, &self.id);
        give_back(&mut taken.by_account, &self.account);
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
    fn places_are_counted_and_come_back() {
        let (one, two) = (id("sb_aaaaaaaa"), id("sb_bbbbbbbb"));
        let places = Places::new(Most { of_sandbox: 2, of_account: 9, of_all: 3 });
        let mut held = vec![places.take("a", &one).unwrap(), places.take("a", &one).unwrap()];
        assert_eq!(places.take("a", &one).unwrap_err(), Full::Sandbox { most: 2 });
        held.push(places.take("a", &two).unwrap());
        assert_eq!(places.take("a", &two).unwrap_err(), Full::Service);
        held.remove(0);
        held.push(places.take("a", &two).unwrap());
        drop(held);
        let taken = places.taken.lock().unwrap();
        assert!(taken.all == 0 && taken.by_sandbox.is_empty() && taken.by_account.is_empty());
    }

    #[test]
    fn an_account_leaves_room_for_the_others() {
        let places = Places::new(Most { of_sandbox: 2, of_account: 3, of_all: 4 });
        let sandboxes = [id("sb_aaaaaaaa"), id("sb_bbbbbbbb"), id("sb_cccccccc")];
        let held: Vec<_> = sandboxes.iter().map(|id| places.take("a", id).unwrap()).collect();
        assert_eq!(places.take("a", &sandboxes[0]).unwrap_err(), Full::Account { most: 3 });
        let other = places.take("b", &id("sb_dddddddd")).unwrap();
        drop(held);
        assert!(places.take("a", &sandboxes[0]).is_ok());
        drop(other);
    }
}
