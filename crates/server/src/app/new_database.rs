//! Refuses to make a new database in a data directory with sandboxes or snapshots.
//!
//! The engine removes what has no record, so with a new database it would remove all of them. A restore that leaves the database
//! out must not lose what it has restored.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use driver_host::disks_in;

/// Fails if `data_dir` has sandboxes or snapshots and no database of this name, or an empty one. A daemon that was killed at its
/// first start may have left an empty one, but no sandbox.
pub(super) fn check_new_database(data_dir: &Path, name: &str) -> Result<()> {
    let path = data_dir.join(name);
    let cannot_read = |path: &Path| format!("cannot read {}", path.display());
    match fs::metadata(&path) {
        Ok(database) if database.len() > 0 => return Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| cannot_read(&path));
        }
        Ok(_) | Err(_) => {}
    }
    let (sandboxes, snapshots) = disks_in(data_dir).with_context(|| cannot_read(data_dir))?;
    ensure!(
        sandboxes.is_empty() && snapshots.is_empty(),
        "the database {} is missing or empty, but the data directory has disks of {} and {}, which a start with a new database \
         deletes; restore the database from a backup ('Backup and restore' in docs/operations.md), or delete the disks with \
         'sandboxd serve --discard-orphans'",
        path.display(),
        counted(sandboxes.len(), "sandbox", "sandboxes"),
        counted(snapshots.len(), "snapshot", "snapshots"),
    );
    Ok(())
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use api::{SandboxId, SnapshotId};

    use super::*;

    const STORE: &str = "store.db";

    fn refusal(data_dir: &Path) -> Option<String> {
        check_new_database(data_dir, STORE).err().map(|error| error.to_string())
    }

    #[test]
    fn only_a_directory_without_disks_gets_a_new_database() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(refusal(dir.path()), None);
        for empty in ["sandboxes", "snapshots", "images"] {
            fs::create_dir(dir.path().join(empty)).unwrap();
        }
        assert_eq!(refusal(dir.path()), None);
        let snapshot = SnapshotId::from_random([1; 20]);
        fs::create_dir(dir.path().join("snapshots").join(snapshot.as_str())).unwrap();
        let found = refusal(dir.path()).unwrap();
        assert!(found.contains("store.db") && found.contains("of 0 sandboxes and 1 snapshot,"), "{found}");
        let ids = [1, 2].map(|number| SandboxId::from_random([number; 20]));
        for id in &ids {
            fs::create_dir(dir.path().join("sandboxes").join(id.as_str())).unwrap();
        }
        let found = refusal(dir.path()).unwrap();
        assert!(found.contains("of 2 sandboxes and 1 snapshot,"), "{found}");
        assert!(found.contains("--discard-orphans") && found.contains("docs/operations.md"), "{found}");
    }

    #[test]
    fn an_empty_database_is_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let id = SandboxId::from_random([1; 20]);
        fs::create_dir_all(dir.path().join("sandboxes").join(id.as_str())).unwrap();
        fs::write(dir.path().join(STORE), "").unwrap();
        assert!(refusal(dir.path()).is_some());
        fs::write(dir.path().join(STORE), "SQLite format 3").unwrap();
        assert_eq!(refusal(dir.path()), None);
    }
}
