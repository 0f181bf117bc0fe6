//! Builds that were requested and not started yet: their clients send the files in between. They are lost when the daemon stops, and
//! after an hour.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use api::TemplateId;
use base::IgnorePoison;
use builder::{LARGEST_PER_ACCOUNT, StoredContext};

use super::missing;
use crate::error::E2bError;

const VALID: Duration = Duration::from_secs(3600);
/// Most requested builds of an account. The oldest is dropped for another one.
const MAX_PER_ACCOUNT: usize = 20;
/// Most archives of a build.
const MAX_FILES: usize = 256;

#[derive(Debug, Default)]
pub struct PendingBuilds(Mutex<HashMap<TemplateId, Entry>>);

#[derive(Debug)]
struct Entry {
    account: Arc<str>,
    since: Instant,
    build: RequestedBuild,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.build.files.values().map(|context| context.size_bytes).sum()
    }
}

/// A requested build.
#[derive(Debug, Clone, Default)]
pub struct RequestedBuild {
    pub name: String,
    pub tags: Vec<String>,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    /// By their hashes.
    pub files: BTreeMap<String, StoredContext>,
}

impl PendingBuilds {
    fn lock(&self) -> MutexGuard<'_, HashMap<TemplateId, Entry>> {
        let mut all = self.0.lock().ignore_poison();
        all.retain(|_, entry| entry.since.elapsed() < VALID);
        all
    }

    pub fn add(&self, account: &Arc<str>, id: TemplateId, build: RequestedBuild) {
        let mut all = self.lock();
        let own = all.iter().filter(|(_, entry)| entry.account == *account);
        if own.clone().count() >= MAX_PER_ACCOUNT
            && let Some(oldest) = own.min_by_key(|(_, entry)| entry.since).map(|(id, _)| id.clone())
        {
            all.remove(&oldest);
        }
        all.insert(id, Entry { account: Arc::clone(account), since: Instant::now(), build });
    }

    pub fn find(&self, account: &str, id: &TemplateId) -> Option<RequestedBuild> {
        let all = self.lock();
        all.get(id).filter(|entry| *entry.account == *account).map(|entry| entry.build.clone())
    }

    /// The account that requested a build.
    pub fn account(&self, id: &TemplateId) -> Option<Arc<str>> {
        self.lock().get(id).map(|entry| Arc::clone(&entry.account))
    }

    /// The account of a requested build.
    pub fn account_of(&self, id: &TemplateId) -> Option<String> {
        self.lock().get(id).map(|entry| entry.account.to_string())
    }

    /// Adds an archive to a build of any account: the link to upload it is signed. `largest` is the largest size of a context, which
    /// all archives of a build become together.
    pub fn add_files(
        &self,
        id: &TemplateId,
        hash: String,
        context: StoredContext,
        largest: u64,
    ) -> Result<(), E2bError> {
        let mut all = self.lock();
        let Some(entry) = all.get_mut(id) else { return Err(missing(id.as_str())) };
        entry.build.files.remove(&hash);
        if entry.build.files.len() >= MAX_FILES || entry.bytes() + context.size_bytes > largest {
            return Err(E2bError::invalid(format!(
                "the files of a build are at most {MAX_FILES} archives with {} MB together",
                largest >> 20
            )));
        }
        entry.build.files.insert(hash, context);
        let account = Arc::clone(&entry.account);
        loop {
            let own = all.iter().filter(|(_, entry)| entry.account == account);
            if own.clone().map(|(_, entry)| entry.bytes()).sum::<u64>() <= LARGEST_PER_ACCOUNT * largest {
                return Ok(());
            }
            let others = own.filter(|(other, entry)| *other != id && entry.bytes() > 0);
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.since).map(|(id, _)| id.clone()) else {
                return Ok(());
            };
            all.remove(&oldest);
        }
    }

    pub fn remove(&self, id: &TemplateId) {
        self.lock().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> TemplateId {
        TemplateId::from_random([number; 20])
    }

    fn named(name: &str) -> RequestedBuild {
        RequestedBuild { name: name.to_owned(), ..RequestedBuild::default() }
    }

    #[test]
    fn a_build_belongs_to_the_account_that_requested_it() {
        let (pending, one) = (PendingBuilds::default(), Arc::<str>::from("one"));
        pending.add(&one, id(1), named("web"));
        assert_eq!(pending.find("one", &id(1)).map(|build| build.name).as_deref(), Some("web"));
        assert!(pending.find("two", &id(1)).is_none() && pending.find("one", &id(2)).is_none());
        // A link is signed for a build, so the account is found by the build.
        assert_eq!(pending.account(&id(1)).as_deref(), Some("one"));
        assert_eq!((pending.account_of(&id(1)).as_deref(), pending.account_of(&id(2))), (Some("one"), None));
        pending.remove(&id(1));
        assert!(pending.find("one", &id(1)).is_none() && pending.account(&id(1)).is_none());
    }

    #[test]
    fn the_oldest_request_of_the_same_account_makes_room() {
        let pending = PendingBuilds::default();
        let (one, two) = (Arc::<str>::from("one"), Arc::<str>::from("two"));
        pending.add(&two, id(31), named("other"));
        for number in 0..20 {
            pending.add(&one, id(number), named("web"));
        }
        assert!(pending.find("one", &id(0)).is_some(), "20 requests fit");
        pending.add(&one, id(20), named("web"));
        assert!(pending.find("one", &id(0)).is_none());
        assert!((1..=20).all(|number| pending.find("one", &id(number)).is_some()));
        assert!(pending.find("two", &id(31)).is_some(), "the oldest of all, of another account");
    }
}
