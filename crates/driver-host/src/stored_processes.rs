//! The files of stored processes.
//!
//! ```text
//! data directory: memory.new (being written) -> memory (complete) -> memory.used (the sandbox was woken)
//!                 memory.next (of a snapshot, for a disk that is prepared) -> memory
//! snapshot:       memory (complete when the snapshot is)
//! ```
//!
//! Once a woken sandbox runs, its disk changes and the stored processes no longer match it, so the directory is renamed. It is removed
//! when the record says that the sandbox runs; if it never does, the next wake uses it again. Processes beside a complete directory are
//! about to end, or have not begun to continue.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::sync_dir;
use driver::{DriverError, DriverStep};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::agent::copies::AGENT_NAME;
use crate::paths::Paths;
use crate::removal::{poll, remove_tree, rename_if_exists};

/// The longest time to store the processes of a sandbox: a slow disk and a large memory.
const STORE_TIMEOUT: Duration = Duration::from_secs(300);
/// Files in the directory of stored processes.
const RELEASE: &str = "release";
const TOKEN: &str = "token";
/// The most that one of these files has, and the file with the name of the agent.
const SMALL_BYTES: u64 = 4096;

/// What a sandbox has of stored processes.
#[derive(Debug)]
pub enum StoredState {
    None,
    /// A program was storing them and has ended without a result: they may stand still. While the lock is held, nothing stores them.
    Interrupted(File),
    Complete,
}

/// What there is of stored processes. Waits for a program of an earlier daemon that is storing them.
pub fn state(paths: &Paths) -> io::Result<StoredState> {
    let interrupted = match File::open(paths.hibernation_lock()) {
        Ok(lock) => {
            poll(STORE_TIMEOUT, || match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(true),
                Err(Errno::WOULDBLOCK) => Ok(false),
                Err(error) => Err(error.into()),
            })?;
            // Removed by a program of this daemon that has ended as it should.
            let is_same = |now: fs::Metadata| lock.metadata().is_ok_and(|own| own.ino() == now.ino());
            let is_left = fs::metadata(paths.hibernation_lock()).is_ok_and(is_same);
            is_left.then_some(lock)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(match interrupted {
        _ if paths.memory().exists() => StoredState::Complete,
        Some(lock) => StoredState::Interrupted(lock),
        None => StoredState::None,
    })
}

/// The release of the backend that has stored them.
pub fn release(memory: &Path) -> io::Result<String> {
    read_small(&memory.join(RELEASE))
}

/// Reads a file that may come from another host.
fn read_small(path: &Path) -> io::Result<String> {
    check_small(path)?;
    let mut text = String::new();
    File::open(path)?.take(SMALL_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn check_small(path: &Path) -> io::Result<()> {
    let bytes = fs::metadata(path)?.len();
    if bytes > SMALL_BYTES {
        let path = path.display();
        return Err(io::Error::other(format!("{path} has {bytes} bytes; at most {SMALL_BYTES} are allowed")));
    }
    Ok(())
}

/// Checks what has come from another host. The files that the isolation backend has written are checked by itself.
pub fn check(memory: &Path) -> io::Result<()> {
    [RELEASE, TOKEN, AGENT_NAME].iter().try_for_each(|name| check_small(&memory.join(name)))
}

/// Removes them.
pub fn discard(paths: &Paths) -> io::Result<()> {
    remove_tree(&paths.used_memory())?;
    // Renamed first, so that a crash leaves no part of it that looks complete.
    rename_if_exists(&paths.memory(), &paths.used_memory())?;
    remove_tree(&paths.used_memory())?;
    remove_tree(&paths.unfinished_memory())
}

/// The prepared processes become those of the sandbox. Succeeds if there are none.
pub fn adopt_prepared(paths: &Paths) -> io::Result<()> {
    rename_if_exists(&paths.prepared_memory(), &paths.memory())
}

/// What is stored of a sandbox that is about to wake.
pub fn find(paths: &Paths) -> Result<PathBuf, DriverError> {
    let found = [paths.memory(), paths.used_memory()].into_iter().find(|dir| dir.exists());
    found.ok_or_else(|| {
        DriverError::failed(DriverStep::ContinueProcesses, "what was stored of them is missing")
    })
}

/// The sandbox runs.
pub fn mark_used(paths: &Paths) -> io::Result<()> {
    rename_if_exists(&paths.memory(), &paths.used_memory())
}

/// The name of the copy of the agent that stored processes run.
pub fn agent_name(memory: &Path) -> io::Result<String> {
    read_small(&memory.join(AGENT_NAME))
}

/// Records the copy of the agent that stored processes run, if it has another name on this host.
pub fn set_agent_name(memory: &Path, name: &str) -> io::Result<()> {
    if agent_name(memory)? == name { Ok(()) } else { fs::write(memory.join(AGENT_NAME), name) }
}

/// Gives a sandbox that wakes the token that its agent has.
pub fn restore_token(memory: &Path, paths: &Paths) -> io::Result<()> {
    fs::copy(memory.join(TOKEN), paths.token()).map(drop)
}

/// Makes the directory for the processes of a hibernation. Returns a lock for the program that fills it.
pub fn prepare(paths: &Paths, release: &str) -> io::Result<OwnedFd> {
    for old in [paths.memory(), paths.used_memory()] {
        remove_tree(&old)?;
    }
    prepare_in(&paths.unfinished_memory(), paths, release)
}

/// Makes a directory for processes, with what their continuation needs. Returns a lock for the program that fills it.
pub fn prepare_in(dir: &Path, paths: &Paths, release: &str) -> io::Result<OwnedFd> {
    make_empty(dir)?;
    fs::write(dir.join(RELEASE), release)?;
    fs::copy(paths.token(), dir.join(TOKEN))?;
    fs::copy(paths.agent_name(), dir.join(AGENT_NAME))?;
    let lock = File::create(paths.hibernation_lock())?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock.into())
}

fn make_empty(dir: &Path) -> io::Result<()> {
    remove_tree(dir)?;
    fs::DirBuilder::new().mode(0o700).create(dir)
}

/// Makes a complete copy of stored processes. The files, which nobody changes, are shared.
pub fn share(from: &Path, to: &Path) -> io::Result<()> {
    let unfinished = to.with_extension("new");
    make_empty(&unfinished)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::hard_link(entry.path(), unfinished.join(entry.file_name()))?;
    }
    remove_tree(to)?;
    fs::rename(unfinished, to)
}

/// Makes stored processes survive a power failure.
pub fn sync(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        File::open(entry?.path())?.sync_all()?;
    }
    sync_dir(dir)
}

/// The space that they take.
pub fn size(dir: &Path) -> io::Result<u64> {
    let blocks = fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.blocks())).sum::<io::Result<u64>>()?;
    Ok(blocks.saturating_mul(512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_host_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(check(dir.path()).is_err());
        for name in [RELEASE, TOKEN, AGENT_NAME] {
            fs::write(at(name), "short").unwrap();
        }
        check(dir.path()).unwrap();
        for name in [RELEASE, TOKEN, AGENT_NAME] {
            // Sparse: a file of a terabyte takes no space and no transfer.
            File::create(at(name)).unwrap().set_len(1 << 40).unwrap();
            let refused = check(dir.path()).unwrap_err().to_string();
            assert!(refused.contains("at most 4096"), "{refused}");
            assert!(release(dir.path()).is_err() || agent_name(dir.path()).is_err() || name == TOKEN);
            fs::write(at(name), "short").unwrap();
        }
        set_agent_name(dir.path(), "other").unwrap();
        assert_eq!(agent_name(dir.path()).unwrap(), "other");
    }
}
