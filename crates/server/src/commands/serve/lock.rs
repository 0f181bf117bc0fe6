//! One daemon a directory: a second one would take the first one's sandboxes for what a dead daemon left.
//!
//! A daemon that is killed while it starts a program leaves a child that has not become that program yet. The child has the lock until
//! it does, which is a matter of milliseconds: a lock whose owner is dead is waited for.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, flock};

use crate::app::lock_file;

const FILE: &str = "serve.lock";
/// For what a dead owner left: far more than a child takes to become another program, on a machine that is busy too.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Held for as long as it is kept; the kernel lets go of it when the process ends, however it does.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// Takes a directory, or says who has it.
pub fn lock(dir: &Path) -> Result<DirLock> {
    let mut file = lock_file(&dir.join(FILE))?;
    let begin = Instant::now();
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        file.rewind()?;
        // Who holds it is a courtesy: it may be about to write its number.
        let _ = file.read_to_string(&mut holder);
        let holder = holder.trim();
        if is_dead(holder) && begin.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        let holder = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
        bail!(
            "another sandboxd{holder} serves {}; stop it, or give this one directories of its own with --data-dir and --run-dir",
            dir.display()
        );
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(DirLock { _file: file })
}

/// Whether a process that wrote its number has ended. One that has not written it is alive.
fn is_dead(holder: &str) -> bool {
    let Ok(pid) = holder.parse::<u32>() else { return false };
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // Behind the name, which may be anything: `Z` for who waits to be collected, `X` for who just was.
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
    fn what_a_dead_daemon_left_behind_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        let left = lock(dir.path()).unwrap();
        std::fs::write(dir.path().join(FILE), format!("{}\n", dead.id())).unwrap();
        // Ended, and not collected yet: as dead as can be.
        let stat = format!("/proc/{}/stat", dead.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::sleep(LOOK_EVERY);
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
    fn nobody_else_can_open_what_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(lock(dir.path()).unwrap());
        assert_eq!(mode(), 0o600);
        // As an earlier version made it.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        drop(lock(dir.path()).unwrap());
        assert_eq!(mode(), 0o600);
    }
}
