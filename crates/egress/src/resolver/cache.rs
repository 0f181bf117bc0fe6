//! A cache of answers, bounded by bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::IgnorePoison;
use hickory_proto::rr::RecordType;

use super::answer::Answer;

/// Both generations together.
const BYTES_MAX: usize = 16 << 20;
/// A larger answer is not cached.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Two generations: answers are inserted into the young one. When it is full, it becomes the old one; entries of the
/// previous old one are dropped unless they were used meanwhile. Insertion and eviction take constant time.
#[derive(Default)]
pub struct Cache {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    entries: HashMap<(String, RecordType), CachedAnswer>,
    bytes: usize,
}

#[derive(Clone)]
struct CachedAnswer {
    answer: Arc<Answer>,
    since: Instant,
    bytes: usize,
}

impl Cache {
    /// An unexpired answer and its age in seconds.
    pub fn find(&self, name: &str, kind: RecordType, now: Instant) -> Option<(Arc<Answer>, u32)> {
        let key = (name.to_owned(), kind);
        let mut generations = self.generations.lock().ignore_poison();
        let entry = match generations.young.entries.get(&key) {
            Some(entry) => entry.clone(),
            None => {
                let entry = generations.old.take(&key)?;
                generations.insert(key, entry.clone());
                entry
            }
        };
        let age = u32::try_from(now.saturating_duration_since(entry.since).as_secs()).unwrap_or(u32::MAX);
        (age < entry.answer.ttl).then_some((entry.answer, age))
    }

    /// Keeps an answer for its lifetime, unless it is too large.
    pub fn insert(&self, name: &str, kind: RecordType, answer: &Arc<Answer>, now: Instant) {
        let bytes = answer.bytes() + 2 * name.len() + size_of::<CachedAnswer>();
        if answer.ttl == 0 || bytes > ANSWER_BYTES_MAX {
            return;
        }
        let entry = CachedAnswer { answer: Arc::clone(answer), since: now, bytes };
        let mut generations = self.generations.lock().ignore_poison();
        generations.insert((name.to_owned(), kind), entry);
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let generations = self.generations.lock().ignore_poison();
        generations.young.bytes + generations.old.bytes
    }
}

impl Generations {
    fn insert(&mut self, key: (String, RecordType), entry: CachedAnswer) {
        if self.young.bytes + entry.bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.take(&key);
        self.young.bytes += entry.bytes;
        self.young.entries.insert(key, entry);
    }
}

impl Generation {
    fn take(&mut self, key: &(String, RecordType)) -> Option<CachedAnswer> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
