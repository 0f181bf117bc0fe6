//! The answers that one sandbox was given: by address, by name, until when they count. One that counts no more is kept until
//! its place is needed.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Instant;

/// Pairs of a name and an address that one sandbox can have learnt at a time.
const MAX: usize = 4096;

#[derive(Default)]
pub struct Learnt {
    by_address: HashMap<Ipv4Addr, HashMap<String, Instant>>,
    pairs: usize,
}

impl Learnt {
    /// Takes an answer in. There is no place for one more while as many as can be kept still count.
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

    pub fn until(&self, name: &str, address: Ipv4Addr) -> Option<Instant> {
        self.by_address.get(&address)?.get(name).copied()
    }

    pub fn names_of(&self, address: Ipv4Addr) -> impl Iterator<Item = (&str, Instant)> {
        let names = self.by_address.get(&address).into_iter().flatten();
        names.map(|(name, until)| (name.as_str(), *until))
    }

    /// Forgets names. Answers the addresses that no name has any more.
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
