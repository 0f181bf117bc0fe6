//! When each key was last used, for operators who look for keys that nobody needs.
//!
//! Requests note it in memory. [`crate::maintain`] writes a file in the data directory once a minute, which `sandboxd key list` reads; a crash
//! loses a minute.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{IgnorePoison, replace_file};
use rules::TimeMs;

const FILE: &str = "key-uses.json";
/// Of one key. The table shows minutes.
const NOTED_EVERY_MS: u64 = 60_000;

/// Times of the last use by the ids of keys.
pub type LastUses = BTreeMap<String, TimeMs>;

/// Notes the uses of keys.
#[derive(Debug, Default)]
pub struct KeyUses {
    /// `None`: they are only in memory.
    file: Option<PathBuf>,
    uses: Mutex<Uses>,
}

#[derive(Debug, Default)]
struct Uses {
    last: LastUses,
    is_changed: bool,
    is_failing: bool,
}

/// Reads the file of the service with this data directory. Without one no use is known.
pub fn read(data_dir: &Path) -> io::Result<LastUses> {
    let bytes = match std::fs::read(data_dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LastUses::new()),
        read => read?,
    };
    let stored: BTreeMap<String, u64> = serde_json::from_slice(&bytes)?;
    Ok(stored.into_iter().map(|(id, at)| (id, TimeMs(at))).collect())
}

impl KeyUses {
    /// Goes on with the file of an earlier daemon. One that cannot be read counts as empty.
    pub fn open(data_dir: &Path) -> Self {
        let last = read(data_dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read when keys were last used");
            LastUses::new()
        });
        let uses = Uses { last, ..Uses::default() };
        Self { file: Some(data_dir.join(FILE)), uses: Mutex::new(uses) }
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().ignore_poison()
    }

    pub fn note(&self, key_id: &str, now: TimeMs) {
        let mut uses = self.lock();
        // A time in the future is that of a clock that was wrong.
        let is_recent = |last: &TimeMs| *last <= now && now.since(*last) < NOTED_EVERY_MS;
        if uses.last.get(key_id).is_some_and(is_recent) {
            return;
        }
        uses.last.insert(key_id.to_owned(), now);
        uses.is_changed = true;
    }

    /// Makes [`KeyUses::save`] wait, as a slow disk does.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.lock()
    }

    /// When the key was last used, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn last_of(&self, key_id: &str) -> Option<TimeMs> {
        self.lock().last.get(key_id).copied()
    }

    /// Writes the file if a key was used since, without those that were deleted: else it would grow for ever where each job has a key
    /// of its own. A failure is logged once; the next call tries again.
    pub fn save(&self, existing: impl FnOnce() -> HashSet<Arc<str>>) {
        let Some(file) = &self.file else { return };
        if !std::mem::take(&mut self.lock().is_changed) {
            return;
        }
        let existing = existing();
        let stored: BTreeMap<String, u64> = {
            let mut uses = self.lock();
            uses.last.retain(|id, _| existing.contains(&**id));
            uses.last.iter().map(|(id, at)| (id.clone(), at.0)).collect()
        };
        // Serializing text and numbers cannot fail.
        let bytes = serde_json::to_vec(&stored).unwrap_or_default();
        // Without the lock, which requests need.
        let written = replace_file(file, &bytes, 0o600);
        let mut uses = self.lock();
        let was_failing = std::mem::replace(&mut uses.is_failing, written.is_err());
        let Err(error) = written else { return };
        uses.is_changed = true;
        drop(uses);
        if !was_failing {
            tracing::warn!(%error, "cannot store when keys were last used");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing(ids: &'static [&str]) -> impl FnOnce() -> HashSet<Arc<str>> {
        move || ids.iter().map(|id| Arc::from(*id)).collect()
    }

    #[test]
    fn a_clock_that_was_wrong_is_forgotten() {
        let uses = KeyUses::default();
        for at in [TimeMs(4_000_000_000_000), TimeMs(1_700_000_000_000)] {
            uses.note("key_1", at);
            assert_eq!(uses.last_of("key_1"), Some(at));
        }
    }

    #[test]
    fn deleted_keys_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let uses = KeyUses::open(dir.path());
        uses.note("key_1", TimeMs(1));
        uses.note("key_2", TimeMs(2));
        uses.save(existing(&["key_2"]));
        let expected = [("key_2".to_owned(), TimeMs(2))];
        assert_eq!(read(dir.path()).unwrap(), expected.into());
        assert_eq!((uses.last_of("key_1"), uses.last_of("key_2")), (None, Some(TimeMs(2))));
    }

    #[test]
    fn uses_survive_a_restart_and_are_written_only_if_there_are_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        let uses = KeyUses::open(dir.path());
        uses.save(existing(&["key_1", "key_2"]));
        assert!(!dir.path().join(FILE).exists());
        uses.note("key_1", TimeMs(100_000));
        uses.note("key_1", TimeMs(100_000 + NOTED_EVERY_MS - 1));
        uses.note("key_2", TimeMs(5));
        uses.save(existing(&["key_1", "key_2"]));
        let next = KeyUses::open(dir.path());
        next.note("key_1", TimeMs(100_000 + NOTED_EVERY_MS));
        next.save(existing(&["key_1", "key_2"]));
        let expected = [("key_1", 160_000), ("key_2", 5)].map(|(id, at)| (id.to_owned(), TimeMs(at)));
        assert_eq!(read(dir.path()).unwrap(), expected.into());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_of_the_reader_only() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(read(dir.path()).is_err());
        let uses = KeyUses::open(dir.path());
        uses.note("key_1", TimeMs(1));
        uses.save(existing(&["key_1", "key_2"]));
        assert_eq!(read(dir.path()).unwrap().len(), 1);
    }
}
