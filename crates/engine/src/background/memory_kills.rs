//! Counts the processes that the kernel has killed for lack of memory, and tells the operator of which sandbox. The owner learns it from
//! the results of commands (`work::memory_watch`).
//!
//! The sampler reads the kills of each running sandbox. Those of a sandbox that has ended since the sample before are not seen.

use std::collections::HashMap;

use api::SandboxId;
use driver::MemoryKills;
use store::SandboxRecord;

use crate::counters::Counters;

/// The kills of each sandbox at the last sample. `None` before the end of the first round: earlier daemons have counted those.
#[derive(Debug, Default)]
pub struct SeenKills {
    counts: HashMap<SandboxId, u64>,
    has_baseline: bool,
}

impl SeenKills {
    /// Counts and logs what is new.
    pub fn note(&mut self, record: &SandboxRecord, kills: MemoryKills, counters: &Counters) {
        let count = self.new_of(&record.id, kills.count);
        if count == 0 {
            return;
        }
        counters.memory_kills.add(count);
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
        self.counts.retain(|id, _| is_living(id));
        self.has_baseline = true;
    }

    /// The kills since the last sample. The count begins at zero with each start of the sandbox.
    fn new_of(&mut self, id: &SandboxId, count: u64) -> u64 {
        let before = match self.counts.insert(id.clone(), count) {
            Some(before) if before <= count => before,
            None if !self.has_baseline => count,
            Some(_) | None => 0,
        };
        count - before
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
        assert_eq!(seen.counts.len(), 1);
    }
}
