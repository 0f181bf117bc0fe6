//! The table of this daemon in the host's packet filter: put in force as one piece at the start, changed by single elements
//! from then on. Remembers what it is to hold, so that all of it can be restored at once.

mod elements;
pub mod log;
mod nft;
pub mod watch;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use rules::Ranges;

use crate::names::Scope;
use elements::{Change, Elements, Key, Set};

const TEMPLATE: &str = include_str!("firewall/table.nft");
/// Tracked connections that one sandbox may have in the kernel.
const CONNECTIONS_MAX: u32 = 8192;
/// Addresses that datagrams of one sandbox may go to.
const LEARNT_MAX: usize = 4096;
/// An address stays open for this much longer than asked, so that a name that is asked for all the time costs a change of the
/// kernel's set now and then only.
const LONGER: Duration = Duration::from_secs(15);

/// What passes for a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Nothing yet.
    Nothing,
    /// Everything that is not closed to all.
    Public,
    /// What it has learnt.
    Learnt,
}

/// The names and ranges that the table is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    pub scope: Scope,
    pub gateway: Ipv4Addr,
    pub proxy_port: u16,
    pub ranges: Ranges,
}

pub struct Firewall {
    plan: Plan,
    elements: Elements,
    /// Held while the kernel is told, so that both say the same.
    book: Mutex<HashMap<Ipv4Addr, Entry>>,
    /// What is in force, but for the sets of sandboxes.
    fixed: Mutex<Fixed>,
}

#[derive(Default, PartialEq, Eq)]
struct Fixed {
    /// The kernel's numbers of the rules.
    rules: Vec<u64>,
    /// What the sets hold that are the same for all.
    sets: Vec<Vec<Vec<u8>>>,
}

const OF_SANDBOXES: [Set; 3] = [Set::Guests, Set::Open, Set::Strict];
const OF_ALL: [Set; 4] = [Set::Closed, Set::Opened, Set::OpenedHere, Set::ClosedByOperator];
/// An element this close to its end may be gone already.
const ENDING: Duration = Duration::from_secs(2);

struct Entry {
    link: String,
    passes: Passes,
    learnt: HashMap<Ipv4Addr, Instant>,
}

impl Entry {
    fn key(&self, guest: Ipv4Addr, target: Option<Ipv4Addr>) -> Key {
        Key { link: self.link.clone(), guest, target }
    }

    /// All elements of this sandbox, those that it is not to have as well.
    fn changes(&self, guest: Ipv4Addr) -> Vec<Change> {
        let key = self.key(guest, None);
        let either = |is_in: bool, set: Set| match is_in {
            true => Change::Put(set, key.clone()),
            false => Change::Drop(set, key.clone()),
        };
        vec![
            either(true, Set::Guests),
            either(self.passes == Passes::Public, Set::Open),
            either(self.passes == Passes::Learnt, Set::Strict),
        ]
    }
}

