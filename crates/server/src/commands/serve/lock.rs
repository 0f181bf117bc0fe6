//! One daemon a directory: a second one would take the first one's sandboxes for what a dead daemon left.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, flock};

use crate::app::lock_file;

const FILE: &str = "serve.lock";

/// Held for as long as it is kept; the kernel lets go of it when the process ends, however it does.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// Takes a directory, or says who has it.
pub fn lock(dir: &Path) -> Result<DirLock> {
    let mut file = lock_file(&dir.join(FILE))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        // Who holds it is a courtesy: it may be about to write its number.
        let _ = file.read_to_string(&mut holder);
        let holder = if holder.is_empty() { String::new() } else { format!(" (process {})", holder.trim()) };
        bail!(
            "another sandboxd{holder} serves {}; stop it, or give this one directories of its own with --data-dir and --run-dir",
            dir.display()
        );
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(DirLock { _file: file })
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
