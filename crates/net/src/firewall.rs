//! The daemon's table in the host's packet filter. It is loaded as a whole at the start; afterwards single elements
//! of its sets change. [`Firewall`] stores the expected content of the table, to restore it after another program
//! changed it. All calls block; one [`crate::owner::OwnerThread`] owns the firewall and runs them in order.

mod elements;
pub mod log;
mod nft;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use rules::Ranges;

use crate::names::Scope;
use crate::owner::Owned;
use elements::{Change, Elements, Key, Set};

const TEMPLATE: &str = include_str!("firewall/table.nft");
/// Connections of one sandbox that the kernel tracks.
const CONNECTIONS_MAX: u32 = 8192;
/// Learnt addresses of one sandbox.
const LEARNT_MAX: usize = 4096;
/// Added to the lifetime of a learnt address, so that repeated lookups of a name do not each change the kernel's set.
const LIFETIME_MARGIN: Duration = Duration::from_secs(15);
/// A learnt element with less time left than this may expire before it is compared.
const EXPIRING: Duration = Duration::from_secs(2);

const BYTES_PER_MBIT: u64 = 125_000;
/// The burst of a rate limit: what the rate allows in a quarter of a second, and at least a few of TCP's largest packets.
const BURSTS_PER_SECOND: u64 = 4;
const BURST_BYTES_MIN: u64 = 512 << 10;

/// The sets with one element per sandbox.
const SANDBOX_SETS: [Set; 3] = [Set::PolicyRegistry, Set::Open, Set::Strict];
/// The sets that are the same for all sandboxes.
const SHARED_SETS: [Set; 4] = [Set::Closed, Set::Opened, Set::OpenedHere, Set::ClosedByOperator];

/// The destinations that a sandbox's packets may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// None: no policy is in force yet.
    Nothing,
    /// All addresses that are not closed to all sandboxes.
    Public,
    /// Addresses that the sandbox has learnt.
    Learnt,
}

/// The names and ranges that the table is rendered from.
#[derive(Debug, Clone)]
pub struct Plan {
    pub scope: Scope,
    pub gateway: Ipv4Addr,
    pub proxy_port: u16,
    pub ranges: Ranges,
    /// Of each sandbox, in each direction. 0: unlimited.
    pub rate_mbit: u32,
}

pub struct Firewall {
    plan: Plan,
    elements: Elements,
    /// The expected content of the sandboxes' sets. Updated after the kernel has accepted a change.
    entries: HashMap<Ipv4Addr, Entry>,
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
struct Entry {
    link: String,
    passes: Passes,
    learnt: HashMap<Ipv4Addr, Instant>,
}

impl Entry {
    fn new(link: &str, passes: Passes) -> Self {
        Self { link: link.to_owned(), passes, learnt: HashMap::new() }
    }

    fn key(&self, guest: Ipv4Addr, target: Option<Ipv4Addr>) -> Key {
        Key { link: self.link.clone(), guest, target }
    }

    /// Adds the sandbox to the sets that it belongs to, and removes it from the others.
    fn changes(&self, guest: Ipv4Addr) -> Vec<Change> {
        let key = self.key(guest, None);
        let either = |is_in: bool, set: Set| match is_in {
            true => Change::Put(set, key.clone()),
            false => Change::Drop(set, key.clone()),
        };
        vec![
            either(true, Set::PolicyRegistry),
            either(self.passes == Passes::Public, Set::Open),
            either(self.passes == Passes::Learnt, Set::Strict),
        ]
    }
}

impl Firewall {
    /// Opens the netlink socket; the kernel's rules stay as they are.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let elements = Elements::open(plan.scope.table())?;
        Ok(Self { plan, elements, entries: HashMap::new(), loaded: Loaded::default() })
    }

    /// Loads the table. Elements of sandboxes that an earlier daemon left in it stay.
    pub fn establish(&mut self) -> io::Result<()> {
        let text = self.plan.render();
        nft::run(&text).or_else(|error| {
            // An older version may have left a set of another type. No packet passes until its elements are restored.
            tracing::warn!(%error, "the firewall table cannot be updated in place; it is deleted and created anew");
            let table = self.plan.scope.table();
            nft::run(&format!("add table inet {table}\ndelete table inet {table}\n{text}"))
        })?;
        self.loaded = self.read_loaded()?;
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
        let mut changes = Vec::new();
        for set in SANDBOX_SETS {
            let found: HashSet<Key> = self.elements.list(set)?.into_iter().map(|(key, _)| key).collect();
            let expected: HashSet<&Key> = expected.iter().filter_map(|change| change.put_into(set)).collect();
            let missing = expected.iter().filter(|key| !found.contains(**key));
            changes.extend(missing.map(|key| Change::Put(set, (*key).clone())));
            let foreign = found.iter().filter(|key| !expected.contains(key));
            changes.extend(foreign.map(|key| Change::Drop(set, key.clone())));
        }
        let now = Instant::now();
        let mut found: HashSet<Key> =
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

    /// Replaces all entries by those of the living sandboxes, in the kernel too. Returns the learnt addresses that the kernel
    /// still has: sandbox, address, expiry.
    pub fn reconcile(
        &mut self,
        living: &[(Ipv4Addr, String, Passes)],
    ) -> io::Result<Vec<(Ipv4Addr, Ipv4Addr, Instant)>> {
        let now = Instant::now();
        let entries = living.iter().map(|(guest, link, passes)| (*guest, Entry::new(link, *passes)));
        self.entries = entries.collect();
        let mut changes = Vec::new();
        for set in SANDBOX_SETS {
            let found = self.elements.list(set)?;
            let dead = found.into_iter().filter(|(key, _)| !self.is_living(key));
            changes.extend(dead.map(|(key, _)| Change::Drop(set, key)));
        }
        let mut still = Vec::new();
        for (key, left) in self.elements.list(Set::Learnt)? {
            let (Some(target), Some(left)) = (key.target, left) else { continue };
            let entry = self.entries.get_mut(&key.guest).filter(|entry| entry.link == key.link);
            match entry.filter(|entry| entry.passes == Passes::Learnt) {
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
        Ok(still)
    }

    fn is_living(&self, key: &Key) -> bool {
        self.entries.get(&key.guest).is_some_and(|entry| entry.link == key.link)
    }

    /// Adds a sandbox. A policy that is already in force for it stays.
    pub fn admit(&mut self, guest: Ipv4Addr, link: &str) -> io::Result<()> {
        let entry = self.entries.entry(guest).or_insert_with(|| Entry::new(link, Passes::Nothing));
        self.elements.change(&entry.changes(guest))
    }

    /// Sets what passes for a sandbox from now on, and closes the learnt addresses in `forgotten`.
    pub fn set(
        &mut self,
        guest: Ipv4Addr,
        link: &str,
        passes: Passes,
        forgotten: &[Ipv4Addr],
    ) -> io::Result<()> {
        let entry = self.entries.entry(guest).or_insert_with(|| Entry::new(link, passes));
        entry.passes = passes;
        let mut changes = entry.changes(guest);
        let closed: Vec<Ipv4Addr> = match passes {
            Passes::Learnt => {
                forgotten.iter().filter(|target| entry.learnt.contains_key(*target)).copied().collect()
            }
            _ => entry.learnt.keys().copied().collect(),
        };
        changes
            .extend(closed.iter().map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))));
        self.elements.change(&changes)?;
        entry.learnt.retain(|target, _| !closed.contains(target));
        Ok(())
    }

