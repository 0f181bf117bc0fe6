//! Remembers unreachable registries for a while, so that pulls of several images do not each wait for the same
//! registry.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base::IgnorePoison;

/// Limit of remembered registries.
const REGISTRIES: usize = 256;

pub(crate) struct UnreachableRegistries {
    unreachable_for: Duration,
    failed: Mutex<HashMap<String, (Instant, String)>>,
}

impl UnreachableRegistries {
    pub(crate) fn new(unreachable_for: Duration) -> Self {
        Self { unreachable_for, failed: Mutex::default() }
    }

    /// The reason of a recent failure.
    pub(super) fn failure(&self, registry: &str) -> Option<String> {
        let failed = self.failed.lock().ignore_poison();
        failed
            .get(registry)
            .filter(|(at, _)| at.elapsed() < self.unreachable_for)
            .map(|(_, reason)| reason.clone())
    }

    pub(super) fn fail(&self, registry: &str, reason: &str) {
        let mut failed = self.failed.lock().ignore_poison();
        failed.retain(|_, (at, _)| at.elapsed() < self.unreachable_for);
        if failed.len() < REGISTRIES {
            failed.insert(registry.to_owned(), (Instant::now(), reason.to_owned()));
        }
    }

    /// Clears the list, for a pull that a user requests.
    pub(crate) fn forget(&self) {
        self.failed.lock().ignore_poison().clear();
    }
}
