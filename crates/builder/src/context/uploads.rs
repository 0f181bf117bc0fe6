//! Uploads in progress: their number, and the bytes that they have written, of each account and of the host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::IgnorePoison;

use crate::error::BuilderError;

/// Most uploads of an account at a time.
pub const MAX_PER_ACCOUNT: usize = 16;
/// Most uploads at a time.
pub const MAX_ON_HOST: usize = 64;

/// All uploads in progress.
#[derive(Debug)]
pub struct Uploads {
    accounts: Mutex<HashMap<String, InProgress>>,
    /// Most bytes that the uploads of an account have written and not stored yet.
    allowed_bytes: u64,
}

#[derive(Debug, Default)]
struct InProgress {
    number: usize,
    bytes: u64,
}

/// An upload of an account. Dropping it ends the upload.
#[derive(Debug)]
pub struct ContextUpload {
    uploads: Arc<Uploads>,
    pub account: String,
    bytes: u64,
}

impl Uploads {
    /// `allowed_bytes` bounds what the uploads of one account write at a time.
    pub fn new(allowed_bytes: u64) -> Self {
        Self { accounts: Mutex::default(), allowed_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, InProgress>> {
        self.accounts.lock().ignore_poison()
    }

    /// Begins an upload, if the account and the host may have another one.
    pub fn begin(self: &Arc<Self>, account: &str) -> Result<ContextUpload, BuilderError> {
        let mut accounts = self.lock();
        let active = accounts.get(account).map_or(0, |own| own.number);
        if active >= MAX_PER_ACCOUNT {
            return Err(BuilderError::TooManyUploads { active, allowed: MAX_PER_ACCOUNT });
        }
        if accounts.values().map(|own| own.number).sum::<usize>() >= MAX_ON_HOST {
            return Err(BuilderError::UploadsBusy { allowed: MAX_ON_HOST });
        }
        accounts.entry(account.to_owned()).or_default().number += 1;
        drop(accounts);
        Ok(ContextUpload { uploads: Arc::clone(self), account: account.to_owned(), bytes: 0 })
    }
}

impl ContextUpload {
    /// Counts bytes before they are written.
    pub fn add(&mut self, bytes: u64) -> Result<(), BuilderError> {
        let allowed_bytes = self.uploads.allowed_bytes;
        let mut accounts = self.uploads.lock();
        // The entry exists as long as the upload does.
        let Some(own) = accounts.get_mut(&self.account) else { return Ok(()) };
        if own.bytes.saturating_add(bytes) > allowed_bytes {
            return Err(BuilderError::UploadedBytes { allowed_bytes });
        }
        own.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for ContextUpload {
    fn drop(&mut self) {
        let mut accounts = self.uploads.lock();
        if let Some(own) = accounts.get_mut(&self.account) {
            own.number -= 1;
            own.bytes -= self.bytes;
            if own.number == 0 {
                accounts.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_bounded_for_each_account_and_for_the_host() {
        let uploads = Arc::new(Uploads::new(100));
        let own: Vec<_> = (0..MAX_PER_ACCOUNT).map(|_| uploads.begin("one").unwrap()).collect();
        let refused = uploads.begin("one").unwrap_err();
        assert!(matches!(refused, BuilderError::TooManyUploads { active: 16, allowed: 16 }), "{refused}");
        let mut others = Vec::new();
        for number in 0..MAX_ON_HOST - MAX_PER_ACCOUNT {
            others.push(uploads.begin(&format!("other {}", number % 4)).unwrap());
        }
        assert!(matches!(uploads.begin("two"), Err(BuilderError::UploadsBusy { allowed: 64 })));
        drop(own);
        uploads.begin("two").unwrap();
        drop(others);
        assert!(uploads.lock().is_empty());
    }

    #[test]
    fn the_bytes_of_all_uploads_of_an_account_count_together() {
        let uploads = Arc::new(Uploads::new(100));
        let (mut first, mut second) = (uploads.begin("one").unwrap(), uploads.begin("one").unwrap());
        first.add(60).unwrap();
        assert!(matches!(second.add(41), Err(BuilderError::UploadedBytes { allowed_bytes: 100 })));
        uploads.begin("two").unwrap().add(100).unwrap();
        drop(first);
        second.add(100).unwrap();
    }
}
