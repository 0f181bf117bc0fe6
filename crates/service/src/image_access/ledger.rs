//! The bytes that accounts have pulled today. They are stored in the data directory, so that a restart does not renew a quota; a crash
//! forgets a few megabytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use admission::wall_clock::now;
use base::IgnorePoison;
use image::PullQuota;
use rules::{PullQuotaReached, PulledBytes, TimeMs};
use serde::{Deserialize, Serialize};

const FILE: &str = "pulled-bytes.json";
/// The file is written after so many bytes, and after each pull.
const SAVE_BYTES: u64 = 64 << 20;

/// Counts bytes of accounts.
#[derive(Debug)]
pub struct PullLedger {
    file: PathBuf,
    /// Of each account in a day; 0 is unlimited.
    allowed: u64,
    state: Mutex<PulledToday>,
}

#[derive(Debug, Default)]
struct PulledToday {
    pulled: PulledBytes,
    unsaved: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    at: u64,
    accounts: BTreeMap<String, u64>,
}

impl PullLedger {
    /// A file that cannot be read counts as empty.
    pub fn open(data_dir: &Path, allowed: u64) -> Self {
        let file = data_dir.join(FILE);
        let pulled = match read(&file) {
            Ok(pulled) => pulled,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "cannot read how much accounts have pulled today");
                PulledBytes::default()
            }
        };
        Self { file, allowed, state: Mutex::new(PulledToday { pulled, unsaved: 0 }) }
    }

    /// Writes the numbers if they have changed.
    pub fn save(&self) {
        let mut state = self.lock();
        if state.unsaved > 0 {
            self.write(&mut state);
        }
    }

    /// Under the lock: the file must not go back to older numbers.
    fn write(&self, state: &mut PulledToday) {
        let stored = Stored { at: now().0, accounts: state.pulled.accounts().clone() };
        let new = self.file.with_extension("new");
        // Not synced: pulls wait for it, and numbers that a crash loses are small.
        let written = serde_json::to_vec(&stored)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, &self.file));
        match written {
            Ok(()) => state.unsaved = 0,
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "cannot store how much accounts have pulled today");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PulledToday> {
        self.state.lock().ignore_poison()
    }
}

impl PullQuota for PullLedger {
    fn check(&self, account: &str, bytes: u64) -> Result<(), PullQuotaReached> {
        self.lock().pulled.check(account, bytes, self.allowed, now())
    }

    fn take(&self, account: &str, bytes: u64) -> Result<(), PullQuotaReached> {
        let mut state = self.lock();
        state.pulled.take(account, bytes, self.allowed, now())?;
        state.unsaved = state.unsaved.saturating_add(bytes);
        if state.unsaved >= SAVE_BYTES {
            self.write(&mut state);
        }
        Ok(())
    }
}

fn read(file: &Path) -> std::io::Result<PulledBytes> {
    match std::fs::read(file) {
        Ok(text) => {
            let Stored { at, accounts } = serde_json::from_slice(&text)?;
            Ok(PulledBytes::stored(TimeMs(at), accounts))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(PulledBytes::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_does_not_renew_a_quota() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = PullLedger::open(dir.path(), 100);
        ledger.take("one", 90).unwrap();
        ledger.save();
        let ledger = PullLedger::open(dir.path(), 100);
        // Unless the day ends in between.
        let before = now();
        let again = ledger.take("one", 20);
        assert!(
            again.is_err() || before.0 / 86_400_000 != now().0 / 86_400_000 || before.0 % 86_400_000 < 10_000
        );
        assert_eq!(ledger.take("two", 100), Ok(()));
    }

    #[test]
    fn large_transfers_are_stored_while_they_run() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = PullLedger::open(dir.path(), 0);
        ledger.take("one", SAVE_BYTES).unwrap();
        assert_eq!(read(&dir.path().join(FILE)).unwrap().accounts().get("one"), Some(&SAVE_BYTES));
    }

    #[test]
    fn a_malformed_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(PullLedger::open(dir.path(), 100).take("one", 100), Ok(()));
    }
}
