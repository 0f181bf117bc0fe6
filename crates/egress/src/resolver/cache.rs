//! A cache of answers, bounded by bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hickory_proto::rr::RecordType;

use super::answer::Answer;

/// Both generations together.
const BYTES_MAX: usize = 16 << 20;
/// A larger answer is not cached.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Two generations: answers are inserted into the young one. When it is full, it becomes the old one, and what the old one
/// held is dropped unless it was asked for since. Insertion and eviction take constant time.
#[derive(Default)]
pub struct Cache {
    halves: Mutex<Halves>,
}

#[derive(Default)]
struct Halves {
    young: Half,
    old: Half,
}

#[derive(Default)]
struct Half {
    kept: HashMap<(String, RecordType), Kept>,
    bytes: usize,
}

#[derive(Clone)]
struct Kept {
    answer: Arc<Answer>,
    since: Instant,
    bytes: usize,
}

impl Cache {
    /// An unexpired answer and its age in seconds.
    pub fn find(&self, name: &str, kind: RecordType, now: Instant) -> Option<(Arc<Answer>, u32)> {
        let key = (name.to_owned(), kind);
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match halves.young.kept.get(&key) {
            Some(kept) => kept.clone(),
            None => {
                let kept = halves.old.take(&key)?;
                halves.keep(key, kept.clone());
                kept
            }
        };
        let age = u32::try_from(now.saturating_duration_since(kept.since).as_secs()).unwrap_or(u32::MAX);
        (age < kept.answer.ttl).then_some((kept.answer, age))
    }

    pub fn keep(&self, name: &str, kind: RecordType, answer: &Arc<Answer>, now: Instant) {
        let bytes = answer.bytes() + 2 * name.len() + size_of::<Kept>();
        if answer.ttl == 0 || bytes > ANSWER_BYTES_MAX {
            return;
        }
        let kept = Kept { answer: Arc::clone(answer), since: now, bytes };
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.keep((name.to_owned(), kind), kept);
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.young.bytes + halves.old.bytes
    }
}

impl Halves {
    fn keep(&mut self, key: (String, RecordType), kept: Kept) {
        if self.young.bytes + kept.bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.take(&key);
        self.young.bytes += kept.bytes;
        self.young.kept.insert(key, kept);
    }
}

impl Half {
    fn take(&mut self, key: &(String, RecordType)) -> Option<Kept> {
        let kept = self.kept.remove(key)?;
        self.bytes -= kept.bytes;
        Some(kept)
    }
}

#[cfg(test)]
mod tests;
