//! How the host's disk and memory are watched, and what was seen last. `pressure` acts on it; the server brings the samples.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MB: u64 = 1 << 20;

/// What the host has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSample {
    /// Of the file system that holds the data directory.
    pub disk_free_bytes: u64,
    /// Bytes in the page cache that wait to be written, to any disk of the host.
    pub unwritten_bytes: u64,
    pub memory_available_bytes: u64,
}

/// How the host is watched. Clones share what was seen.
#[derive(Clone)]
pub struct HostWatch {
    pub(crate) sample: Arc<dyn Fn() -> io::Result<HostSample> + Send + Sync>,
    pub(crate) disk_reserve_bytes: u64,
    pub(crate) memory_reserve_bytes: u64,
    /// The operator's limit on what is promised; 0 for none.
    pub(crate) disk_most_mb: u64,
    pub(crate) disk_overcommit: f64,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    free: AtomicU64,
    is_low: AtomicBool,
}

/// The disk as it was sampled last.
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
            disk_most_mb: 0,
            disk_overcommit: 1.0,
            seen: Arc::default(),
        }
    }

    /// With the operator's limit on the promised disk, before overcommit; 0 for none.
    #[must_use]
    pub fn promise(self, disk_most_mb: u64, disk_overcommit: f64) -> Self {
        Self { disk_most_mb, disk_overcommit, ..self }
    }

    pub(crate) fn saw(&self, free_bytes: u64, is_low: bool) {
        self.seen.free.store(free_bytes, Ordering::Relaxed);
        self.seen.is_low.store(is_low, Ordering::Relaxed);
    }

    pub fn disk(&self) -> DiskState {
        DiskState {
            free_bytes: self.seen.free.load(Ordering::Relaxed),
            reserve_bytes: self.disk_reserve_bytes,
            is_low: self.seen.is_low.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for HostWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostWatch").field("disk", &self.disk()).finish_non_exhaustive()
    }
}
