//! Watches the memory that the kernel has in slabs which it cannot reclaim.

use std::fs;
use std::io;
use std::sync::Mutex;

use base::IgnorePoison;

use super::growth::Growth;

const TOTALS: &str = "/proc/meminfo";
/// It is much from this part of the host's memory on.
const LARGE_PART: u64 = 16;
/// Something is counted when it is this much more.
const GROWTH_BYTES: u64 = 128 << 20;

#[derive(Debug)]
pub struct SlabWatch {
    growth: Mutex<Growth>,
    large_bytes: u64,
}

impl SlabWatch {
    pub fn of_host() -> io::Result<Self> {
        let total = kilobytes(&fs::read_to_string(TOTALS)?, "MemTotal:") << 10;
        Ok(Self { growth: Mutex::new(Growth::new(0, GROWTH_BYTES)), large_bytes: total / LARGE_PART })
    }

    /// Counts something if the memory has grown enough.
    pub fn count_if_grown<T>(&self, count: impl FnOnce() -> T) -> io::Result<Option<T>> {
        let slabs = unreclaimable()?;
        Ok(self.growth.lock().ignore_poison().look(slabs, count))
    }

    /// Whether it is much, also if it has not grown.
    pub fn is_large(&self) -> io::Result<bool> {
        Ok(unreclaimable()? > self.large_bytes)
    }
}

fn unreclaimable() -> io::Result<u64> {
    Ok(kilobytes(&fs::read_to_string(TOTALS)?, "SUnreclaim:") << 10)
}

fn kilobytes(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_host_is_read() {
        let meminfo = fs::read_to_string(TOTALS).unwrap();
        assert!(kilobytes(&meminfo, "MemTotal:") > kilobytes(&meminfo, "SUnreclaim:"));
        assert!(kilobytes(&meminfo, "SUnreclaim:") > 0);
        assert_eq!(kilobytes("", "MemTotal:"), 0);
    }
}
