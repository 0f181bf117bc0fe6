//! Watches the memory of lxcfs, which grows with the files that sandboxes have open.
//!
//! Only after it has grown beyond [`WATCHED_BYTES`] are the files of sandboxes counted. What lxcfs frees afterwards it keeps for its
//! next files, so they are counted again only if it grows further.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base::IgnorePoison;

use super::growth::Growth;

/// The files of sandboxes are counted when lxcfs has more memory than this; about 40,000 open files take it.
const WATCHED_BYTES: u64 = 64 << 20;
/// And again when it has this much more.
const GROWTH_BYTES: u64 = 16 << 20;
/// The process of lxcfs is looked for at most this often.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
/// From here on the need is urgent: half of the memory with which the daemon starts its lxcfs again.
const URGENT_BYTES: u64 = 256 << 20;

/// Watches the memory of lxcfs.
#[derive(Debug, Default)]
pub struct LxcfsWatch(Mutex<State>);

#[derive(Debug)]
struct State {
    process: Option<i32>,
    searched: Option<Instant>,
    growth: Growth,
}

impl Default for State {
    fn default() -> Self {
        Self { process: None, searched: None, growth: Growth::new(WATCHED_BYTES, GROWTH_BYTES) }
    }
}

/// How much memory lxcfs has when files are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Normal,
    /// It is about to be started again, for which all sandboxes would pay.
    Urgent,
}

impl LxcfsWatch {
    /// Counts the files if the memory of the lxcfs at `dir` has grown enough.
    pub fn count_if_large<T>(&self, dir: &Path, count: impl FnOnce(Need) -> T) -> Option<T> {
        let mut state = self.0.lock().ignore_poison();
        let bytes = state.memory(dir)?;
        state.growth.look(bytes, || count(Need::of(bytes)))
    }

    /// The need if lxcfs has much memory, also if it has not grown.
    pub fn need(&self, dir: &Path) -> Option<Need> {
        let mut state = self.0.lock().ignore_poison();
        let bytes = state.memory(dir)?;
        state.growth.is_watched(bytes).then(|| Need::of(bytes))
    }
}

impl Need {
    fn of(bytes: u64) -> Self {
        if bytes > URGENT_BYTES { Self::Urgent } else { Self::Normal }
    }
}

impl State {
    /// The memory of the lxcfs that is mounted at `dir`, if it runs.
    fn memory(&mut self, dir: &Path) -> Option<u64> {
        if !self.process.is_some_and(|pid| serves(pid, dir)) {
            if self.searched.is_some_and(|at| at.elapsed() < SEARCH_EVERY) {
                return None;
            }
            *self = Self { process: find(dir), searched: Some(Instant::now()), ..Self::default() };
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.process?)).ok()?;
        Some(memory_of(&status))
    }
}

/// The process of the lxcfs that is mounted at a directory.
fn find(dir: &Path) -> Option<i32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| serves(*pid, dir))
}

/// Whether a process of the host is the lxcfs of a directory: `lxcfs [OPTION...] DIRECTORY`.
fn serves(pid: i32, dir: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // A program in a sandbox may give itself any name and arguments.
    is_lxcfs_of(&arguments, dir) && fs::read_link(format!("/proc/{pid}/ns/user")).ok() == own_user_namespace()
}

fn own_user_namespace() -> Option<std::path::PathBuf> {
    fs::read_link("/proc/self/ns/user").ok()
}

fn is_lxcfs_of(arguments: &[u8], dir: &Path) -> bool {
    let mut arguments =
        arguments.split(|byte| *byte == 0).map(|bytes| Path::new(std::ffi::OsStr::from_bytes(bytes)));
    let is_lxcfs = arguments.next().and_then(Path::file_name).is_some_and(|name| name == "lxcfs");
    is_lxcfs && arguments.any(|argument| argument == dir)
}

/// The memory and swap space of a process, in bytes.
fn memory_of(status: &str) -> u64 {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = |text: &str| text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    ["VmRSS:", "VmSwap:"].into_iter().filter_map(|name| kilobytes(field(name)?)).sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lxcfs_is_known_by_its_program_and_directory() {
        let dir = Path::new("/run/sandboxd/lxcfs");
        assert!(is_lxcfs_of(b"/usr/bin/lxcfs\0-f\0-p\0/run/lock\0/run/sandboxd/lxcfs\0", dir));
        assert!(is_lxcfs_of(b"lxcfs\0/run/sandboxd/lxcfs/\0", dir));
        assert!(!is_lxcfs_of(b"lxcfs\0/var/lib/lxcfs\0", dir));
        assert!(!is_lxcfs_of(b"cat\0/run/sandboxd/lxcfs\0", dir) && !is_lxcfs_of(b"", dir));
    }

    #[test]
    fn swapped_memory_counts() {
        assert_eq!(memory_of("Name:\tlxcfs\nVmRSS:\t    2048 kB\nVmSwap:\t  1024 kB\n"), 3 << 20);
        assert_eq!(memory_of("Name:\tlxcfs\nState:\tZ (zombie)\n"), 0);
    }
}
