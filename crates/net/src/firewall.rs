//! The daemon's table in the host's packet filter. It is loaded as a whole at the start; afterwards single elements
//! of its sets change. [`Firewall`] stores the expected content of the table, to restore it after another program
//! changed it. All calls block; one [`crate::owner::OwnerThread`] owns the firewall and runs them in order.

mod elements;
pub mod log;
mod nft;
mod plan;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rules::Networks;

use crate::owner::Owned;
use elements::{Change, ElementKey, Elements, RangeKey, Set};
pub use plan::TablePlan;

/// Learnt addresses of one sandbox.
const LEARNT_MAX: usize = 4096;
/// Added to the lifetime of a learnt address, so that repeated lookups of a name do not each change the kernel's set.
const LIFETIME_MARGIN: Duration = Duration::from_secs(15);
/// A learnt element with less time left than this may expire before it is compared.
const EXPIRING: Duration = Duration::from_secs(2);

/// The sets with one element per sandbox.
const SANDBOX_SETS: [Set; 4] = [Set::Guests, Set::Listed, Set::Open, Set::Strict];
/// The sets of sandboxes' networks.
const RANGE_SETS: [Set; 2] = [Set::AllowedNetworks, Set::DeniedNetworks];
/// The sets that are the same for all sandboxes.
const SHARED_SETS: [Set; 4] = [Set::Closed, Set::Opened, Set::OpenedHere, Set::ClosedByOperator];

/// The part of a sandbox's policy that the kernel enforces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelPolicy {
    pub passes: Passes,
    pub networks: Networks,
}

/// The destinations that a sandbox's packets may reach, without its lists of networks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Passes {
    /// None: no policy is in force yet.
    #[default]
    Nothing,
    /// All addresses that are not closed to all sandboxes.
    Public,
    /// Addresses that the sandbox has learnt.
    Learnt,
}

/// The table in the kernel, and what is in its sets.
pub struct Firewall {
    plan: TablePlan,
    elements: Elements,
    /// The expected content of the sandboxes' sets. Updated after the kernel has accepted a change.
    entries: HashMap<Ipv4Addr, SandboxEntry>,
    /// The state of the kernel right after the table was loaded.
    loaded: Loaded,
}

/// The part of the table that does not change while it is in force.
#[derive(Default, PartialEq, Eq)]
struct Loaded {
    /// The kernel's handles of the rules.
    rules: Vec<u64>,
    shared_sets: Vec<Vec<Vec<u8>>>,
}

/// One sandbox, by its address.
struct SandboxEntry {
    link: String,
    policy: KernelPolicy,
    learnt: HashMap<Ipv4Addr, Instant>,
    /// The ranges that the kernel has for this sandbox. `None` if a change failed: then they are read from the kernel.
    ranges: Option<Vec<(Set, RangeKey)>>,
}

impl SandboxEntry {
    fn new(link: &str, policy: KernelPolicy) -> Self {
        Self { link: link.to_owned(), policy, learnt: HashMap::new(), ranges: Some(Vec::new()) }
    }

    fn key(&self, guest: Ipv4Addr, target: Option<Ipv4Addr>) -> ElementKey {
        ElementKey { link: self.link.clone(), guest, target }
    }

    /// The ranges that the policy lists.
    fn listed_ranges(&self, guest: Ipv4Addr) -> Vec<(Set, RangeKey)> {
        let Networks { allowed, denied } = &self.policy.networks;
        [(Set::AllowedNetworks, allowed), (Set::DeniedNetworks, denied)]
            .into_iter()
            .flat_map(|(set, networks)| networks.iter().map(move |network| (set, network)))
            .map(|(set, network)| {
                (set, RangeKey { guest, first: network.network(), last: network.broadcast() })
            })
            .collect()
    }

    /// Adds the sandbox to the sets that it belongs to, and removes it from the others. Its ranges are first: if the changes
    /// need several transactions, nothing passes before it is denied. A sandbox without ranges is expected not to be in the
    /// set of those with ranges.
    fn changes(&self, guest: Ipv4Addr) -> Vec<Change> {
        let key = self.key(guest, None);
        let either = |is_in: bool, set: Set| match is_in {
            true => Change::Put(set, key.clone()),
            false => Change::Drop(set, key.clone()),
        };
        let ranges = self.listed_ranges(guest);
        let listed = (!ranges.is_empty()).then(|| Change::Put(Set::Listed, key.clone()));
        let policy = [
            either(true, Set::Guests),
            either(self.policy.passes == Passes::Public, Set::Open),
            either(self.policy.passes == Passes::Learnt, Set::Strict),
        ];
        let ranges = ranges.into_iter().map(|(set, range)| Change::PutRange(set, range));
        ranges.chain(listed).chain(policy).collect()
    }
}

