//! The snapshots of all accounts, in memory. The store has their records; this registry is filled from it at the start.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use api::SnapshotId;
use base::IgnorePoison;
use driver::snapshot_of_layer;
use permits::{SharedPermit, SharedPermits};
use rules::{Quota, SnapshotQuery, base_layers};
use store::SnapshotRecord;
use tokio::sync::{Notify, watch};

use super::unrecorded::{UnrecordedDisk, UnrecordedDisks};
use super::usage::{SnapshotKind, SnapshotUsage};
use super::{snapshot_ids, split_layers};
use crate::capacity::ledger::{Ledger, QuotaCheck};
use crate::error::{CapacityError, EngineError, SnapshotError};
use crate::template::hold::{HoldCounts, SnapshotHold};
use crate::template::{ImageHold, Template};

/// Disks that are copied at a time. Each copy uses a processor and the host's disk.
const CONCURRENT_COPIES: usize = 2;
/// How long a request waits for the removal of disks before a quota refuses it.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

pub struct SnapshotRegistry {
    ledger: Arc<Ledger>,
    state: RwLock<State>,
    holds: Arc<HoldCounts>,
    /// One copy at a time for each account, so that none delays the copies of others.
    copies: SharedPermits,
    /// Notified when something was taken, deleted, hibernated or woken, of which the object store has or gets a copy.
    sync_wanted: Notify,
    sweeps: watch::Sender<SweepCount>,
}

/// How many sweeps have begun and ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SweepCount {
    begun: u64,
    ended: u64,
}

#[derive(Default)]
struct State {
    records: BTreeMap<SnapshotId, Arc<SnapshotRecord>>,
    unrecorded: UnrecordedDisks,
}

/// A disk that is being written, in the quotas of its account. Afterwards its record counts; without one the disk stays counted until
/// the sweeper has removed it.
pub struct PendingShare {
    registry: Arc<SnapshotRegistry>,
    id: SnapshotId,
}

impl Drop for PendingShare {
    fn drop(&mut self) {
        let mut state = self.registry.write();
        if state.records.contains_key(&self.id) {
            return;
        }
        state.unrecorded.end_writer(&self.id);
        drop(state);
        self.registry.request_sweep();
    }
}

impl PendingShare {
    /// Counts the bytes that the disk really takes. A refusal changes nothing.
    pub fn resize(&self, bytes: u64, check: QuotaCheck) -> Result<(), EngineError> {
        let SnapshotRegistry { ledger, .. } = &*self.registry;
        let mut state = self.registry.write();
        let State { records, unrecorded } = &mut *state;
        let Some(disk) = unrecorded.get_mut(&self.id) else { return Ok(()) };
        let (account, before) = (Arc::clone(&disk.account), disk.bytes);
        if check == QuotaCheck::Enforced && bytes > before {
            let used = used_by(records, unrecorded, &account);
            ledger.quotas().of(&account).take_snapshot(0, used.count, used.bytes, bytes - before)?;
        }
        let Some(disk) = unrecorded.get_mut(&self.id) else { return Ok(()) };
        if let Some(retained) = &mut disk.retained {
            retained.resize(bytes, check)?;
        }
        disk.bytes = bytes;
        Ok(())
    }
}

