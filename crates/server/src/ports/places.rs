//! How many connections there are through ports, of each sandbox and of all. A place is given back when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use api::SandboxId;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Sandbox { most: u32 },
    Service,
}

#[derive(Debug)]
pub struct Places {
    of_each: u32,
    of_all: u32,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u32,
    by_sandbox: HashMap<SandboxId, u32>,
}

/// Room for one connection.
#[derive(Debug)]
pub struct Place {
    id: SandboxId,
    taken: Arc<Mutex<Taken>>,
}

impl Places {
    pub fn new(of_each: u32, of_all: u32) -> Self {
        Self { of_each, of_all, taken: Arc::default() }
    }

    pub fn take(&self, id: &SandboxId) -> Result<Place, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.of_all {
            return Err(Full::Service);
        }
        let count = taken.by_sandbox.entry(id.clone()).or_default();
        if *count >= self.of_each {
            return Err(Full::Sandbox { most: self.of_each });
        }
        *count += 1;
        taken.all += 1;
        Ok(Place { id: id.clone(), taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Entry::Occupied(mut entry) = taken.by_sandbox.entry(self.id.clone()) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_come_back() {
        let id = |name: &str| name.parse::<SandboxId>().unwrap();
        let (one, two) = (id("sb_aaaaaaaa"), id("sb_bbbbbbbb"));
        let places = Places::new(2, 3);
        let mut held = vec![places.take(&one).unwrap(), places.take(&one).unwrap()];
        assert_eq!(places.take(&one).unwrap_err(), Full::Sandbox { most: 2 });
        held.push(places.take(&two).unwrap());
        assert_eq!(places.take(&two).unwrap_err(), Full::Service);
        held.remove(0);
        held.push(places.take(&two).unwrap());
        drop(held);
        let taken = places.taken.lock().unwrap();
        assert!(taken.all == 0 && taken.by_sandbox.is_empty());
    }
}