impl Firewall {
    /// Opens the netlink socket; the kernel's rules stay as they are.
    pub fn new(plan: TablePlan) -> io::Result<Self> {
        let elements = Elements::open(plan.scope.table())?;
        Ok(Self { plan, elements, entries: HashMap::new(), loaded: Loaded::default() })
    }

    /// Loads the table. Elements of sandboxes that an earlier daemon left in it stay. Another program may disturb that once or twice.
    pub fn establish(&mut self) -> io::Result<()> {
        self.load().or_else(|_| self.load()).or_else(|_| self.load())
    }

    fn load(&mut self) -> io::Result<()> {
        let text = self.plan.render();
        nft::run(&text).or_else(|error| {
            // An older version may have left a set of another type. No packet passes until its elements are restored.
            tracing::warn!(%error, "the firewall table cannot be updated in place; it is deleted and created anew");
            let table = self.plan.scope.table();
            nft::run(&format!("add table inet {table}\ndelete table inet {table}\n{text}"))
        })?;
        let loaded = self.read_loaded()?;
        let (found, expected) = (loaded.rules.len(), plan::count_rules(&text));
        if found != expected {
            // Another program has changed the table since. What it has left must not become what is expected.
            return Err(io::Error::other(format!("the table has {found} rules instead of {expected}")));
        }
        self.loaded = loaded;
        Ok(())
    }

    fn read_loaded(&mut self) -> io::Result<Loaded> {
        let rules = self.elements.rules()?;
        let mut shared_sets = Vec::new();
        if !rules.is_empty() {
            for set in SHARED_SETS {
                shared_sets.push(self.elements.raw(set)?);
            }
        }
        Ok(Loaded { rules, shared_sets })
    }

    /// The kernel's port number of the daemon's socket, which distinguishes its changes from those of other programs.
    pub fn port_number(&self) -> u32 {
        self.elements.number
    }

    /// Restores the expected content. Returns whether it differed.
    pub fn repair(&mut self) -> io::Result<bool> {
        let is_intact = self.read_loaded().is_ok_and(|found| found == self.loaded);
        if !is_intact {
            self.establish()?;
        }
        let changes = self.differences()?;
        self.elements.change(&changes)?;
        Ok(!is_intact || !changes.is_empty())
    }

    /// The changes that make the sandboxes' sets equal to `entries`.
    fn differences(&mut self) -> io::Result<Vec<Change>> {
        let expected: Vec<Change> =
            self.entries.iter().flat_map(|(guest, entry)| entry.changes(*guest)).collect();
        let mut changes = self.range_differences()?;
        for set in SANDBOX_SETS {
            let found: HashSet<ElementKey> =
                self.elements.list(set)?.into_iter().map(|(key, _)| key).collect();
            let expected: HashSet<&ElementKey> =
                expected.iter().filter_map(|change| change.put_into(set)).collect();
            let missing = expected.iter().filter(|key| !found.contains(**key));
            changes.extend(missing.map(|key| Change::Put(set, (*key).clone())));
            let foreign = found.iter().filter(|key| !expected.contains(key));
            changes.extend(foreign.map(|key| Change::Drop(set, key.clone())));
        }
        let now = Instant::now();
        let mut found: HashSet<ElementKey> =
            self.elements.list(Set::Learnt)?.into_iter().map(|(key, _)| key).collect();
        for (guest, entry) in &self.entries {
            for (target, until) in &entry.learnt {
                let key = entry.key(*guest, Some(*target));
                if !found.remove(&key)
                    && let Some(left) = until.checked_duration_since(now + EXPIRING)
                {
                    changes.push(Change::PutFor(Set::Learnt, key, left));
                }
            }
        }
        changes.extend(found.into_iter().map(|key| Change::Drop(Set::Learnt, key)));
        Ok(changes)
    }