    /// Opens addresses to a sandbox's datagrams. Has no effect unless its policy is a list of names.
    pub fn open(&mut self, guest: Ipv4Addr, targets: &[Ipv4Addr], lasting: Duration) -> io::Result<()> {
        let Some(entry) = self.entries.get_mut(&guest).filter(|entry| entry.passes == Passes::Learnt) else {
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
        let key = Key { link: link.to_owned(), guest, target: None };
        let mut changes: Vec<Change> =
            SANDBOX_SETS.into_iter().map(|set| Change::Drop(set, key.clone())).collect();
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

impl Plan {
    /// Rules that limit what one sandbox sends and receives: packets above the rate are dropped, and TCP slows down.
    fn rate_rules(&self) -> [String; 2] {
        if self.rate_mbit == 0 {
            return [const { String::new() }; 2];
        }
        let rate_bytes = u64::from(self.rate_mbit) * BYTES_PER_MBIT;
        let burst_bytes = (rate_bytes / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
        let limit = format!("limit rate over {rate_bytes} bytes/second burst {burst_bytes} bytes");
        let links = self.scope.links();
        [
            format!("update @sent {{ ip saddr {limit} }} drop"),
            format!("oifname \"{links}*\" update @received {{ ip daddr {limit} }} drop"),
        ]
    }

    fn render(&self) -> String {
        let table = self.scope.table();
        let chains: Vec<&str> = TEMPLATE
            .lines()
            .filter_map(|line| line.trim().strip_prefix("chain ")?.strip_suffix(" {"))
            .collect();
        // A chain can be deleted only if no rule jumps to it, so all chains are flushed first.
        let mut forget: String = chains
            .iter()
            .map(|chain| format!("add chain inet {table} {chain}\nflush chain inet {table} {chain}\n"))
            .collect();
        forget.extend(chains.iter().map(|chain| format!("delete chain inet {table} {chain}\n")));
        let here: Vec<Ipv4Net> =
            self.ranges.opened().iter().filter(|range| range.prefix_len() == 32).copied().collect();
        let elements: String = [
            ("closed", Ranges::fixed().collect::<Vec<_>>()),
            ("opened", self.ranges.opened().to_vec()),
            ("opened_here", here),
            ("closed_by_operator", self.ranges.closed_by_operator().to_vec()),
        ]
        .into_iter()
        .filter(|(_, ranges)| !ranges.is_empty())
        .map(|(set, ranges)| {
            let list: Vec<String> = ranges.iter().map(text).collect();
            format!("add element inet {table} {set} {{ {} }}\n", list.join(", "))
        })
        .collect();
        let [rate_up, rate_down] = self.rate_rules();
        let udp_closed = rules::UDP_PORTS_CLOSED.map(|port| port.to_string()).join(", ");
        let pool = self.ranges.pool().map(|pool| pool.to_string()).unwrap_or_default();
        TEMPLATE
            .replace("@ELEMENTS@", &elements)
            .replace("@FORGET@", &forget)
            .replace("@TABLE@", &table)
            .replace("@LINKS@", &format!("{}*", self.scope.links()))
            .replace("@POOL@", &pool)
            .replace("@GATEWAY@", &self.gateway.to_string())
            .replace("@PROXY@", &self.proxy_port.to_string())
            .replace("@CONNECTIONS@", &CONNECTIONS_MAX.to_string())
            .replace("@RATE_UP@", &rate_up)
            .replace("@RATE_DOWN@", &rate_down)
            .replace("@UDP_CLOSED@", &udp_closed)
            .replace("@GROUP@", &self.scope.log_group().to_string())
    }
}

fn text(range: &Ipv4Net) -> String {
    if range.prefix_len() == 32 { range.addr().to_string() } else { range.trunc().to_string() }
}
