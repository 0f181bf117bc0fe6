//! When the lack of capacity for warm sandboxes is worth a warning.
//!
//! Every pool fails while the host is full, and each tries again for as long as that lasts. One warning says all of it.

use std::collections::BTreeSet;

/// The pools, named by `K`, whose last sandbox was refused for lack of capacity.
#[derive(Debug)]
pub struct CapacityWarning<K> {
    refused: BTreeSet<K>,
}

impl<K> Default for CapacityWarning<K> {
    fn default() -> Self {
        Self { refused: BTreeSet::new() }
    }
}

impl<K: Ord> CapacityWarning<K> {
    /// A pool was refused a sandbox. Whether to warn: only if no pool lacked capacity before.
    pub fn refused(&mut self, pool: K) -> bool {
        let is_first = self.refused.is_empty();
        self.refused.insert(pool);
        is_first
    }

    /// The host had room for a sandbox of a pool.
    pub fn admitted(&mut self, pool: &K) {
        self.refused.remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_lasts_until_every_pool_has_capacity_again() {
        let mut warning = CapacityWarning::default();
        assert!(warning.refused("large"));
        for _ in 0..3 {
            assert!(!warning.refused("small") && !warning.refused("large"));
        }
        // A pool that is used and filled again while another one lacks capacity.
        warning.admitted(&"small");
        assert!(!warning.refused("small"));
        warning.admitted(&"small");
        warning.admitted(&"large");
        assert!(warning.refused("small"));
    }
}
