//! One daemon per directory: a second one would remove the sandboxes of the first as orphans.
//!
//! A daemon that is killed between fork and exec leaves a child that holds the lock until its exec, for some milliseconds. So if
//! the owner of a lock is dead, the next daemon waits for the lock.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, flock};

use base::lock_file;

const FILE: &str = "serve.lock";
/// The time to wait for a lock of a dead owner: far longer than an exec takes, also on a busy machine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// The lock is held until this is dropped or the process ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// The file with the number of the process that locks a directory.
pub fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// Locks a directory. The error names the process that holds it.
pub fn lock(dir: &Path) -> Result<DirLock> {
    let mut file = lock_file(&path(dir))?;
    let started = Instant::now();
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        file.rewind()?;
        // Only for the message: the owner may not have written its pid yet.
        let _ = file.read_to_string(&mut holder);
        let holder = holder.trim();
        if is_dead(holder) && started.elapsed() < LOCK_TIMEOUT {
            std::thread::sleep(RETRY_EVERY);
            continue;
        }
        let holder = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
        bail!(
            "another sandboxd{holder} uses {}; stop it, or start this one with other directories (--data-dir and --run-dir)",
            dir.display()
        );
    }
    // In place: on a full disk the block of an earlier pid can be written, and a new one cannot.
    let pid = format!("{}\n", std::process::id());
    let written = file.rewind().and_then(|()| file.write_all(pid.as_bytes()));
    if let Err(error) = written.and_then(|()| file.set_len(pid.len() as u64)) {
        tracing::warn!(dir = %dir.display(), %error, "cannot write the number of this process beside its lock");
    }
    Ok(DirLock { _file: file })
}

/// Whether the process with this pid has ended. Without a pid it counts as alive.
fn is_dead(holder: &str) -> bool {
    let Ok(pid) = holder.parse::<u32>() else { return false };
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The state follows the process name, which may contain anything: `Z` and `X` are ended processes.
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_has_one_daemon_and_is_free_again_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let error = lock(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains("--data-dir"), "{error}");
        drop(first);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn a_start_waits_for_the_lock_of_a_dead_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        let left = lock(dir.path()).unwrap();
        std::fs::write(dir.path().join(FILE), format!("{}\n", dead.id())).unwrap();
        // A zombie.
        let stat = format!("/proc/{}/stat", dead.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::sleep(RETRY_EVERY);
        }
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(left);
        });
        let _taken = lock(dir.path()).unwrap();
        child.join().unwrap();
        dead.wait().unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text.trim(), std::process::id().to_string());
    }

    #[test]
    fn a_locked_directory_cannot_be_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(lock(dir.path()).unwrap());
        assert_eq!(mode(), 0o600);
        // With the mode of an earlier version.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        // A child that another test starts has a copy of the descriptor until it executes its program.
        let begin = std::time::Instant::now();
        while lock(dir.path()).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the directory stays locked");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(mode(), 0o600);
    }
}
