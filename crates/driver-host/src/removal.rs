//! Removes and renames files that may be missing, and waits for what disappears by itself.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Polls with growing pauses, because cgroup v1 has no events for this.
pub fn poll(timeout: Duration, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let begin = Instant::now();
    let mut pause = Duration::from_micros(100);
    while !done()? {
        if begin.elapsed() > timeout {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not done after {} s", timeout.as_secs()),
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(Duration::from_millis(20));
    }
    Ok(())
}

pub fn remove_tree(dir: &Path) -> io::Result<()> {
    base::allow_missing(fs::remove_dir_all(dir))
}

/// A missing file counts as renamed.
pub fn rename_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    base::allow_missing(fs::rename(from, to))
}

/// A missing file counts as removed.
pub fn remove_if_exists(file: &Path) -> io::Result<()> {
    base::allow_missing(fs::remove_file(file))
}