    /// The same for the sets of ranges. Drops are first, because a stale range may overlap a new one.
    fn range_differences(&mut self) -> io::Result<Vec<Change>> {
        let found: HashSet<(Set, RangeKey)> = self.found_ranges()?.into_iter().collect();
        let expected: HashSet<(Set, RangeKey)> =
            self.entries.iter().flat_map(|(guest, entry)| entry.listed_ranges(*guest)).collect();
        let stale = found.difference(&expected).map(|(set, range)| Change::DropRange(*set, *range));
        let missing = expected.difference(&found).map(|(set, range)| Change::PutRange(*set, *range));
        Ok(stale.chain(missing).collect())
    }

    fn found_ranges(&mut self) -> io::Result<Vec<(Set, RangeKey)>> {
        let mut found = Vec::new();
        for set in RANGE_SETS {
            found.extend(self.elements.ranges(set)?.into_iter().map(|range| (set, range)));
        }
        Ok(found)
    }

    /// The ranges that the kernel has for a sandbox. Until the caller stores them again, they count as unknown.
    fn take_ranges(&mut self, guest: Ipv4Addr) -> io::Result<Vec<(Set, RangeKey)>> {
        let Some(entry) = self.entries.get_mut(&guest) else { return Ok(Vec::new()) };
        if let Some(known) = entry.ranges.take() {
            return Ok(known);
        }
        let found = self.found_ranges()?.into_iter();
        Ok(found.filter(|(_, range)| range.guest == guest).collect())
    }

    /// Replaces all entries by those of the living sandboxes, in the kernel too. Returns the learnt addresses that the kernel
    /// still has: sandbox, address, expiry.
    pub fn reconcile(
        &mut self,
        living: &[(Ipv4Addr, String, KernelPolicy)],
    ) -> io::Result<Vec<(Ipv4Addr, Ipv4Addr, Instant)>> {
        let now = Instant::now();
        let entries = living.iter().map(|(guest, link, policy)| {
            (*guest, SandboxEntry { ranges: None, ..SandboxEntry::new(link, policy.clone()) })
        });
        self.entries = entries.collect();
        let mut changes = self.range_differences()?;
        for set in SANDBOX_SETS {
            let found = self.elements.list(set)?;
            let dead = found.into_iter().filter(|(key, _)| !self.is_living(key, set));
            changes.extend(dead.map(|(key, _)| Change::Drop(set, key)));
        }
        let mut still = Vec::new();
        for (key, left) in self.elements.list(Set::Learnt)? {
            let (Some(target), Some(left)) = (key.target, left) else { continue };
            let entry = self.entries.get_mut(&key.guest).filter(|entry| entry.link == key.link);
            match entry.filter(|entry| entry.policy.passes == Passes::Learnt) {
                Some(entry) => {
                    entry.learnt.insert(target, now + left);
                    still.push((key.guest, target, now + left));
                }
                None => changes.push(Change::Drop(Set::Learnt, key)),
            }
        }
        for (guest, entry) in &self.entries {
            changes.extend(entry.changes(*guest));
        }
        self.elements.change(&changes)?;
        for (guest, entry) in &mut self.entries {
            entry.ranges = Some(entry.listed_ranges(*guest));
        }
        Ok(still)
    }

    /// Whether an element of a set may belong to a living sandbox.
    fn is_living(&self, key: &ElementKey, set: Set) -> bool {
        let entry = self.entries.get(&key.guest).filter(|entry| entry.link == key.link);
        entry.is_some_and(|entry| set != Set::Listed || !entry.policy.networks.is_empty())
    }

    /// Adds a sandbox. A policy that is already in force for it stays.
    pub fn admit(&mut self, guest: Ipv4Addr, link: &str) -> io::Result<()> {
        let entry =
            self.entries.entry(guest).or_insert_with(|| SandboxEntry::new(link, KernelPolicy::default()));
        self.elements.change(&entry.changes(guest))
    }

