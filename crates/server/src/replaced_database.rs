//! Notices that the database was replaced while the service runs, as by a restore of the data directory.
//!
//! The service goes on with the file that it has open, while commands such as `sandboxd key` open the new one: a key that they revoke
//! stays valid. [`watch`] is for the service, [`refuse_other`] for the commands.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::database;

const CHECK_EVERY: Duration = Duration::from_secs(3);
/// How the kernel names an open file that was removed.
const REMOVED: &str = "store.db (deleted)";
const REPLACED: &str = "store.db was replaced while the service runs, which goes on with the old one: stop the service, then restore";

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(about: &Metadata) -> Self {
        Self { device: about.dev(), inode: about.ino() }
    }

    fn at(path: &Path) -> std::io::Result<Self> {
        fs::metadata(path).map(|about| Self::of(&about))
    }
}

/// The database that this process has open.
#[derive(Debug)]
pub struct OpenDatabase {
    path: PathBuf,
    identity: FileIdentity,
}

impl OpenDatabase {
    /// Called right after it was opened.
    pub fn of(data_dir: &Path) -> Result<Self> {
        let path = database(data_dir);
        let identity = FileIdentity::at(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path, identity })
    }

    /// Whether its path names another file now, or none.
    fn is_replaced(&self) -> bool {
        match FileIdentity::at(&self.path) {
            Ok(identity) => identity != self.identity,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

/// Logs an error once the database was replaced. Ends then, or when `stop` is cancelled.
pub fn watch(open: OpenDatabase, stop: CancellationToken) -> JoinHandle<()> {
    let open = Arc::new(open);
    tokio::spawn(async move {
        while stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
            let checked = Arc::clone(&open);
            // A disk may hang, so no async worker waits for it.
            if let Ok(true) = tokio::task::spawn_blocking(move || checked.is_replaced()).await {
                tracing::error!(database = %open.path.display(), "{REPLACED}");
                return;
            }
        }
    })
}

/// Fails if the service of this run directory runs and has another database open than the one in the data directory.
pub fn refuse_other(data_dir: &Path, lock: &Path) -> Result<()> {
    let (Ok(own), Ok(lock_identity)) = (FileIdentity::at(&database(data_dir)), FileIdentity::at(lock)) else {
        return Ok(());
    };
    // Without a process there is nobody to contradict.
    let holder = fs::read_to_string(lock).ok().and_then(|pid| pid.trim().parse::<u32>().ok());
    let Some(opened) = holder.and_then(open_files) else { return Ok(()) };
    // The number can be that of another process now.
    if !opened.iter().any(|(_, identity)| *identity == lock_identity) {
        return Ok(());
    }
    let databases: Vec<FileIdentity> =
        opened.into_iter().filter(|(name, _)| is_database(name)).map(|(_, identity)| identity).collect();
    ensure!(databases.is_empty() || databases.contains(&own), "{REPLACED}");
    Ok(())
}

fn is_database(name: &Path) -> bool {
    let name = name.file_name();
    name == database(Path::new("")).file_name() || name == Some(OsStr::new(REMOVED))
}

/// The files that a process has open, with their names.
fn open_files(pid: u32) -> Option<Vec<(PathBuf, FileIdentity)>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let file = |entry: fs::DirEntry| {
        let link = entry.path();
        Some((fs::read_link(&link).ok()?, FileIdentity::at(&link).ok()?))
    };
    Some(entries.filter_map(Result::ok).filter_map(file).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use admission::captured_log::CapturedLog;

    use super::*;

    /// A data directory in place of another one, whose database is open.
    fn replace(parent: &Path) -> (PathBuf, File) {
        let data = parent.join("data");
        fs::create_dir(&data).unwrap();
        let open = File::create(database(&data)).unwrap();
        (data, open)
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_database_is_one_error() {
        let dir = tempfile::tempdir().unwrap();
        let (data, _open) = replace(dir.path());
        let log = CapturedLog::default();
        let _logging = log.begin();
        let (stop, watched) = (CancellationToken::new(), OpenDatabase::of(&data).unwrap());
        assert!(!watched.is_replaced());
        let watching = watch(watched, stop.clone());
        tokio::time::sleep(CHECK_EVERY * 3).await;
        assert!(!watching.is_finished());
        fs::rename(&data, dir.path().join("data.before")).unwrap();
        let (_data, _new) = replace(dir.path());
        tokio::time::sleep(CHECK_EVERY * 3).await;
        watching.await.unwrap();
        let text = log.text();
        assert_eq!(text.matches(REPLACED).count(), 1, "{text}");
        assert!(text.contains("ERROR"), "{text}");
    }

    #[test]
    fn a_command_refuses_another_database_than_that_of_the_service() {
        let dir = tempfile::tempdir().unwrap();
        let (data, _open) = replace(dir.path());
        let lock = dir.path().join("serve.lock");
        fs::write(&lock, format!("{}\n", std::process::id())).unwrap();
        refuse_other(&data, &lock).unwrap();
        fs::rename(&data, dir.path().join("data.before")).unwrap();
        let (data, new) = replace(dir.path());
        drop(new);
        // This process does not hold the lock, so its number says nothing.
        refuse_other(&data, &lock).unwrap();
        let _held = File::open(&lock).unwrap();
        assert_eq!(refuse_other(&data, &lock).unwrap_err().to_string(), REPLACED);
    }
}
