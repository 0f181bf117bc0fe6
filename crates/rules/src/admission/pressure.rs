//! Pressure: how much disk and memory the host really has left, whatever was promised.
//!
//! The engine samples the host and asks these functions when to stop admitting work, when to pause writers, and how soon to
//! sample again. Two watermarks keep the decision from flapping: pressure begins below the low one and ends above the high one.

use crate::{Overcommit, ReachedLimit};

const MB: u64 = 1 << 20;
/// Of a file system or of memory, where the operator names no reserve.
const DISK_RESERVE_DIVISOR: u64 = 20;
const DISK_RESERVE_MOST_MB: u64 = 2048;
const MEMORY_RESERVE_DIVISOR: u64 = 20;
const MEMORY_RESERVE_MOST_MB: u64 = 2048;
/// What several writers together put into the page cache; one fills it with about 2 GB/s.
const WRITTEN_PER_MS: u64 = 8 * MB;
const SOONEST_MS: u64 = 20;
const LATEST_MS: u64 = 500;
/// From a sample to the moment in which the writers are paused, on a busy host.
const REACTION_MS: u64 = 200;
/// Samples that are further apart do not show how fast the disk is filled now.
const TREND_MAX_MS: u64 = 1_000;

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

impl Pressure {
    /// Before the first sample. A daemon that starts on a disk between the watermarks admits work: nobody has filled the disk to
    /// below the reserve that it knows of.
    pub const AT_START: Self = Self::None;
}

/// The free disk space or memory of the host is below its reserve, independent of allocated capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    #[error("{}; {}", self.why(), self.limit())]
    Disk { free_mb: u64, needed_mb: u64 },
    #[error("{}; {}", self.why(), self.limit())]
    Memory { available_mb: u64, reserve_mb: u64 },
}

impl Shortage {
    /// The message without the limit.
    pub fn why(&self) -> String {
        match self {
            Self::Disk { free_mb, .. } => {
                format!("the disk of the host is almost full: {free_mb} MB are free; terminate sandboxes")
            }
            Self::Memory { available_mb, .. } => format!(
                "the memory of the host is almost used up: {available_mb} MB are available; terminate sandboxes"
            ),
        }
    }

    /// The limit for the error's body.
    pub fn limit(&self) -> ReachedLimit {
        let (value, counts) = match *self {
            Self::Disk { needed_mb, .. } => {
                (needed_mb, "MB of free disk for new work, one and a half times the reserve")
            }
            Self::Memory { reserve_mb, .. } => (reserve_mb, "MB of available memory for new work"),
        };
        ReachedLimit::set_by_operator(value, counts, self.key())
    }

    /// The configuration key of the reserve.
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

    /// The pressure after a measurement. It falls only above a higher mark than it rises below, so that it does not flap.
    pub fn next(self, now: Pressure, free_bytes: u64) -> Pressure {
        match now {
            Pressure::None if free_bytes < self.low => Pressure::Low,
            Pressure::Low if free_bytes > self.high => Pressure::None,
            now => now,
        }
    }

    /// Whether so many free bytes are too few.
    pub const fn is_below(self, free_bytes: u64) -> bool {
        free_bytes < self.low
    }

    /// How long to wait until the next sample: short enough that a fast writer cannot use up the reserve until it is paused.
    pub fn next_sample_ms(self, free_bytes: u64) -> u64 {
        let filled_in_ms = free_bytes.saturating_sub(self.low) / WRITTEN_PER_MS;
        filled_in_ms.saturating_sub(REACTION_MS).clamp(SOONEST_MS, LATEST_MS)
    }
}

/// How fast free space is used up. The page cache takes gigabytes in a second: a decision based only on what is free now is
/// carried out after the disk is full.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreeTrend {
    /// The time and the free bytes of the last sample.
    last: Option<(u64, u64)>,
}