impl Firewall {
    /// Touches nothing yet.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let elements = Elements::open(plan.scope.table())?;
        Ok(Self { plan, elements, book: Mutex::default(), fixed: Mutex::default() })
    }

    /// Puts the table in force, whatever was there. Elements stay.
    pub fn establish(&self) -> io::Result<()> {
        let _book = self.book();
        self.load()
    }

    fn load(&self) -> io::Result<()> {
        let text = self.plan.render();
        nft::run(&text).or_else(|error| {
            // A set of an older version may be of another shape. Nothing passes until its elements are back.
            tracing::warn!(%error, "the table is made anew");
            let table = self.plan.scope.table();
            nft::run(&format!("add table inet {table}\ndelete table inet {table}\n{text}"))
        })?;
        *self.fixed() = self.read_fixed()?;
        Ok(())
    }

    fn read_fixed(&self) -> io::Result<Fixed> {
        let rules = self.elements.rules()?;
        let sets = match rules.is_empty() {
            true => Vec::new(),
            false => OF_ALL.into_iter().map(|set| self.elements.raw(set)).collect::<io::Result<_>>()?,
        };
        Ok(Fixed { rules, sets })
    }

    /// What there is to watch for changes that are not ours.
    pub fn watched(&self) -> watch::Watched {
        watch::Watched { table: self.plan.scope.table(), ours: self.elements.number }
    }

    /// Puts back everything if what is in force is not what was put in force. Says whether it did.
    pub fn mend(&self) -> io::Result<bool> {
        let book = self.book();
        if self.read_fixed().is_ok_and(|found| found == *self.fixed()) {
            let changes = self.differences(&book)?;
            self.elements.change(&changes)?;
            return Ok(!changes.is_empty());
        }
        self.load()?;
        let changes = self.differences(&book)?;
        self.elements.change(&changes)?;
        Ok(true)
    }

    /// What has to be changed so that the sets of sandboxes hold what the book says.
    fn differences(&self, book: &HashMap<Ipv4Addr, Entry>) -> io::Result<Vec<Change>> {
        let wanted: Vec<Change> = book.iter().flat_map(|(guest, entry)| entry.changes(*guest)).collect();
        let mut changes = Vec::new();
        for set in OF_SANDBOXES {
            let known: HashSet<Key> = self.elements.list(set)?.into_iter().map(|(key, _)| key).collect();
            let to_be: HashSet<&Key> = wanted.iter().filter_map(|change| change.put_into(set)).collect();
            changes.extend(
                to_be.iter().filter(|key| !known.contains(**key)).map(|key| Change::Put(set, (*key).clone())),
            );
            changes.extend(
                known.iter().filter(|key| !to_be.contains(key)).map(|key| Change::Drop(set, key.clone())),
            );
        }
        let now = Instant::now();
        let mut known: HashSet<Key> =
            self.elements.list(Set::Learnt)?.into_iter().map(|(key, _)| key).collect();
        for (guest, entry) in book {
            for (target, until) in &entry.learnt {
                let key = entry.key(*guest, Some(*target));
                if !known.remove(&key)
                    && let Some(left) = until.checked_duration_since(now + ENDING)
                {
                    changes.push(Change::PutFor(Set::Learnt, key, left));
                }
            }
        }
        changes.extend(known.into_iter().map(|key| Change::Drop(Set::Learnt, key)));
        Ok(changes)
    }

    /// Makes the kernel's sets and the book say what lives, and answers what is still learnt by whom.
    pub fn reconcile(
        &self,
        living: &[(Ipv4Addr, String, Passes)],
    ) -> io::Result<Vec<(Ipv4Addr, Ipv4Addr, Instant)>> {
        let mut book = self.book();
        let now = Instant::now();
        *book = living
            .iter()
            .map(|(guest, link, passes)| {
                (*guest, Entry { link: link.clone(), passes: *passes, learnt: HashMap::new() })
            })
            .collect();
        let mut changes = Vec::new();
        for set in OF_SANDBOXES {
            let known = self.elements.list(set)?;
            let dead = known.into_iter().filter(|(key, _)| !lives(&book, key));
            changes.extend(dead.map(|(key, _)| Change::Drop(set, key)));
        }
        let mut still = Vec::new();
        for (key, left) in self.elements.list(Set::Learnt)? {
            let (Some(target), Some(left)) = (key.target, left) else { continue };
            let entry = book.get_mut(&key.guest).filter(|entry| entry.link == key.link);
            match entry.filter(|entry| entry.passes == Passes::Learnt) {
                Some(entry) => {
                    entry.learnt.insert(target, now + left);
                    still.push((key.guest, target, now + left));
                }
                None => changes.push(Change::Drop(Set::Learnt, key)),
            }
        }
        for (guest, entry) in book.iter() {
            changes.extend(entry.changes(*guest));
        }
        self.elements.change(&changes)?;
        Ok(still)
    }

    /// A sandbox is there. A policy that is in force for it stays.
    pub fn admit(&self, guest: Ipv4Addr, link: &str) -> io::Result<()> {
        let mut book = self.book();
        let entry = book.entry(guest).or_insert_with(|| Entry {
            link: link.to_owned(),
            passes: Passes::Nothing,
            learnt: HashMap::new(),
        });
        self.elements.change(&entry.changes(guest))
    }

    /// Says what passes for a sandbox from now on, and what it may reach no more of what it had learnt.
    pub fn set(&self, guest: Ipv4Addr, link: &str, passes: Passes, forgotten: &[Ipv4Addr]) -> io::Result<()> {
        let mut book = self.book();
        let entry = book.entry(guest).or_insert_with(|| Entry {
            link: link.to_owned(),
            passes,
            learnt: HashMap::new(),
        });
        entry.passes = passes;
        let mut changes = entry.changes(guest);
        let gone: Vec<Ipv4Addr> = match passes {
            Passes::Learnt => {
                forgotten.iter().filter(|target| entry.learnt.contains_key(*target)).copied().collect()
            }
            _ => entry.learnt.keys().copied().collect(),
        };
        changes.extend(gone.iter().map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))));
        self.elements.change(&changes)?;
        entry.learnt.retain(|target, _| !gone.contains(target));
        Ok(())
    }

    /// Datagrams of a sandbox may go to addresses. Nothing happens for one whose policy asks for no such thing.
    pub fn open(&self, guest: Ipv4Addr, targets: &[Ipv4Addr], lasting: Duration) -> io::Result<()> {
        let mut book = self.book();
        let Some(entry) = book.get_mut(&guest).filter(|entry| entry.passes == Passes::Learnt) else {
            return Ok(());
        };
        let now = Instant::now();
        let mut wanted: Vec<Ipv4Addr> = targets
            .iter()
            .filter(|target| entry.learnt.get(*target).is_none_or(|until| *until < now + lasting))
            .copied()
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(());
        }
        if entry.learnt.len() + wanted.len() > LEARNT_MAX {
            entry.learnt.retain(|_, until| *until > now);
            if entry.learnt.len() + wanted.len() > LEARNT_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "the sandbox has learnt too many addresses",
                ));
            }
        }
        let lasting = lasting + LONGER;
        let changes: Vec<Change> = wanted
            .iter()
            .map(|target| Change::PutFor(Set::Learnt, entry.key(guest, Some(*target)), lasting))
            .collect();
        self.elements.change(&changes)?;
        entry.learnt.extend(wanted.into_iter().map(|target| (target, now + lasting)));
        Ok(())
    }

    /// Datagrams of a sandbox may go to addresses no more.
    pub fn close(&self, guest: Ipv4Addr, targets: &[Ipv4Addr]) -> io::Result<()> {
        let mut book = self.book();
        let Some(entry) = book.get_mut(&guest) else { return Ok(()) };
        let known: Vec<Ipv4Addr> =
            targets.iter().filter(|target| entry.learnt.contains_key(*target)).copied().collect();
        let changes: Vec<Change> =
            known.iter().map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))).collect();
        self.elements.change(&changes)?;
        entry.learnt.retain(|target, _| !known.contains(target));
        Ok(())
    }

    /// A sandbox is gone.
    pub fn remove(&self, guest: Ipv4Addr, link: &str) -> io::Result<()> {
        let mut book = self.book();
        let key = Key { link: link.to_owned(), guest, target: None };
        let mut changes: Vec<Change> =
            OF_SANDBOXES.into_iter().map(|set| Change::Drop(set, key.clone())).collect();
        if let Some(entry) = book.get(&guest) {
            let targets = entry.learnt.keys();
            changes.extend(targets.map(|target| Change::Drop(Set::Learnt, entry.key(guest, Some(*target)))));
        }
        self.elements.change(&changes)?;
        book.remove(&guest);
        Ok(())
    }

    /// Whether any sandbox is known.
    pub fn is_empty(&self) -> bool {
        self.book().is_empty()
    }

    /// Removes the table. No error if there is none.
    pub fn retire(&self) -> io::Result<()> {
        let _book = self.book();
        let table = self.plan.scope.table();
        nft::run(&format!("add table inet {table}\ndelete table inet {table}\n"))
    }

    fn fixed(&self) -> MutexGuard<'_, Fixed> {
        self.fixed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Entry>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lives(book: &HashMap<Ipv4Addr, Entry>, key: &Key) -> bool {
    book.get(&key.guest).is_some_and(|entry| entry.link == key.link)
}

impl Plan {
    fn render(&self) -> String {
        let table = self.scope.table();
        let chains: Vec<&str> = TEMPLATE
            .lines()
            .filter_map(|line| line.trim().strip_prefix("chain ")?.strip_suffix(" {"))
            .collect();
        // A chain goes only when nothing leads to it, hence in two rounds.
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
            .replace("@GROUP@", &self.scope.log_group().to_string())
    }
}

fn text(range: &Ipv4Net) -> String {
    if range.prefix_len() == 32 { range.addr().to_string() } else { range.trunc().to_string() }
}
