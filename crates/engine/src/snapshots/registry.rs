//! The snapshots of all accounts, in memory. The store has their records; this registry is filled from it at the start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use api::SnapshotId;
use driver::snapshot_of_layer;
use rules::{Quotas, SnapshotQuery, base_layers};
use store::SnapshotRecord;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{snapshot_ids, split_layers};
use crate::error::EngineError;
use crate::settings::Template;
use crate::snapshot_hold::{HoldCounts, SnapshotHold};

/// Disks that are copied at a time. Each copy uses a processor and the host's disk.
const CONCURRENT_COPIES: usize = 2;

pub struct SnapshotRegistry {
    state: RwLock<State>,
    holds: Arc<HoldCounts>,
    copies: Semaphore,
    /// Notified when something was taken, deleted, hibernated or woken, of which the object store has or gets a copy.
    sync_wanted: Notify,
    /// One copy at a time for each account, so that none delays the copies of others.
    account_copies: Mutex<HashMap<String, Weak<Semaphore>>>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<SnapshotId, Arc<SnapshotRecord>>,
    /// Snapshots that are being taken.
    pending: BTreeMap<SnapshotId, Pending>,
}

#[derive(Clone)]
struct Pending {
    account: String,
    kind: SnapshotKind,
    bytes: u64,
}

/// Which quotas a snapshot counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind {
    Requested,
    /// Of a step of a build: only its bytes count.
    Step,
}

impl SnapshotKind {
    fn of(record: &SnapshotRecord) -> Self {
        if record.build_key.is_some() { Self::Step } else { Self::Requested }
    }

    const fn counts_as(self) -> u64 {
        match self {
            Self::Requested => 1,
            Self::Step => 0,
        }
    }
}

/// What the snapshots of an account use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotUsage {
    pub count: u64,
    pub bytes: u64,
}

/// The permission to copy a disk.
pub struct CopyPermit<'a> {
    _of_account: Option<OwnedSemaphorePermit>,
    _of_host: Option<SemaphorePermit<'a>>,
}

/// The share of a snapshot that is being taken in the quotas of its account.
pub struct PendingShare {
    registry: Arc<SnapshotRegistry>,
    id: SnapshotId,
}

impl Drop for PendingShare {
    fn drop(&mut self) {
        self.registry.write().pending.remove(&self.id);
    }
}

impl PendingShare {
    /// Counts the bytes that the snapshot really takes, if the quotas allow it.
    pub fn resize(&self, account: &str, bytes: u64, quotas: &Quotas) -> Result<(), EngineError> {
        let mut state = self.registry.write();
        let Some(before) = state.pending.remove(&self.id) else { return Ok(()) };
        let used = state.used_by(account);
        let allowed = quotas.take_snapshot(before.kind.counts_as(), used.count, used.bytes, bytes);
        let counted = if allowed.is_ok() { bytes } else { before.bytes };
        state.pending.insert(self.id.clone(), Pending { bytes: counted, ..before });
        Ok(allowed?)
    }
}

impl Default for SnapshotRegistry {
    fn default() -> Self {
        let (state, holds) = (RwLock::default(), Arc::default());
        let copies = Semaphore::new(CONCURRENT_COPIES);
        Self { state, holds, copies, sync_wanted: Notify::new(), account_copies: Mutex::default() }
    }
}

