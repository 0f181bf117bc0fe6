//! Builds that were requested and not started yet: their clients send the files in between. They are lost when the daemon stops, and
//! after an hour.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::TemplateId;
use builder::StoredContext;

const VALID: Duration = Duration::from_secs(3600);
/// Most requested builds of an account. The oldest is dropped for another one.
const MAX_PER_ACCOUNT: usize = 20;
/// Most archives of a build.
const MAX_FILES: usize = 256;

#[derive(Debug, Default)]
pub struct PendingBuilds(Mutex<HashMap<TemplateId, Entry>>);

#[derive(Debug)]
struct Entry {
    account: String,
    since: Instant,
    build: RequestedBuild,
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
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| entry.since.elapsed() < VALID);
        all
    }

    pub fn add(&self, account: &str, id: TemplateId, build: RequestedBuild) {
        let mut all = self.lock();
        let own = all.iter().filter(|(_, entry)| entry.account == account);
        if own.clone().count() >= MAX_PER_ACCOUNT
            && let Some(oldest) = own.min_by_key(|(_, entry)| entry.since).map(|(id, _)| id.clone())
        {
            all.remove(&oldest);
        }
        all.insert(id, Entry { account: account.to_owned(), since: Instant::now(), build });
    }

    pub fn find(&self, account: &str, id: &TemplateId) -> Option<RequestedBuild> {
        let all = self.lock();
        all.get(id).filter(|entry| entry.account == account).map(|entry| entry.build.clone())
    }

    /// Adds an archive to a build of any account: the link to upload it is signed. False if there is no such build, or no room.
    pub fn add_files(&self, id: &TemplateId, hash: String, context: StoredContext) -> bool {
        let mut all = self.lock();
        let Some(entry) = all.get_mut(id) else { return false };
        let has_room = entry.build.files.len() < MAX_FILES || entry.build.files.contains_key(&hash);
        if has_room {
            entry.build.files.insert(hash, context);
        }
        has_room
    }

    pub fn remove(&self, id: &TemplateId) {
        self.lock().remove(id);
    }
}
