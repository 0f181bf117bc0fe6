//! The names of sandboxes: which sandbox of an account has a name.
//!
//! A name is reserved before a sandbox is created, held by its actor, and free again when the sandbox has ended. The records have the
//! names, so recovery restores them with the actors. All changes of one name are under one lock: two creates at a time cannot both get
//! it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard};

use api::SandboxId;
use base::IgnorePoison;
use store::SandboxRecord;

use crate::error::SandboxError;

#[derive(Default)]
pub struct SandboxNames {
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    /// By account and name. An account without a name has no entry.
    held: HashMap<String, HashMap<String, Holder>>,
    /// Numbers of reservations.
    next: u64,
}

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    /// The reservation with this number, of a sandbox that is being created.
    Creation(u64),
    Sandbox(SandboxId),
}

impl Accounts {
    /// Frees a name if it has this holder.
    fn release(&mut self, account: &str, name: &str, holder: &Holder) {
        let Some(names) = self.held.get_mut(account) else { return };
        if names.get(name) == Some(holder) {
            names.remove(name);
        }
        if names.is_empty() {
            self.held.remove(account);
        }
    }
}

impl SandboxNames {
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        // A panic while the lock is held leaves a valid map.
        self.accounts.lock().ignore_poison()
    }

    /// The sandbox of the account that has a name.
    pub fn find(&self, account: &str, name: &str) -> Option<SandboxId> {
        match self.lock().held.get(account)?.get(name)? {
            Holder::Sandbox(id) => Some(id.clone()),
            Holder::Creation(_) => None,
        }
    }

    /// Reserves the name of a sandbox that is about to be created, if it is to have one. Fails if another one has it.
    pub fn reserve(
        &self,
        account: &str,
        name: Option<&str>,
    ) -> Result<Option<NameReservation<'_>>, SandboxError> {
        let Some(name) = name else { return Ok(None) };
        let mut accounts = self.lock();
        let number = accounts.next;
        accounts.next += 1;
        match accounts.held.entry(account.to_owned()).or_default().entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Holder::Creation(number));
            }
            Entry::Occupied(entry) => {
                let holder = match entry.get() {
                    Holder::Sandbox(id) => Some(id.clone()),
                    Holder::Creation(_) => None,
                };
                return Err(SandboxError::NameTaken { name: name.to_owned(), holder });
            }
        }
        Ok(Some(NameReservation { names: self, account: account.to_owned(), name: name.to_owned(), number }))
    }

    /// Gives a sandbox the name in its record, which the caller has reserved or recovers. A record of a daemon without names may have
    /// the tag of another sandbox: then the first keeps it.
    pub fn hold(&self, record: &SandboxRecord) {
        let Some(name) = record.config.name() else { return };
        let mut accounts = self.lock();
        let names = accounts.held.entry(record.account.clone()).or_default();
        if !matches!(names.get(name), Some(Holder::Sandbox(_))) {
            names.insert(name.to_owned(), Holder::Sandbox(record.id.clone()));
        }
    }

    /// Frees the name of a sandbox that has ended.
    pub fn release(&self, record: &SandboxRecord) {
        let Some(name) = record.config.name() else { return };
        self.lock().release(&record.account, name, &Holder::Sandbox(record.id.clone()));
    }
}

/// Keeps a name for a sandbox that is being created. Frees it when dropped, unless a sandbox holds it by then.
#[must_use]
pub struct NameReservation<'a> {
    names: &'a SandboxNames,
    account: String,
    name: String,
    number: u64,
}

impl Drop for NameReservation<'_> {
    fn drop(&mut self) {
        self.names.lock().release(&self.account, &self.name, &Holder::Creation(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(names: &SandboxNames, account: &str, name: &str) -> Option<SandboxId> {
        match names.reserve(account, Some(name)) {
            Err(SandboxError::NameTaken { holder, .. }) => holder,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("the name is free"),
        }
    }

    #[test]
    fn a_reservation_excludes_others_until_it_is_dropped() {
        let names = SandboxNames::default();
        assert!(names.reserve("a", None).unwrap().is_none());
        let reserved = names.reserve("a", Some("web")).unwrap();
        assert_eq!(taken(&names, "a", "web"), None);
        assert_eq!(names.find("a", "web"), None, "no sandbox has it yet");
        // Names of other accounts, and others of the account, are free.
        drop(names.reserve("b", Some("web")).unwrap());
        drop(names.reserve("a", Some("Web")).unwrap());
        drop(reserved);
        drop(names.reserve("a", Some("web")).unwrap());
        assert!(names.lock().held.is_empty());
    }

    #[test]
    fn an_old_reservation_does_not_free_a_new_one() {
        let names = SandboxNames::default();
        let old = names.reserve("a", Some("web")).unwrap().unwrap();
        names.lock().release("a", "web", &Holder::Creation(old.number));
        let new = names.reserve("a", Some("web")).unwrap();
        drop(old);
        assert_eq!(taken(&names, "a", "web"), None);
        drop(new);
    }
}
