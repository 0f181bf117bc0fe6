//! Remembers unreachable registries, so that three images of one registry wait for it once, not three times.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of registries remembered; others are always contacted.
const REGISTRIES: usize = 256;

pub(crate) struct Reach {
    unreachable_for: Duration,
    failed: Mutex<HashMap<String, (Instant, String)>>,
}

impl Reach {
    pub(crate) fn new(unreachable_for: Duration) -> Self {
        Self { unreachable_for, failed: Mutex::default() }
    }

    /// Why the registry failed, if that was recent.
    pub(super) fn failure(&self, registry: &str) -> Option<String> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed
            .get(registry)
            .filter(|(at, _)| at.elapsed() < self.unreachable_for)
            .map(|(_, reason)| reason.clone())
    }

    pub(super) fn fail(&self, registry: &str, reason: &str) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, (at, _)| at.elapsed() < self.unreachable_for);
        if failed.len() < REGISTRIES {
            failed.insert(registry.to_owned(), (Instant::now(), reason.to_owned()));
        }
    }

    /// Forgets all registries, for a pull requested by a person.
    pub(crate) fn forget(&self) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
