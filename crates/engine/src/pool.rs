//! Sandboxes kept ready. A create that finds a fit one takes it and has only to set its limits and write its record.
//!
//! One task fills the shelves in the background and stands back while callers create. A member has no record: if the daemon
//! dies, recovery removes it as it removes everything without one, so none can be handed out twice.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::SandboxConfig;
use tokio::sync::Notify;

use crate::create::{Reserved, Started};
use crate::error::EngineError;
use crate::settings::{PoolTarget, Template};
use crate::shared::Shared;

/// So many are made at once: the host's processors belong to the sandboxes that are in use.
const FILLERS: usize = 2;
/// How long filling waits while callers create, before it looks again.
const STAND_BACK: Duration = Duration::from_millis(50);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

pub struct Shelves {
    shelves: Mutex<HashMap<String, Shelf>>,
    wake: Notify,
}

struct Shelf {
    target: PoolTarget,
    ready: VecDeque<Started>,
    /// Being made now.
    coming: u32,
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
        let shelf = |target: &PoolTarget| Shelf { target: *target, ready: VecDeque::new(), coming: 0 };
        let shelves = targets.iter().map(|(image, target)| (image.clone(), shelf(target))).collect();
        Self { shelves: Mutex::new(shelves), wake: Notify::new() }
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
    fn order(&self) -> Option<(String, PoolTarget)> {
        let mut shelves = self.lock();
        let (image, shelf) = shelves
            .iter_mut()
            .find(|(_, shelf)| shelf.ready.len() < shelf.target.count.saturating_sub(shelf.coming) as usize)?;
        shelf.coming += 1;
        Some((image.clone(), shelf.target))
    }

    fn deliver(&self, image: &str, made: Option<Started>) {
        if let Some(shelf) = self.lock().get_mut(image) {
            shelf.coming = shelf.coming.saturating_sub(1);
            shelf.ready.extend(made);
        }
    }

    fn take_any(&self) -> Option<Started> {
        self.lock().values_mut().find_map(|shelf| shelf.ready.pop_front())
    }
}

/// Takes a member that fits: of this very image and with a disk of the wanted size; the rest can still be changed.
pub fn claim(shared: &Arc<Shared>, config: &SandboxConfig, template: &Template) -> Option<Started> {
    let mut unfit = Vec::new();
    let found = {
        let mut shelves = shared.shelves.lock();
        let shelf = shelves.get_mut(&template.name)?;
        if shelf.target.resources.disk_mb != config.resources.disk_mb {
            return None;
        }
        std::iter::from_fn(|| shelf.ready.pop_front()).find_map(|member| {
            if member.template == *template && !member.agent.is_closed() {
                return Some(member);
            }
            unfit.push(member);
            None
        })
    };
    shared.shelves.wake.notify_one();
    for member in unfit {
        let shared_by_task = Arc::clone(shared);
        shared.tasks.spawn(async move { member.discard(&shared_by_task).await });
    }
    found
}

/// Gives up one member, if there is one, to make room.
pub async fn shed_one(shared: &Arc<Shared>) -> bool {
    let Some(member) = shared.shelves.take_any() else { return false };
    member.discard(shared).await;
    true
}

/// Starts filling. When the engine stops, what is half made is finished first: `drain` then finds and removes it.
pub fn start(shared: &Arc<Shared>) {
    for _ in 0..FILLERS {
        let shared_by_task = Arc::clone(shared);
        shared.tasks.spawn(async move { fill(&shared_by_task).await });
    }
}

async fn fill(shared: &Arc<Shared>) {
    let mut backoff = FIRST_BACKOFF;
    while !shared.stopping.is_cancelled() {
        if shared.creating.load(Ordering::Relaxed) > 0 {
            rest(shared, STAND_BACK).await;
            continue;
        }
        let Some((image, target)) = shared.shelves.order() else {
            shared.stopping.run_until_cancelled(shared.shelves.wake.notified()).await;
            continue;
        };
        let made = make(shared, &image, target).await;
        let failed = made.as_ref().err().map(ToString::to_string);
        shared.shelves.deliver(&image, made.ok().flatten());
        // Another filler may be waiting for the same news.
        shared.shelves.wake.notify_one();
        match failed {
            None => backoff = FIRST_BACKOFF,
            Some(error) => {
                tracing::warn!(image, error, wait_s = backoff.as_secs(), "could not fill the pool");
                rest(shared, backoff).await;
                backoff = (backoff * 2).min(LONGEST_BACKOFF);
            }
        }
    }
}

/// Waits, but not for longer than the engine runs.
async fn rest(shared: &Shared, duration: Duration) {
    shared.stopping.run_until_cancelled(tokio::time::sleep(duration)).await;
}

/// One member; none while its image is not here.
async fn make(shared: &Arc<Shared>, image: &str, target: PoolTarget) -> Result<Option<Started>, EngineError> {
    let Some(template) = (shared.find_image)(image) else {
        rest(shared, FIRST_BACKOFF).await;
        return Ok(None);
    };
    Ok(Some(Reserved::new(shared, target.resources)?.start(shared, template).await?))
}

/// Removes every member. To be called when filling has ended.
pub async fn drain(shared: &Arc<Shared>) {
    while shed_one(shared).await {}
}