impl FreeTrend {
    /// Records a sample, and returns what will be free when a decision based on the next sample is carried out.
    pub fn predict(&mut self, now_ms: u64, free_bytes: u64) -> u64 {
        let Some((before_ms, before)) = self.last.replace((now_ms, free_bytes)) else { return free_bytes };
        let elapsed_ms = now_ms.saturating_sub(before_ms);
        if elapsed_ms == 0 || elapsed_ms > TREND_MAX_MS {
            return free_bytes;
        }
        let used = u128::from(before.saturating_sub(free_bytes));
        // The next sample is as far away as the last one.
        let used_until_then = used * u128::from(elapsed_ms + REACTION_MS) / u128::from(elapsed_ms);
        free_bytes.saturating_sub(u64::try_from(used_until_then).unwrap_or(u64::MAX))
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
    fn a_start_between_the_marks_admits_work() {
        let marks = Watermarks::of_reserve(49_232 * MB);
        assert_eq!(marks.next(Pressure::AT_START, 52_011 * MB), Pressure::None);
        assert_eq!(marks.next(Pressure::AT_START, 49_231 * MB), Pressure::Low);
    }

    #[test]
    fn a_shortage_of_disk_says_how_its_limit_follows_from_the_reserve() {
        let needed_mb = Watermarks::of_reserve(63_000 * MB).high / MB;
        let shortage = Shortage::Disk { free_mb: 59_089, needed_mb }.to_string();
        let limit = "the limit is 94500 MB of free disk for new work, one and a half times the reserve (the operator sets \
                     capacity.reserve_disk_mb)";
        assert!(shortage.ends_with(limit), "{shortage}");
    }

    #[test]
    fn only_dirty_pages_of_sandboxes_use_up_the_disk() {
        // Another program of the host writes 900 MB to another disk.
        assert_eq!(free_after_writeback(900 * MB, 900 * MB, 0), 900 * MB);
        assert_eq!(free_after_writeback(900 * MB, 900 * MB, 850 * MB), 50 * MB);
        // The write sample is older than the sample of the host: the pages that it counted are written by now.
        assert_eq!(free_after_writeback(900 * MB, 10 * MB, 850 * MB), 890 * MB);
    }

    #[test]
    fn a_trend_shows_what_is_free_when_writers_are_paused() {
        let mut trend = FreeTrend::default();
        assert_eq!(trend.predict(1_000, 3_000 * MB), 3_000 * MB);
        // 300 MB in 100 ms: until the next sample and its pause 900 MB more.
        assert_eq!(trend.predict(1_100, 2_700 * MB), 1_800 * MB);
        // Space that becomes free is not expected to grow.
        assert_eq!(trend.predict(1_200, 2_900 * MB), 2_900 * MB);
        assert_eq!(trend.predict(1_220, 1_000 * MB), 0);
        // Samples at the same time, and samples far apart, have no trend.
        assert_eq!(trend.predict(1_220, 900 * MB), 900 * MB);
        assert_eq!(trend.predict(2_221, 100 * MB), 100 * MB);
    }

    #[test]
    fn reserves_fit_small_and_large_hosts() {
        assert_eq!([disk_reserve_mb(3_000, 0), disk_reserve_mb(252_000, 0)], [150, 2_048]);
        assert_eq!([disk_reserve_mb(3_000, 700), memory_reserve_mb(24_000, 0)], [700, 1_200]);
        assert_eq!([memory_reserve_mb(512_000, 0), memory_reserve_mb(24_000, 1)], [2_048, 1]);
    }

    #[test]
    fn capacity_is_at_most_the_free_space() {
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
        /// Writers of any speed up to that of the page cache are noticed before they reach the reserve.
        #[test]
        fn fast_writers_are_noticed_before_they_reach_the_reserve(
            reserve in 80u64..10_000,
            above in 2_000u64..1_000_000,
            mb_per_ms in 1u64..=8,
        ) {
            let marks = Watermarks::of_reserve(reserve * MB);
            let mut trend = FreeTrend::default();
            let (mut now_ms, mut free) = (0, (reserve + above) * MB);
            while !marks.is_below(trend.predict(now_ms, free)) {
                let wait = marks.next_sample_ms(free);
                now_ms += wait;
                free = free.saturating_sub(wait * mb_per_ms * MB);
            }
            let at_the_pause = free.saturating_sub(REACTION_MS * mb_per_ms * MB);
            prop_assert!(at_the_pause >= reserve * MB, "{} of {reserve} MB are left", at_the_pause / MB);
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
