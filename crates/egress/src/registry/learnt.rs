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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    fn addresses(count: usize) -> Vec<Ipv4Addr> {
        (0..u32::try_from(count).unwrap()).map(|number| Ipv4Addr::from_bits(0x0a00_0000 + number)).collect()
    }

    fn one(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, last)
    }

    #[test]
    fn the_later_expiry_of_two_answers_stays() {
        let (now, mut learnt) = (Instant::now(), Learnt::default());
        for (until, known) in [(2, 2), (1, 2), (3, 3)] {
            learnt.add("a.example", &[one(1)], now + MINUTE * until, now);
            assert_eq!(learnt.until("a.example", one(1)), Some(now + MINUTE * known));
        }
        assert_eq!(learnt.pairs, 1, "the same pair counts once");
        assert_eq!(learnt.until("b.example", one(1)), None);
        assert_eq!(learnt.until("a.example", one(2)), None);
    }

    #[test]
    fn an_address_has_all_its_names() {
        let (now, mut learnt) = (Instant::now(), Learnt::default());
        learnt.add("a.example", &[one(1), one(2)], now + MINUTE, now);
        learnt.add("b.example", &[one(1)], now + MINUTE * 2, now);
        let names: HashSet<_> = learnt.names_of(one(1)).collect();
        assert_eq!(names, HashSet::from([("a.example", now + MINUTE), ("b.example", now + MINUTE * 2)]));
        assert_eq!(learnt.names_of(one(2)).collect::<Vec<_>>(), [("a.example", now + MINUTE)]);
        assert_eq!(learnt.names_of(one(3)).count(), 0);
    }

    #[test]
    fn full_of_unexpired_answers_it_ignores_whole_answers() {
        let (now, mut learnt) = (Instant::now(), Learnt::default());
        learnt.add("a.example", &addresses(MAX - 1), now + MINUTE, now);
        learnt.add("b.example", &[one(1), one(2)], now + MINUTE, now);
        assert_eq!(learnt.until("b.example", one(1)), None, "not a part of it either");
        learnt.add("b.example", &[one(1)], now + MINUTE, now);
        assert_eq!(learnt.until("b.example", one(1)), Some(now + MINUTE), "the last slot is used");
        learnt.add("c.example", &[one(3)], now + MINUTE, now);
        assert_eq!(learnt.until("c.example", one(3)), None);
        assert_eq!(learnt.pairs, MAX);
    }

    #[test]
    fn expired_answers_make_room_and_only_when_it_is_needed() {
        let (now, mut learnt) = (Instant::now(), Learnt::default());
        let old = addresses(MAX - 1);
        learnt.add("old.example", &old, now + MINUTE, now);
        let later = now + MINUTE;
        learnt.add("new.example", &[one(1)], later + MINUTE, later);
        assert!(learnt.until("old.example", old[0]).is_some(), "there was room");
        learnt.add("new.example", &[one(2)], later + MINUTE, later);
        assert_eq!(learnt.until("old.example", old[0]), None, "expired at this very moment");
        assert_eq!(learnt.until("new.example", one(1)), Some(later + MINUTE));
        assert_eq!(learnt.until("new.example", one(2)), Some(later + MINUTE));
        assert_eq!(learnt.pairs, 2);
    }

    #[test]
    fn forgetting_tells_which_addresses_have_no_name_left() {
        let (now, mut learnt) = (Instant::now(), Learnt::default());
        learnt.add("a.example", &[one(1), one(2), one(3)], now + MINUTE, now);
        learnt.add("b.example", &[one(2)], now + MINUTE, now);
        let emptied: HashSet<_> = learnt.forget(|name| name == "a.example").into_iter().collect();
        assert_eq!(emptied, HashSet::from([one(1), one(3)]));
        assert_eq!(learnt.pairs, 1);
        assert!(learnt.until("b.example", one(2)).is_some());
        assert!(learnt.forget(|name| name == "a.example").is_empty());
        assert_eq!(learnt.forget(|_| true), [one(2)]);
        assert_eq!(learnt.pairs, 0);
    }
}
