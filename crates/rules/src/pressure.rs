//! Pressure: how much disk and memory the host really has left, whatever was promised.
//!
//! The engine samples the host and asks these functions when to stop admitting work, when to pause writers, and how soon to
//! sample again. Two watermarks keep the decision from flapping: pressure begins below the low one and ends above the high one.

use crate::Overcommit;

const MB: u64 = 1 << 20;
/// Of a file system or of memory, where the operator names no reserve.
const DISK_RESERVE_DIVISOR: u64 = 20;
const DISK_RESERVE_MOST_MB: u64 = 2048;
const MEMORY_RESERVE_DIVISOR: u64 = 20;
const MEMORY_RESERVE_MOST_MB: u64 = 2048;
/// What fast disks and the page cache take in a second.
const WRITTEN_PER_MS: u64 = 2 * MB;
const SOONEST_MS: u64 = 20;
const LATEST_MS: u64 = 2_000;

/// Pressure begins below `low` and ends above `high`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    pub low: u64,
    pub high: u64,
}

/// Whether the host is short of disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pressure {
    #[default]
    None,
    Low,
}

/// The host really runs out of a resource; overcommit does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    #[error(
        "the disk of the host is almost full: {free_mb} MB free, and new work needs more than {needed_mb} MB; try again when \
         space is free, terminate sandboxes, or have the operator lower capacity.reserve_disk_mb"
    )]
    Disk { free_mb: u64, needed_mb: u64 },
    #[error(
        "the memory of the host is almost used up: {available_mb} MB available, and {reserve_mb} MB stay in reserve; try again \
         later, terminate sandboxes, or have the operator lower capacity.reserve_memory_mb"
    )]
    Memory { available_mb: u64, reserve_mb: u64 },
}

impl Shortage {
    /// The configuration key that says how much stays in reserve.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Disk { .. } => "capacity.reserve_disk_mb",
            Self::Memory { .. } => "capacity.reserve_memory_mb",
        }
    }
}

impl Watermarks {
    /// The reserve itself is the low watermark; half as much again must be free before new work is admitted.
    pub fn of_reserve(reserve_bytes: u64) -> Self {
        Self { low: reserve_bytes, high: reserve_bytes.saturating_add(reserve_bytes / 2) }
    }

    pub fn next(self, now: Pressure, free_bytes: u64) -> Pressure {
        match now {
            Pressure::None if free_bytes < self.low => Pressure::Low,
            Pressure::Low if free_bytes > self.high => Pressure::None,
            now => now,
        }
    }

    /// Whether the disk may be short once the page cache is written, so that it is worth finding out whose pages they are.
    pub const fn is_close(self, free_bytes: u64, unwritten_bytes: u64) -> bool {
        free_bytes.saturating_sub(unwritten_bytes) < self.low
    }

    /// How long to wait until the next sample: short enough that a fast writer cannot use up the reserve in between.
    pub fn sample_again_ms(self, free_bytes: u64) -> u64 {
        (free_bytes.saturating_sub(self.low) / WRITTEN_PER_MS).clamp(SOONEST_MS, LATEST_MS)
    }
}

/// The disk that is free once sandboxes' dirty pages are written: they fill the page cache faster than a disk. Only their pages
/// count, because other dirty pages of the host belong to other disks or are subtracted from the free space already.
pub fn free_after_writeback(free_bytes: u64, unwritten_bytes: u64, dirty_of_sandboxes: u64) -> u64 {
    free_bytes.saturating_sub(dirty_of_sandboxes.min(unwritten_bytes))
}

/// The disk that stays free for the daemon, of a file system of a size. `configured_mb` 0 means 5 %, at most 2 GB.
pub fn disk_reserve_mb(total_mb: u64, configured_mb: u64) -> u64 {
    match configured_mb {
        0 => (total_mb / DISK_RESERVE_DIVISOR).min(DISK_RESERVE_MOST_MB),
        mb => mb,
    }
}

/// The memory that stays available on the host. `configured_mb` 0 means 5 %, at most 2 GB.
pub fn memory_reserve_mb(total_mb: u64, configured_mb: u64) -> u64 {
    match configured_mb {
        0 => (total_mb / MEMORY_RESERVE_DIVISOR).min(MEMORY_RESERVE_MOST_MB),
        mb => mb,
    }
}

/// The disk that can be promised to sandboxes, before overcommit: what is free, and what their disks occupy already, without the
/// reserve. Images, records and logs are occupied space that is not counted back in. `most_mb` is the operator's limit; 0 for none.
pub fn promisable_disk_mb(free_bytes: u64, occupied_bytes: u64, reserve_bytes: u64, most_mb: u64) -> u64 {
    let promisable = free_bytes.saturating_add(occupied_bytes).saturating_sub(reserve_bytes) / MB;
    if most_mb == 0 { promisable } else { promisable.min(most_mb) }
}

