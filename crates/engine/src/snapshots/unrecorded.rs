//! Disks of snapshots without a record, and what they count against: copies in progress, copies below forks, deleted snapshots that
//! others need, and snapshots that came from the object store. Each is counted until it is removed from the host.
//!
//! ```text
//! begin --> in progress --record committed--> none: the record counts
//!                       --otherwise--------> left --> removed by the sweeper
//! record deleted ---------------------------> left
//! found at the start, below a record -------> left
//! ```
//!
//! All of them count in `quotas.snapshots_mb` of their account, and those that no request for a snapshot made also in
//! `quotas.disk_mb`: a fork costs a sandbox's disk, and a deleted snapshot that a sandbox needs is a part of that one.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::SnapshotId;

use super::usage::{SnapshotKind, SnapshotUsage};
use crate::capacity::ledger::{Ledger, QuotaCheck, RetainedBytes};

/// A disk without a record.
pub struct UnrecordedDisk {
    pub account: Arc<str>,
    /// What it becomes if it is recorded.
    pub kind: SnapshotKind,
    pub bytes: u64,
    /// Its share of the account's quota of disk.
    pub retained: Option<RetainedBytes>,
    /// Copies to it in progress. The sweeper does not look at it meanwhile.
    pub writers: usize,
    /// Whether its size is that of a disk without processes.
    pub is_measured: bool,
}

/// All disks without a record.
#[derive(Default)]
pub struct UnrecordedDisks(BTreeMap<SnapshotId, UnrecordedDisk>);

impl UnrecordedDisks {
    pub fn get_mut(&mut self, id: &SnapshotId) -> Option<&mut UnrecordedDisk> {
        self.0.get_mut(id)
    }

    pub fn insert(&mut self, id: SnapshotId, disk: UnrecordedDisk) {
        self.0.insert(id, disk);
    }

    /// Stops counting a disk that has a record now, or is gone.
    pub fn remove(&mut self, id: &SnapshotId) {
        self.0.remove(id);
    }

    pub fn used_by(&self, account: &str) -> SnapshotUsage {
        let own = self.0.values().filter(|disk| &*disk.account == account);
        own.fold(SnapshotUsage::default(), |used, disk| SnapshotUsage {
            count: used.count + disk.kind.counts_as(),
            bytes: used.bytes.saturating_add(disk.bytes),
        })
    }

    /// The bytes of all accounts.
    pub fn bytes(&self) -> u64 {
        self.0.values().fold(0, |sum, disk| sum.saturating_add(disk.bytes))
    }

    pub fn bytes_of(&self, id: &SnapshotId) -> Option<u64> {
        self.0.get(id).map(|disk| disk.bytes)
    }

    /// The disks to which nothing is copied, with their accounts.
    pub fn left(&self) -> impl Iterator<Item = (&SnapshotId, &str)> {
        self.0.iter().filter(|(_, disk)| disk.writers == 0).map(|(id, disk)| (id, &*disk.account))
    }

    /// One copy to a disk has ended.
    pub fn end_writer(&mut self, id: &SnapshotId) {
        let Some(disk) = self.0.get_mut(id) else { return };
        disk.writers = disk.writers.saturating_sub(1);
        if disk.writers == 0 {
            // A failed request for a snapshot does not count as one.
            disk.kind = SnapshotKind::Hidden;
        }
    }

    /// Counts a disk whose record was deleted, or that the host has below a record.
    pub fn leave(&mut self, id: &SnapshotId, account: &str, bytes: u64) {
        self.0.entry(id.clone()).or_insert_with(|| UnrecordedDisk {
            account: Arc::from(account),
            kind: SnapshotKind::Hidden,
            bytes,
            retained: None,
            writers: 0,
            is_measured: false,
        });
    }

    /// Counts a disk, without its processes, that a sandbox or another snapshot needs.
    pub fn keep_as_layer(&mut self, id: &SnapshotId, bytes: u64, ledger: &Arc<Ledger>) {
        let Some(disk) = self.0.get_mut(id) else { return };
        (disk.bytes, disk.is_measured) = (bytes, true);
        match &mut disk.retained {
            // Neither is refused.
            Some(retained) => {
                let _ = retained.resize(bytes, QuotaCheck::CountOnly);
            }
            None => disk.retained = ledger.retain(&disk.account, bytes, QuotaCheck::CountOnly).ok(),
        }
    }
}