impl SnapshotRegistry {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        // Every change under the lock is complete before anything can panic.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the account and the host may begin another copy.
    pub async fn copy_permit(&self, account: &str) -> CopyPermit<'_> {
        let own = {
            let mut all = self.account_copies.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, semaphore| semaphore.strong_count() > 0);
            let found = all.get(account).and_then(Weak::upgrade);
            let semaphore = found.unwrap_or_else(|| Arc::new(Semaphore::new(1)));
            all.insert(account.to_owned(), Arc::downgrade(&semaphore));
            semaphore
        };
        // Neither semaphore is ever closed. The account's comes first: an account waits at most once for the host's.
        let of_account = own.acquire_owned().await.ok();
        let of_host = self.copies.acquire().await.ok();
        CopyPermit { _of_account: of_account, _of_host: of_host }
    }

    pub fn insert(&self, record: SnapshotRecord) -> Arc<SnapshotRecord> {
        let record = Arc::new(record);
        self.write().records.insert(record.id.clone(), Arc::clone(&record));
        record
    }

    pub fn remove(&self, id: &SnapshotId) {
        self.write().records.remove(id);
        self.request_sweep();
    }

    /// Whether there is a snapshot with this id, of any account.
    pub fn contains(&self, id: &SnapshotId) -> bool {
        self.read().records.contains_key(id)
    }

    /// All snapshots that accounts requested, oldest first.
    pub fn requested(&self) -> Vec<Arc<SnapshotRecord>> {
        let state = self.read();
        let is_requested =
            |record: &&Arc<SnapshotRecord>| SnapshotKind::of(record) == SnapshotKind::Requested;
        let mut requested: Vec<_> = state.records.values().filter(is_requested).cloned().collect();
        drop(state);
        requested.sort_by_key(|record| record.created_at);
        requested
    }

    /// The disks without a hold that only such snapshots need, as far as snapshots are concerned.
    pub fn needed_only_by(&self, is_such: impl Fn(&SnapshotRecord) -> bool) -> HashSet<SnapshotId> {
        let held = self.holds.held();
        let records: Vec<_> = self.read().records.values().cloned().collect();
        let (such, others): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| is_such(record));
        let disks = |records: Vec<Arc<SnapshotRecord>>| -> HashSet<SnapshotId> {
            records.iter().flat_map(|record| snapshot_ids(&record.layers)).collect()
        };
        let (mut only, others) = (disks(such), disks(others));
        only.retain(|id| !others.contains(id));
        only.retain(|id| !held.contains(id));
        only
    }

    /// A snapshot that the account requested.
    pub fn find(&self, account: &str, id: &SnapshotId) -> Result<Arc<SnapshotRecord>, EngineError> {
        let found = self.find_any(account, id)?;
        match SnapshotKind::of(&found) {
            SnapshotKind::Requested => Ok(found),
            SnapshotKind::Step => Err(EngineError::NoSuchSnapshot { id: id.clone() }),
        }
    }

    /// A snapshot of the account, also of a step of a build.
    pub fn find_any(&self, account: &str, id: &SnapshotId) -> Result<Arc<SnapshotRecord>, EngineError> {
        let found = self.read().records.get(id).filter(|record| record.account == account).cloned();
        found.ok_or_else(|| EngineError::NoSuchSnapshot { id: id.clone() })
    }

    /// The snapshot of a step that did the same upon the same.
    pub fn find_step(&self, account: &str, build_key: &str) -> Option<Arc<SnapshotRecord>> {
        let state = self.read();
        let is_it = |record: &&Arc<SnapshotRecord>| {
            record.account == account && record.build_key.as_deref() == Some(build_key)
        };
        // A build without the cache makes newer ones.
        state.records.values().filter(is_it).max_by_key(|record| record.created_at).cloned()
    }

    /// The snapshots of the steps of an account's builds.
    pub fn steps(&self, account: &str) -> Vec<Arc<SnapshotRecord>> {
        let state = self.read();
        let is_step = |record: &&Arc<SnapshotRecord>| {
            record.account == account && SnapshotKind::of(record) == SnapshotKind::Step
        };
        state.records.values().filter(is_step).cloned().collect()
    }

    /// A page of the snapshots of an account that match a query, newest first, and the number of all that match.
    pub fn list(&self, account: &str, query: &SnapshotQuery) -> (Vec<Arc<SnapshotRecord>>, u64) {
        let state = self.read();
        let matching =
            state.records.values().filter(|record| record.account == account && matches(record, query));
        let mut matching: Vec<_> = matching.cloned().collect();
        drop(state);
        matching.sort_by(|one, two| (two.created_at, &two.id).cmp(&(one.created_at, &one.id)));
        let total = matching.len() as u64;
        let skipped = usize::try_from(query.offset).unwrap_or(usize::MAX);
        (matching.into_iter().skip(skipped).take(query.limit as usize).collect(), total)
    }

    pub fn used_by(&self, account: &str) -> SnapshotUsage {
        self.read().used_by(account)
    }

    /// The number of snapshots, and the bytes of their disks.
    pub fn used(&self) -> SnapshotUsage {
        let state = self.read();
        let bytes = state.records.values().map(|record| record.bytes).sum();
        let count = state.records.values().map(|record| SnapshotKind::of(record).counts_as()).sum();
        SnapshotUsage { count, bytes }
    }

    /// Counts a snapshot that is about to be taken, if the quotas allow it.
    pub fn begin(
        self: &Arc<Self>,
        id: &SnapshotId,
        account: &str,
        kind: SnapshotKind,
        bytes: u64,
        quotas: &Quotas,
    ) -> Result<PendingShare, EngineError> {
        let mut state = self.write();
        let used = state.used_by(account);
        quotas.take_snapshot(kind.counts_as(), used.count, used.bytes, bytes)?;
        state.pending.insert(id.clone(), Pending { account: account.to_owned(), kind, bytes });
        Ok(PendingShare { registry: Arc::clone(self), id: id.clone() })
    }

    /// Keeps the disks of these layers, and of a snapshot that is being taken.
    pub fn hold(&self, layers: &[String], own: Option<&SnapshotId>) -> SnapshotHold {
        let ids = layers.iter().filter_map(|layer| snapshot_of_layer(Path::new(layer)));
        self.holds.hold(ids.chain(own.cloned()).collect())
    }

    /// What sandboxes above a snapshot begin with.
    pub fn template(
        &self,
        account: &str,
        id: &SnapshotId,
    ) -> Result<(Template, Arc<SnapshotRecord>), EngineError> {
        // Held before the record is looked up: the sweeper would find neither.
        let hold = self.hold(&[], Some(id));
        let record = self.find(account, id)?;
        let template = self.template_of(&record);
        drop(hold);
        Ok((template, record))
    }

    /// As [`Self::template`], also for a snapshot of a step of a build.
    pub fn template_of_any(&self, account: &str, id: &SnapshotId) -> Result<Template, EngineError> {
        let hold = self.hold(&[], Some(id));
        let template = self.template_of(&*self.find_any(account, id)?);
        drop(hold);
        Ok(template)
    }

    /// As [`Self::template`], for a snapshot whose disks the caller holds.
    pub fn template_of(&self, record: &SnapshotRecord) -> Template {
        let (snapshots, image) = split_layers(&record.layers);
        let base = base_layers(snapshots, image);
        Template {
            name: record.id.to_string(),
            digest: record.image_digest.clone(),
            layers: base.layers.iter().map(PathBuf::from).collect(),
            env: record.image_env.clone(),
            disk_from: base.disk_from.map(PathBuf::from),
            processes_from: record.memory.then(|| record.id.clone()),
            hold: self.hold(&record.layers, None),
        }
    }

    pub fn request_sweep(&self) {
        self.holds.sweep_wanted.notify_one();
    }

    pub fn request_sync(&self) {
        self.sync_wanted.notify_one();
    }

    pub async fn sync_requested(&self) {
        self.sync_wanted.notified().await;
    }

    pub async fn sweep_requested(&self) {
        self.holds.sweep_wanted.notified().await;
    }

    /// The snapshots that sandboxes can be created from: those with a record or a hold.
    pub fn usable(&self) -> HashSet<SnapshotId> {
        self.holds.held().into_iter().chain(self.read().records.keys().cloned()).collect()
    }

    /// The snapshots that have a hold, or that records of snapshots have among their layers.
    pub fn needed(&self) -> HashSet<SnapshotId> {
        let state = self.read();
        let layers = state.records.values().flat_map(|record| record.layers.iter());
        let recorded = layers.filter_map(|layer| snapshot_of_layer(Path::new(layer)));
        self.holds.held().into_iter().chain(recorded).collect()
    }
}

impl State {
    fn used_by(&self, account: &str) -> SnapshotUsage {
        let own = self.records.values().filter(|record| record.account == account);
        let own = own.map(|record| (SnapshotKind::of(record), record.bytes));
        let pending = self.pending.values().filter(|pending| pending.account == account);
        let pending = pending.map(|pending| (pending.kind, pending.bytes));
        own.chain(pending).fold(SnapshotUsage::default(), |used, (kind, bytes)| SnapshotUsage {
            count: used.count + kind.counts_as(),
            bytes: used.bytes.saturating_add(bytes),
        })
    }
}

fn matches(record: &SnapshotRecord, query: &SnapshotQuery) -> bool {
    SnapshotKind::of(record) == SnapshotKind::Requested
        && query.sandbox.as_ref().is_none_or(|sandbox| record.sandbox == *sandbox)
        && query.name.as_ref().is_none_or(|name| record.name.as_ref() == Some(name))
        && query.metadata.iter().all(|(key, value)| record.metadata.get(key) == Some(value))
}
