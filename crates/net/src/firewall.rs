//! The table of this daemon in the host's packet filter: put in force as one piece at the start, changed by single elements
//! from then on. Remembers what it is to hold, so that all of it can be restored at once.

mod elements;
pub mod log;
pub mod watch;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
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
    /// The kernel's numbers of the rules in force.
    rules: Mutex<Vec<u64>>,
}

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
        Ok(Self { plan, elements, book: Mutex::default(), rules: Mutex::default() })
    }

    /// Puts the table in force, whatever was there. Elements stay.
    pub fn establish(&self) -> io::Result<()> {
        let _book = self.book();
        self.load()
    }

    fn load(&self) -> io::Result<()> {
        let text = self.plan.render();
        run_nft(&text).or_else(|error| {
            // A set of an older version may be of another shape. Nothing passes until its elements are back.
            tracing::warn!(%error, "the table is made anew");
            let table = self.plan.scope.table();
            run_nft(&format!("add table inet {table}\ndelete table inet {table}\n{text}"))
        })?;
        *self.rules() = self.elements.rules()?;
        Ok(())
    }

    /// Puts back everything if the rules are not those that were put in force. Says whether it did.
    pub fn mend(&self) -> io::Result<bool> {
        let book = self.book();
        if self.elements.rules()? == *self.rules() {
            return Ok(false);
        }
        self.load()?;
        let now = Instant::now();
        let mut changes = Vec::new();
        for (guest, entry) in book.iter() {
            changes.extend(entry.changes(*guest));
        }
        for (guest, entry) in book.iter() {
            changes.extend(entry.learnt.iter().filter_map(|(target, until)| {
                let left = until.checked_duration_since(now)?;
                Some(Change::PutFor(Set::Learnt, entry.key(*guest, Some(*target)), left))
            }));
        }
        self.elements.change(&changes)?;
        Ok(true)
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
        for set in [Set::Guests, Set::Open, Set::Strict] {
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
        let mut changes: Vec<Change> = [Set::Guests, Set::Open, Set::Strict]
            .into_iter()
            .map(|set| Change::Drop(set, key.clone()))
            .collect();
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
        run_nft(&format!("add table inet {table}\ndelete table inet {table}\n"))
    }

    fn rules(&self) -> MutexGuard<'_, Vec<u64>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Has nft do something as one transaction.
fn run_nft(text: &str) -> io::Result<()> {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("nft cannot be started: {error}")))?;
    if let Some(mut stdin) = nft.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = nft.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.lines().take(3).collect::<Vec<_>>().join("; ")))
}
