//! The configuration of the host watcher (`background::pressure`), and the state of the disk at the last sample. The server
//! provides the function that takes a sample.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rules::Shortage;

use super::ledger::Ledger;
use crate::error::CapacityError;

const MB: u64 = 1 << 20;

/// A sample of the free disk and memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSample {
    /// Free bytes on the file system of the data directory.
    pub disk_free_bytes: u64,
    /// Dirty bytes in the page cache that are not written back yet, of all disks of the host.
    pub unwritten_bytes: u64,
    pub memory_available_bytes: u64,
}

/// The configuration of the host watcher. Clones share the last sample.
#[derive(Clone)]
pub struct HostWatch {
    pub(crate) sample: Arc<dyn Fn() -> io::Result<HostSample> + Send + Sync>,
    pub(crate) disk_reserve_bytes: u64,
    pub(crate) memory_reserve_bytes: u64,
    /// The operator's limit on the disk that may be promised; 0 for none.
    pub(crate) disk_limit_mb: u64,
    pub(crate) disk_overcommit: f64,
    last_sample: Arc<LastSample>,
}

#[derive(Debug, Default)]
struct LastSample {
    free: AtomicU64,
    is_low: AtomicBool,
}

/// The state of the disk at the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskState {
    pub free_bytes: u64,
    pub reserve_bytes: u64,
    pub is_low: bool,
}

impl HostWatch {
    pub fn new(
        sample: impl Fn() -> io::Result<HostSample> + Send + Sync + 'static,
        disk_reserve_mb: u64,
        memory_reserve_mb: u64,
    ) -> Self {
        Self {
            sample: Arc::new(sample),
            disk_reserve_bytes: disk_reserve_mb.saturating_mul(MB),
            memory_reserve_bytes: memory_reserve_mb.saturating_mul(MB),
            disk_limit_mb: 0,
            disk_overcommit: 1.0,
            last_sample: Arc::default(),
        }
    }

    /// Sets the operator's limit on the disk that may be promised, before overcommit (0 for none), and the overcommit
    /// factor.
    #[must_use]
    pub fn promise(self, disk_limit_mb: u64, disk_overcommit: f64) -> Self {
        Self { disk_limit_mb, disk_overcommit, ..self }
    }

    pub(crate) fn record_sample(&self, free_bytes: u64, is_low: bool) {
        self.last_sample.free.store(free_bytes, Ordering::Relaxed);
        self.last_sample.is_low.store(is_low, Ordering::Relaxed);
    }

    pub fn disk(&self) -> DiskState {
        DiskState {
            free_bytes: self.last_sample.free.load(Ordering::Relaxed),
            reserve_bytes: self.disk_reserve_bytes,
            is_low: self.last_sample.is_low.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for HostWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostWatch").field("disk", &self.disk()).finish_non_exhaustive()
    }
}

/// Refuses a copy of this size that would use the host's reserve of disk space.
pub fn check_room(ledger: &Ledger, watch: Option<&HostWatch>, bytes: u64) -> Result<(), CapacityError> {
    let sampled = watch.map_or(u64::MAX, |watch| watch.disk().free_bytes);
    check_free(ledger, watch, sampled, bytes)
}

/// Refuses to write this much where `free_bytes` are free, if that would use the host's reserve of disk space.
pub fn check_free(
    ledger: &Ledger,
    watch: Option<&HostWatch>,
    free_bytes: u64,
    bytes: u64,
) -> Result<(), CapacityError> {
    ledger.check_disk()?;
    let Some(disk) = watch.map(HostWatch::disk) else { return Ok(()) };
    let megabytes = |bytes: u64| bytes >> 20;
    let needed = disk.reserve_bytes.saturating_add(bytes);
    if free_bytes >= needed {
        return Ok(());
    }
    Err(Shortage::Disk { free_mb: megabytes(free_bytes), needed_mb: megabytes(needed) }.into())
}