    /// Sets the policy of a sandbox, and closes the learnt addresses in `forgotten`.
    pub fn set(
        &mut self,
        guest: Ipv4Addr,
        link: &str,
        policy: KernelPolicy,
        forgotten: &[Ipv4Addr],
    ) -> io::Result<()> {
        let before = self.take_ranges(guest)?;
        let entry =
            self.entries.entry(guest).or_insert_with(|| SandboxEntry::new(link, KernelPolicy::default()));
        entry.policy = policy;
        let listed = entry.listed_ranges(guest);
        // In the same transaction as the new ranges, which may overlap them.
        let stale = before.iter().filter(|range| !listed.contains(range));
        let mut changes: Vec<Change> = stale.map(|(set, range)| Change::DropRange(*set, *range)).collect();
        if listed.is_empty() && !before.is_empty() {
            changes.push(Change::Drop(Set::Listed, entry.key(guest, None)));
        }
        changes.extend(entry.changes(guest));
        let closed: Vec<Ipv4Addr> = match entry.policy.passes {
            Passes::Learnt => {
                forgotten.iter().filter(|target| entry.learnt.contains_key(*target)).copied().collect()
            }
            _ => entry.learnt.keys().copied().collect(),
        };
        changes
            .extend(closed.iter().map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))));
        self.elements.change(&changes)?;
        entry.learnt.retain(|target, _| !closed.contains(target));
        entry.ranges = Some(listed);
        Ok(())
    }

    /// Opens addresses to a sandbox's datagrams. Has no effect unless its policy is a list of names.
    pub fn open(&mut self, guest: Ipv4Addr, targets: &[Ipv4Addr], lasting: Duration) -> io::Result<()> {
        let Some(entry) = self.entries.get_mut(&guest).filter(|entry| entry.policy.passes == Passes::Learnt)
        else {
            return Ok(());
        };
        let now = Instant::now();
        let mut expected: Vec<Ipv4Addr> = targets
            .iter()
            .filter(|target| entry.learnt.get(*target).is_none_or(|until| *until < now + lasting))
            .copied()
            .collect();
        expected.sort_unstable();
        expected.dedup();
        if expected.is_empty() {
            return Ok(());
        }
        if entry.learnt.len() + expected.len() > LEARNT_MAX {
            entry.learnt.retain(|_, until| *until > now);
            if entry.learnt.len() + expected.len() > LEARNT_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    format!("the sandbox has {LEARNT_MAX} learnt addresses, the maximum"),
                ));
            }
        }
        let lasting = lasting + LIFETIME_MARGIN;
        let changes: Vec<Change> = expected
            .iter()
            .map(|target| Change::PutFor(Set::Learnt, entry.key(guest, Some(*target)), lasting))
            .collect();
        self.elements.change(&changes)?;
        entry.learnt.extend(expected.into_iter().map(|target| (target, now + lasting)));
        Ok(())
    }

    /// Closes learnt addresses to a sandbox's datagrams.
    pub fn close(&mut self, guest: Ipv4Addr, targets: &[Ipv4Addr]) -> io::Result<()> {
        let Some(entry) = self.entries.get_mut(&guest) else { return Ok(()) };
        let known: Vec<Ipv4Addr> =
            targets.iter().filter(|target| entry.learnt.contains_key(*target)).copied().collect();
        let changes: Vec<Change> =
            known.iter().map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))).collect();
        self.elements.change(&changes)?;
        entry.learnt.retain(|target, _| !known.contains(target));
        Ok(())
    }

    /// Removes a sandbox. No error if it is unknown.
    pub fn remove(&mut self, guest: Ipv4Addr, link: &str) -> io::Result<()> {
        let ranges = self.take_ranges(guest)?;
        let key = ElementKey { link: link.to_owned(), guest, target: None };
        let sets = SANDBOX_SETS.into_iter().filter(|set| *set != Set::Listed || !ranges.is_empty());
        let mut changes: Vec<Change> = sets.map(|set| Change::Drop(set, key.clone())).collect();
        changes.extend(ranges.into_iter().map(|(set, range)| Change::DropRange(set, range)));
        if let Some(entry) = self.entries.get(&guest) {
            let targets = entry.learnt.keys();
            changes.extend(targets.map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))));
        }
        self.elements.change(&changes)?;
        self.entries.remove(&guest);
        Ok(())
    }

    /// Whether no sandbox is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Deletes the table. No error if there is none.
    pub fn retire(&mut self) -> io::Result<()> {
        let table = self.plan.scope.table();
        nft::run(&format!("add table inet {table}\ndelete table inet {table}\n"))
    }
}

impl Owned for Firewall {
    fn after_panic(&mut self) {
        if let Err(error) = self.repair() {
            tracing::error!(%error, "the firewall cannot be restored after a panic");
        }
    }
}

#[cfg(test)]
mod tests;