impl Overcommit {
    /// A personal machine: a hundred mostly idle sandboxes of the default size fit on two cores, 24 GB of memory and 40 GB of free
    /// disk. CPU is time-shared, and memory and disk are watched as they are really used.
    pub const PERSONAL: Self = Self { cpu: 128.0, memory: 32.0, disk: 32.0 };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, proptest};

    use super::*;
    use crate::{Capacity, Host, Usage};

    #[test]
    fn pressure_begins_below_the_low_mark_and_ends_above_the_high_one() {
        let marks = Watermarks::of_reserve(100 * MB);
        assert_eq!(marks, Watermarks { low: 100 * MB, high: 150 * MB });
        let mut pressure = Pressure::None;
        let mut seen = Vec::new();
        for free in [500, 101, 100, 99, 120, 150, 151, 120, 100, 0] {
            pressure = marks.next(pressure, free * MB);
            seen.push(pressure == Pressure::Low);
        }
        assert_eq!(seen, [false, false, false, true, true, true, false, false, false, true]);
    }

    #[test]
    fn only_dirty_pages_of_sandboxes_use_up_the_disk() {
        let marks = Watermarks::of_reserve(100 * MB);
        // Another program of the host writes 900 MB to another disk.
        assert!(marks.is_close(900 * MB, 900 * MB));
        assert_eq!(free_after_writeback(900 * MB, 900 * MB, 0), 900 * MB);
        assert_eq!(free_after_writeback(900 * MB, 900 * MB, 850 * MB), 50 * MB);
        // The census is older than the sample: what it counted is written since.
        assert_eq!(free_after_writeback(900 * MB, 10 * MB, 850 * MB), 890 * MB);
        assert!(!marks.is_close(900 * MB, 800 * MB));
    }

    #[test]
    fn reserves_fit_small_and_large_hosts() {
        assert_eq!([disk_reserve_mb(3_000, 0), disk_reserve_mb(252_000, 0)], [150, 2_048]);
        assert_eq!([disk_reserve_mb(3_000, 700), memory_reserve_mb(24_000, 0)], [700, 1_200]);
        assert_eq!([memory_reserve_mb(512_000, 0), memory_reserve_mb(24_000, 1)], [2_048, 1]);
    }

    #[test]
    fn only_what_is_really_there_is_promised() {
        // 60 GB free and nothing occupied: four disks of 50 GB do not fit without overcommit.
        let promisable = promisable_disk_mb(60_000 * MB, 0, 2_000 * MB, 0);
        assert_eq!(promisable, 58_000);
        // What sandboxes have written is theirs already; what images and logs took is gone.
        assert_eq!(promisable_disk_mb(40_000 * MB, 20_000 * MB, 2_000 * MB, 0), 58_000);
        assert_eq!(promisable_disk_mb(40_000 * MB, 0, 2_000 * MB, 0), 38_000);
        assert_eq!(promisable_disk_mb(MB, 0, 2_000 * MB, 0), 0);
        assert_eq!(promisable_disk_mb(60_000 * MB, 0, 0, 10_000), 10_000);
    }

    #[test]
    fn a_personal_machine_has_room_for_a_hundred_sandboxes() {
        let host = Host { cpu: 2, memory_mb: 24_000, disk_mb: 40_000 };
        let capacity = Capacity::new(host, Overcommit::PERSONAL);
        let size = api::Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 };
        let mut used = Usage::default();
        for _ in 0..100 {
            used = capacity.admit(used, size).unwrap();
        }
    }

    proptest! {
        /// At 2 GB/s a writer cannot get through half of a reserve of 80 MB or more between two samples.
        #[test]
        fn a_fast_writer_is_seen_before_the_reserve_is_gone(reserve in 80u64..10_000, free in 0u64..1_000_000) {
            let marks = Watermarks::of_reserve(reserve * MB);
            let written = marks.sample_again_ms(free * MB) * WRITTEN_PER_MS;
            let left = (free * MB).saturating_sub(written);
            prop_assert!(free < reserve || left >= (reserve / 2) * MB);
        }

        #[test]
        fn between_the_marks_nothing_changes(reserve in 1u64..1000, samples in prop::collection::vec(0u64..3000, 1..50)) {
            let marks = Watermarks::of_reserve(reserve * MB);
            let mut now = Pressure::None;
            for free in samples {
                let next = marks.next(now, free * MB);
                if next != now {
                    let is_right = if next == Pressure::Low { free < reserve } else { free * MB > marks.high };
                    prop_assert!(is_right);
                }
                now = next;
            }
        }
    }
}