impl SnapshotRegistry {
    /// An empty registry that counts what snapshots take in the quotas of a ledger.
    pub fn new(ledger: Arc<Ledger>) -> Self {
        Self {
            ledger,
            state: RwLock::default(),
            holds: Arc::default(),
            copies: SharedPermits::new(CONCURRENT_COPIES, 1),
            sync_wanted: Notify::new(),
            sweeps: watch::Sender::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // Every change under the lock is complete before anything can panic.
        self.state.read().ignore_poison()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().ignore_poison()
    }

    /// Waits until the account and the host may begin another copy.
    pub async fn copy_permit(&self, account: &str) -> SharedPermit {
        self.copies.acquire(account).await
    }

    pub fn insert(&self, record: SnapshotRecord) -> Arc<SnapshotRecord> {
        let record = Arc::new(record);
        let mut state = self.write();
        state.unrecorded.remove(&record.id);
        state.records.insert(record.id.clone(), Arc::clone(&record));
        record
    }

    /// Removes the record of a deleted snapshot. Its disk counts as before, until the sweeper has removed it.
    pub fn remove(&self, id: &SnapshotId) {
        let mut state = self.write();
        if let Some(record) = state.records.remove(id) {
            state.unrecorded.leave(id, &record.account, record.bytes);
        }
        drop(state);
        self.request_sweep();
    }

    /// Counts a disk that an earlier daemon has left, without a record, below one of this account.
    pub fn recover_layer(&self, id: &SnapshotId, account: &str, bytes: u64) {
        let mut state = self.write();
        state.unrecorded.leave(id, account, bytes);
        state.unrecorded.keep_as_layer(id, bytes, &self.ledger);
    }

    /// The disks without a record that only the sweeper may remove.
    pub fn left(&self) -> Vec<SnapshotId> {
        self.read().unrecorded.left().map(|(id, _)| id.clone()).collect()
    }

    /// Stops counting a disk that was removed from the host. A record that needs it from the object store counts all the same.
    pub fn removed(&self, id: &SnapshotId) {
        self.write().unrecorded.remove(id);
    }

    /// Whether the size of a disk that lost its processes has to be found out.
    pub fn is_unmeasured(&self, id: &SnapshotId) -> bool {
        self.write().unrecorded.get_mut(id).is_some_and(|disk| !disk.is_measured)
    }

    /// Counts a disk without a record that others need.
    pub fn keep_as_layer(&self, id: &SnapshotId, bytes: u64) {
        self.write().unrecorded.keep_as_layer(id, bytes, &self.ledger);
    }

    /// The bytes of a disk of a snapshot, with or without a record.
    pub fn bytes_of(&self, id: &SnapshotId) -> u64 {
        let state = self.read();
        let recorded = state.records.get(id).map(|record| record.bytes);
        recorded.or_else(|| state.unrecorded.bytes_of(id)).unwrap_or(0)
    }

    /// The bytes of all disks without a record.
    pub fn unrecorded_bytes(&self) -> u64 {
        self.read().unrecorded.bytes()
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
            SnapshotKind::Internal | SnapshotKind::Hidden => {
                Err(EngineError::Snapshot(SnapshotError::NotFound { id: id.clone() }))
            }
        }
    }

    /// A snapshot of the account, also an internal one.
    pub fn find_any(&self, account: &str, id: &SnapshotId) -> Result<Arc<SnapshotRecord>, EngineError> {
        let found = self.read().records.get(id).filter(|record| record.account == account).cloned();
        found.ok_or_else(|| EngineError::Snapshot(SnapshotError::NotFound { id: id.clone() }))
    }

    /// The newest internal snapshot with this key.
    pub fn find_internal(&self, account: &str, origin_key: &str) -> Option<Arc<SnapshotRecord>> {
        let state = self.read();
        let is_it = |record: &&Arc<SnapshotRecord>| {
            record.account == account && record.origin_key() == Some(origin_key)
        };
        state.records.values().filter(is_it).max_by_key(|record| record.created_at).cloned()
    }

