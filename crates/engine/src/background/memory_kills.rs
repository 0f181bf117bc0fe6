//! Counts the processes that the kernel has killed for lack of memory, and tells the operator of which sandbox. The owner learns it from
//! the results of commands (`work::memory_watch`).
//!
//! The sampler reads the kills of each running sandbox. Those of a sandbox that has ended since the sample before are not seen.

use std::collections::HashMap;
use std::time::Duration;

use api::SandboxId;
use driver::MemoryKills;
use store::SandboxRecord;
use tokio::time::Instant;

use crate::counters::Counters;

/// Of one sandbox: its owner could fill the log without a request.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The kills of each sandbox. Those before the end of the first round were counted by earlier daemons.
#[derive(Debug, Default)]
pub struct SeenKills {
    sandboxes: HashMap<SandboxId, Seen>,
    has_baseline: bool,
}

/// The kills of one sandbox.
#[derive(Debug, Default)]
struct Seen {
    /// At the last sample.
    count: u64,
    /// Since the last line of the log.
    unlogged: u64,
    logged_at: Option<Instant>,
}

impl SeenKills {
    /// Counts what is new, and logs it from time to time.
    pub fn note(&mut self, record: &SandboxRecord, kills: MemoryKills, counters: &Counters) {
        counters.memory_kills.add(self.new_of(&record.id, kills.count));
        let Some(count) = self.due_for_log(&record.id, Instant::now()) else { return };
        tracing::warn!(
            id = %record.id, account = %record.account, count,
            memory_mb = record.config.resources.memory_mb, has_reached_limit = kills.has_reached_limit,
            "the kernel has killed processes of a sandbox for lack of memory"
        );
    }

    /// Whether a round has ended.
    pub fn has_baseline(&self) -> bool {
        self.has_baseline
    }

    /// Ends a round.
    pub fn retain(&mut self, is_living: impl Fn(&SandboxId) -> bool) {
        self.sandboxes.retain(|id, _| is_living(id));
        self.has_baseline = true;
    }

    /// The kills since the last sample. The count begins at zero with each start of the sandbox.
    fn new_of(&mut self, id: &SandboxId, count: u64) -> u64 {
        let is_known = self.sandboxes.contains_key(id);
        let seen = self.sandboxes.entry(id.clone()).or_default();
        let before = match std::mem::replace(&mut seen.count, count) {
            _ if !is_known && !self.has_baseline => count,
            before if before <= count => before,
            _ => 0,
        };
        seen.unlogged += count - before;
        count - before
    }

    /// The kills that a line of the log is due for.
    fn due_for_log(&mut self, id: &SandboxId, now: Instant) -> Option<u64> {
        let seen = self.sandboxes.get_mut(id).filter(|seen| seen.unlogged > 0)?;
        if seen.logged_at.is_some_and(|at| now.duration_since(at) < LOGGED_EVERY) {
            return None;
        }
        seen.logged_at = Some(now);
        Some(std::mem::take(&mut seen.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kill_counts_once() {
        let (known, new): (SandboxId, SandboxId) =
            (SandboxId::from_random([1; 20]), SandboxId::from_random([2; 20]));
        let mut seen = SeenKills::default();
        // An earlier daemon has counted them.
        assert_eq!(seen.new_of(&known, 3), 0);
        seen.retain(|_| true);
        assert_eq!([seen.new_of(&known, 3), seen.new_of(&known, 5), seen.new_of(&known, 5)], [0, 2, 0]);
        // The sandbox was started again.
        assert_eq!(seen.new_of(&known, 1), 1);
        assert_eq!(seen.new_of(&new, 2), 2);
        seen.retain(|id| *id == known);
        assert_eq!(seen.sandboxes.len(), 1);
    }

    #[test]
    fn one_sandbox_has_a_line_a_minute() {
        let (id, now) = (SandboxId::from_random([1; 20]), Instant::now());
        let mut seen = SeenKills { has_baseline: true, ..SeenKills::default() };
        let mut line = |count, at| {
            seen.new_of(&id, count);
            seen.due_for_log(&id, at)
        };
        assert_eq!([line(0, now), line(2, now), line(5, now)], [None, Some(2), None]);
        assert_eq!(line(5, now + LOGGED_EVERY), Some(3));
        assert_eq!(line(5, now + 3 * LOGGED_EVERY), None);
    }
}
