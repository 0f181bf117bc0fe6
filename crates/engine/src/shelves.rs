//! The pool's shelves: sandboxes that run and belong to nobody yet. A container only; who fills it and who takes from it is
//! said in `pool` and `create`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Resources;
use driver::SandboxSpec;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::ledger::{Reservation, SlotLease};
use crate::link::Agent;
use crate::settings::{PoolTarget, Template};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// A sandbox that runs and belongs to nobody.
pub struct Started {
    pub spec: SandboxSpec,
    pub resources: Resources,
    pub template: Template,
    pub agent: Agent,
    pub reservation: Reservation,
    pub slot: SlotLease,
}

pub struct Shelves {
    shelves: Mutex<HashMap<String, Shelf>>,
    /// Rung when what was coming has come, or will not.
    delivered: watch::Sender<()>,
    /// Rung when a shelf may want more.
    pub wake: Notify,
}

struct Shelf {
    target: PoolTarget,
    ready: VecDeque<Started>,
    /// Being made now.
    coming: u32,
    /// After a failure: when to try again, and how long to wait if that fails too.
    not_before: Option<Instant>,
    backoff: Duration,
}

/// How full a shelf is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    pub image: String,
    pub ready: u32,
    pub target: u32,
}

impl Shelves {
    pub fn new(targets: &BTreeMap<String, PoolTarget>) -> Self {
        let shelf = |target: &PoolTarget| Shelf {
            target: *target,
            ready: VecDeque::new(),
            coming: 0,
            not_before: None,
            backoff: FIRST_BACKOFF,
        };
        let shelves = targets.iter().map(|(image, target)| (image.clone(), shelf(target))).collect();
        Self { shelves: Mutex::new(shelves), delivered: watch::channel(()).0, wake: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Shelf>> {
        // A panic elsewhere leaves shelves that are each whole.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state(&self) -> Vec<PoolState> {
        let shelves = self.lock();
        let mut state: Vec<_> = shelves
            .iter()
            .map(|(image, shelf)| PoolState {
                image: image.clone(),
                ready: u32::try_from(shelf.ready.len()).unwrap_or(u32::MAX),
                target: shelf.target.count,
            })
            .collect();
        state.sort_by(|left, right| left.image.cmp(&right.image));
        state
    }

    /// A shelf that wants one more, and for which image and size. Counts it as coming.
    pub fn order(&self) -> Option<(String, PoolTarget)> {
        let mut shelves = self.lock();
        let now = Instant::now();
        let (image, shelf) = shelves.iter_mut().find(|(_, shelf)| {
            shelf.ready.len() < shelf.target.count.saturating_sub(shelf.coming) as usize
                && shelf.not_before.is_none_or(|at| at <= now)
        })?;
        shelf.coming += 1;
        Some((image.clone(), shelf.target))
    }

    pub fn deliver(&self, image: &str, made: Option<Started>) {
        if let Some(shelf) = self.lock().get_mut(image) {
            shelf.coming = shelf.coming.saturating_sub(1);
            if made.is_some() {
                (shelf.not_before, shelf.backoff) = (None, FIRST_BACKOFF);
            } else {
                // A shelf that cannot be filled keeps no other from being filled.
                shelf.not_before = Some(Instant::now() + shelf.backoff);
                shelf.backoff = (shelf.backoff * 2).min(LONGEST_BACKOFF);
            }
            shelf.ready.extend(made);
        }
        self.delivered.send_replace(());
    }

    /// Tells of the next delivery, where one is to come.
    pub fn delivery(&self) -> Option<watch::Receiver<()>> {
        let shelves = self.lock();
        shelves.values().any(|shelf| shelf.coming > 0).then(|| self.delivered.subscribe())
    }

    pub fn is_bare(&self) -> bool {
        self.lock().values().all(|shelf| shelf.ready.is_empty())
    }

    /// A member that was taken and not used. Answered if there is no place for it any more.
    pub fn give_back(&self, member: Started) -> Option<Started> {
        match self.lock().get_mut(&member.template.name) {
            Some(shelf) if shelf.ready.len() < shelf.target.count as usize => {
                shelf.ready.push_front(member);
                None
            }
            _ => Some(member),
        }
    }

    pub fn take_any(&self) -> Option<Started> {
        self.lock().values_mut().find_map(|shelf| shelf.ready.pop_front())
    }

    /// Takes a member that fits: of this very image and with a disk of the wanted size; the rest can still be changed.
    /// Members that no create will ever fit come with it, to be discarded.
    pub fn take_fit(&self, template: &Template, disk_mb: u32) -> (Option<Started>, Vec<Started>) {
        let mut unfit = Vec::new();
        let mut shelves = self.lock();
        let Some(shelf) =
            shelves.get_mut(&template.name).filter(|shelf| shelf.target.resources.disk_mb == disk_mb)
        else {
            return (None, unfit);
        };
        let found = std::iter::from_fn(|| shelf.ready.pop_front()).find_map(|member| {
            if member.template == *template && !member.agent.is_closed() {
                return Some(member);
            }
            unfit.push(member);
            None
        });
        (found, unfit)
    }
}
