//! The DNS answers of one sandbox: address, name, expiry. An expired entry stays until its slot is needed.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Instant;

/// Name and address pairs of one sandbox.
const MAX: usize = 4096;

/// The addresses that a sandbox was given in answers, with their names.
#[derive(Default)]
pub struct Learnt {
    by_address: HashMap<Ipv4Addr, HashMap<String, Instant>>,
    pairs: usize,
}

impl Learnt {
    /// Adds an answer. Ignores it if the maximum of unexpired entries is reached.
    pub fn add(&mut self, name: &str, addresses: &[Ipv4Addr], until: Instant, now: Instant) {
        if self.pairs + addresses.len() > MAX {
            self.retain(|_, until| until > now);
        }
        if self.pairs + addresses.len() > MAX {
            return;
        }
        for address in addresses {
            let names = self.by_address.entry(*address).or_default();
            if let Some(known) = names.get_mut(name) {
                *known = (*known).max(until);
            } else {
                names.insert(name.to_owned(), until);
                self.pairs += 1;
            }
        }
    }

    /// When the answer with this name and address expires.
    pub fn until(&self, name: &str, address: Ipv4Addr) -> Option<Instant> {
        self.by_address.get(&address)?.get(name).copied()
    }

    /// The names with this address, and when each expires.
    pub fn names_of(&self, address: Ipv4Addr) -> impl Iterator<Item = (&str, Instant)> {
        let names = self.by_address.get(&address).into_iter().flatten();
        names.map(|(name, until)| (name.as_str(), *until))
    }

    /// Removes names. Returns the addresses that have no name any more.
    pub fn forget(&mut self, which: impl Fn(&str) -> bool) -> Vec<Ipv4Addr> {
        self.retain(|name, _| !which(name))
    }

    fn retain(&mut self, keep: impl Fn(&str, Instant) -> bool) -> Vec<Ipv4Addr> {
        let (mut emptied, mut pairs) = (Vec::new(), 0);
        self.by_address.retain(|address, names| {
            names.retain(|name, until| keep(name, *until));
            pairs += names.len();
            if names.is_empty() {
                emptied.push(*address);
            }
            !names.is_empty()
        });
        self.pairs = pairs;
        emptied
    }
}
