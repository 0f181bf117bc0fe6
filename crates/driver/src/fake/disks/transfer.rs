//! Files of fake snapshots. A file has only the number of its content, which all fake hosts of this process know.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use api::SnapshotId;
use base::IgnorePoison;

use super::{BYTES, Content};
use crate::fake::Host;
use crate::{SnapshotFile, SnapshotScope};

const DISK: &str = "disk";
const PROCESSES: &str = "memory/processes";

static CONTENTS: Mutex<Vec<Content>> = Mutex::new(Vec::new());
static DIRS: AtomicU64 = AtomicU64::new(0);

/// The directory of the files, removed with the host.
pub(in crate::fake) struct Exports(PathBuf);

impl Drop for Exports {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The path of a file of a snapshot, or of one that is being received.
pub(super) fn path(host: &Host, snapshot: &SnapshotId, name: &str, suffix: &str) -> io::Result<PathBuf> {
    let mut state = host.state();
    let exports = state.exports.get_or_insert_with(|| {
        let number = DIRS.fetch_add(1, Ordering::Relaxed);
        Exports(std::env::temp_dir().join(format!("fake-driver-{}-{number}", std::process::id())))
    });
    fs::create_dir_all(&exports.0)?;
    Ok(exports.0.join(format!("{snapshot}.{}.{suffix}", name.replace('/', "-"))))
}

pub(super) fn files(
    host: &Host,
    snapshot: &SnapshotId,
    scope: SnapshotScope,
) -> io::Result<Vec<SnapshotFile>> {
    let content = host.state().snapshots.get(snapshot).and_then(|(_, content)| content.clone());
    let (name, content) = match (scope, content) {
        (SnapshotScope::Disk, Some(content)) => (DISK, content.of_disk()),
        (SnapshotScope::Processes, Some(content)) if content.has_processes() => (PROCESSES, content),
        _ => return Ok(Vec::new()),
    };
    let path = path(host, snapshot, name, "file")?;
    if !path.exists() {
        let mut contents = CONTENTS.lock().ignore_poison();
        contents.push(content);
        fs::write(&path, format!("content {}", contents.len() - 1))?;
    }
    Ok(vec![SnapshotFile { name: name.to_owned(), path }])
}

pub(super) fn complete(host: &Host, snapshot: &SnapshotId) -> io::Result<()> {
    for name in [PROCESSES, DISK] {
        let path = path(host, snapshot, name, "new")?;
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let number = text.strip_prefix("content ").and_then(|number| number.parse::<usize>().ok());
        let contents = CONTENTS.lock().ignore_poison();
        let Some(content) = number.and_then(|number| contents.get(number)) else {
            return Err(io::Error::other("not a file of a snapshot"));
        };
        let mut state = host.state();
        let (bytes, own) = state.snapshots.entry(snapshot.clone()).or_default();
        *bytes = BYTES;
        match own {
            Some(own) if name == PROCESSES => own.take_processes(content),
            Some(_) => {}
            None => *own = Some(content.clone()),
        }
        drop(state);
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Removes what an interrupted transfer has left.
pub(super) fn clear(host: &Host, snapshot: &SnapshotId) -> io::Result<()> {
    for name in [PROCESSES, DISK] {
        let path = path(host, snapshot, name, "new")?;
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
