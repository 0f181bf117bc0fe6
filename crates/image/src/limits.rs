//! Limits of unpacked images, and the budget that enforces them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::FailureKind;
use crate::fault::Fault;

/// The free space is checked again after so many bytes.
const BYTES_PER_CHECK: u64 = 64 << 20;

/// The limits of one image. An image that exceeds one is refused, not truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
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

impl Default for ImageLimits {
    fn default() -> Self {
        Self { unpacked_bytes: 20 << 30, entries: 1_000_000, ratio: 1_000, path_bytes: 4_000, depth: 128 }
    }
}

/// The use of one image's [`ImageLimits`], shared by the layers that unpack concurrently.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) limits: ImageLimits,
    bytes: AtomicU64,
    entries: AtomicU64,
    reserve: Option<Reserve>,
}

/// Free space that stays free.
#[derive(Debug)]
struct Reserve {
    dir: PathBuf,
    bytes: u64,
    /// Written since the last check.
    unchecked: AtomicU64,
}

impl Reserve {
    fn check(&self, needed: u64) -> Result<(), Fault> {
        let free = free_bytes(&self.dir).map_err(Fault::io("read the free space"))?;
        if free >= self.bytes.saturating_add(needed) {
            return Ok(());
        }
        Err(Fault::new(FailureKind::Io, format!("the disk has only {free} free bytes")))
    }
}

impl Budget {
    pub(crate) fn new(limits: ImageLimits) -> Self {
        Self { limits, bytes: AtomicU64::new(0), entries: AtomicU64::new(0), reserve: None }
    }

    /// Leaves so many bytes free on the file system of a directory.
    pub(crate) fn with_reserve(self, dir: &Path, bytes: u64) -> Self {
        let reserve = Reserve { dir: dir.to_owned(), bytes, unchecked: AtomicU64::new(0) };
        Self { reserve: Some(reserve), ..self }
    }

    /// Fails if so many bytes more would use up free space that has to stay.
    pub(crate) fn check_reserve(&self, needed: u64) -> Result<(), Fault> {
        self.reserve.as_ref().map_or(Ok(()), |reserve| reserve.check(needed))
    }

    /// Notes that bytes were written, and checks the free space from time to time.
    pub(crate) fn wrote(&self, bytes: u64) -> Result<(), Fault> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if reserve.unchecked.fetch_add(bytes, Relaxed).saturating_add(bytes) < BYTES_PER_CHECK {
            return Ok(());
        }
        reserve.unchecked.store(0, Relaxed);
        reserve.check(0)
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

/// The free bytes of the file system of a directory.
pub(crate) fn free_bytes(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_that_has_to_stay_is_checked_from_time_to_time() {
        let dir = tempfile::tempdir().unwrap();
        let budget = |bytes| Budget::new(ImageLimits::default()).with_reserve(dir.path(), bytes);
        let (enough, none) = (budget(0), budget(u64::MAX));
        enough.check_reserve(1).unwrap();
        enough.wrote(BYTES_PER_CHECK).unwrap();
        none.wrote(BYTES_PER_CHECK - 1).unwrap();
        let refused = none.wrote(1).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Io);
        assert!(none.check_reserve(0).is_err());
        // The operator's pulls may use all of it.
        Budget::new(ImageLimits::default()).wrote(u64::MAX).unwrap();
    }
}