    /// The internal snapshots of an account.
    pub fn internal(&self, account: &str) -> Vec<Arc<SnapshotRecord>> {
        let state = self.read();
        let is_internal = |record: &&Arc<SnapshotRecord>| {
            record.account == account && SnapshotKind::of(record) == SnapshotKind::Internal
        };
        state.records.values().filter(is_internal).cloned().collect()
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

    /// What counts in the quotas of an account.
    pub fn used_by(&self, account: &str) -> SnapshotUsage {
        let state = self.read();
        used_by(&state.records, &state.unrecorded, account)
    }

    /// The number of snapshots, and the bytes of their disks.
    pub fn used(&self) -> SnapshotUsage {
        let state = self.read();
        let bytes = state.records.values().map(|record| record.bytes).sum();
        let count = state.records.values().map(|record| SnapshotKind::of(record).counts_as()).sum();
        SnapshotUsage { count, bytes }
    }

    /// Counts a disk that is about to be written, if the quotas allow it. Waits for disks that are about to be removed before it refuses.
    pub async fn begin(
        self: &Arc<Self>,
        id: &SnapshotId,
        account: &str,
        kind: SnapshotKind,
        size: (u64, QuotaCheck),
    ) -> Result<PendingShare, EngineError> {
        match self.try_begin(id, account, kind, size) {
            Err(EngineError::Capacity(CapacityError::Quota(refused)))
                if refused.quota != Quota::Snapshots && self.wait_for_sweep(account).await =>
            {
                self.try_begin(id, account, kind, size)
            }
            begun => begun,
        }
    }

    fn try_begin(
        self: &Arc<Self>,
        id: &SnapshotId,
        account: &str,
        kind: SnapshotKind,
        (bytes, check): (u64, QuotaCheck),
    ) -> Result<PendingShare, EngineError> {
        let mut state = self.write();
        let State { records, unrecorded } = &mut *state;
        if check == QuotaCheck::Enforced {
            let used = used_by(records, unrecorded, account);
            let quotas = self.ledger.quotas().of(account);
            quotas.take_snapshot(kind.counts_as(), used.count, used.bytes, bytes)?;
        }
        let share = || PendingShare { registry: Arc::clone(self), id: id.clone() };
        // A part of it is here, or is being written.
        if let Some(disk) = unrecorded.get_mut(id) {
            let sum = disk.bytes.saturating_add(bytes);
            if let Some(retained) = &mut disk.retained {
                retained.resize(sum, check)?;
            }
            (disk.bytes, disk.writers, disk.is_measured) = (sum, disk.writers + 1, false);
            return Ok(share());
        }
        let retained = match kind {
            SnapshotKind::Requested | SnapshotKind::Internal => None,
            SnapshotKind::Hidden => Some(self.ledger.retain(account, bytes, check)?),
        };
        let account = Arc::from(account);
        let disk = UnrecordedDisk { account, kind, bytes, retained, writers: 1, is_measured: false };
        unrecorded.insert(id.clone(), disk);
        Ok(share())
    }

    /// Waits for a sweep if that may remove disks of the account. Returns whether it did.
    pub async fn wait_for_sweep(&self, account: &str) -> bool {
        if !self.read().unrecorded.left().any(|(_, owner)| owner == account) {
            return false;
        }
        let mut sweeps = self.sweeps.subscribe();
        let begun = sweeps.borrow().begun;
        self.request_sweep();
        // The sweep in progress may have looked before.
        let swept = sweeps.wait_for(|count| count.ended > begun);
        tokio::time::timeout(SWEEP_TIMEOUT, swept).await.is_ok_and(|swept| swept.is_ok())
    }

    pub(super) fn sweep_begins(&self) {
        self.sweeps.send_modify(|count| count.begun += 1);
    }

    pub(super) fn sweep_ended(&self) {
        self.sweeps.send_modify(|count| count.ended = count.begun);
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

    /// As [`Self::template`], also for an internal snapshot.
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
            image: ImageHold::default(),
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

fn used_by(
    records: &BTreeMap<SnapshotId, Arc<SnapshotRecord>>,
    unrecorded: &UnrecordedDisks,
    account: &str,
) -> SnapshotUsage {
    let own = records.values().filter(|record| record.account == account);
    own.fold(unrecorded.used_by(account), |used, record| SnapshotUsage {
        count: used.count + SnapshotKind::of(record).counts_as(),
        bytes: used.bytes.saturating_add(record.bytes),
    })
}

fn matches(record: &SnapshotRecord, query: &SnapshotQuery) -> bool {
    SnapshotKind::of(record) == SnapshotKind::Requested
        && query.sandbox.as_ref().is_none_or(|sandbox| record.sandbox == *sandbox)
        && query.name.as_ref().is_none_or(|name| record.name.as_ref() == Some(name))
        && query.metadata.iter().all(|(key, value)| record.metadata.get(key) == Some(value))
}
