//! Limits of unpacked images, and the budget that enforces them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::fault::Fault;

/// The limits of one image. An image that exceeds one is refused, not truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files of all layers, holes included.
    pub unpacked_bytes: u64,
    /// Files, directories and links of all layers.
    pub entries: u64,
    /// Unpacked bytes per packed byte, checked when a layer exceeds 256 MiB.
    pub ratio: u64,
    /// Bytes of one path.
    pub path_bytes: usize,
    /// Components of one path.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unpacked_bytes: 20 << 30, entries: 1_000_000, ratio: 1_000, path_bytes: 4_000, depth: 128 }
    }
}

/// The use of one image's [`Limits`], shared by the layers that unpack concurrently.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) limits: Limits,
    bytes: AtomicU64,
    entries: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, bytes: AtomicU64::new(0), entries: AtomicU64::new(0) }
    }

    /// Accounts for a file's size before it is written.
    pub(crate) fn take_bytes(&self, bytes: u64) -> Result<(), Fault> {
        let limit = self.limits.unpacked_bytes;
        let updated = self
            .bytes
            .fetch_update(Relaxed, Relaxed, |have| have.checked_add(bytes).filter(|sum| *sum <= limit));
        updated
            .map(drop)
            .map_err(|_| Fault::too_big(format!("the image unpacks to more than the {limit} bytes allowed")))
    }

    pub(crate) fn take_entry(&self) -> Result<(), Fault> {
        let limit = self.limits.entries;
        let updated =
            self.entries.fetch_update(Relaxed, Relaxed, |have| Some(have + 1).filter(|sum| *sum <= limit));
        updated
            .map(drop)
            .map_err(|_| Fault::too_big(format!("the image has more than the {limit} entries allowed")))
    }
}
