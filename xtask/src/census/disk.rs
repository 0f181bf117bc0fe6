//! Files in the directories that hold sandboxd's state. Called by `census` and `sweep`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Directories that may contain sandboxd's files, and the prefix of their names.
const PARENTS: [&str; 3] = ["/run", "/tmp", "/var/lib"];
const PREFIX: &str = "sandboxd";
/// Directory, sandboxes, one sandbox: deeper files are part of that sandbox.
const DEPTH: usize = 2;
/// Files that outlive a run: images, the database, keys.
const PERSISTENT: [&str; 6] = ["images", "layers", "blobs", "cache", "db", "tls"];

/// The directories and files with the prefix.
pub fn roots() -> Vec<PathBuf> {
    roots_in(&PARENTS.map(PathBuf::from))
}

fn roots_in(parents: &[PathBuf]) -> Vec<PathBuf> {
    let entries = parents.iter().filter_map(|p| fs::read_dir(p).ok()).flatten().flatten();
    let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX));
    let mut found: Vec<_> = ours.map(|e| e.path()).collect();
    found.sort();
    found
}

/// Whether a path is in a directory with the prefix, in one of the places that are sandboxd's by default.
pub fn is_in_root(path: &Path) -> bool {
    let below = |parent: &&str| {
        path.strip_prefix(parent).is_ok_and(|rest| rest.display().to_string().starts_with(PREFIX))
    };
    PARENTS.iter().any(below)
}

/// Their contents that should not outlive a run.
pub fn files() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for root in roots() {
        list(&root, DEPTH, &mut found);
    }
    Ok(found)
}

fn list(path: &Path, depth: usize, found: &mut Vec<String>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if PERSISTENT.iter().any(|kept| name == *kept || name.contains(&format!(".{kept}"))) {
        return;
    }
    let entries: Vec<_> = match fs::read_dir(path) {
        Ok(entries) if depth > 0 && !path.is_symlink() => entries.flatten().collect(),
        _ => Vec::new(),
    };
    // The data directory of a service outlives its sandboxes.
    let home = path.starts_with("/var/lib") && depth == DEPTH;
    if !home {
        found.push(path.display().to_string());
    }
    for entry in entries {
        list(&entry.path(), depth - 1, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_by_their_prefix() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sandboxd", "sandboxd-e2e", "other"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let found = roots_in(&[root.path().to_owned(), root.path().join("missing")]);
        assert_eq!(found, [root.path().join("sandboxd"), root.path().join("sandboxd-e2e")]);
    }

    #[test]
    fn sandboxes_are_listed_and_persistent_files_are_not() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sandboxes/sb_1/disk", "images/x"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("state.db-wal"), "").unwrap();
        let mut found = Vec::new();
        list(root.path(), DEPTH, &mut found);
        let expected = ["", "sandboxes", "sandboxes/sb_1"].map(|p| root.path().join(p));
        let expected: Vec<_> =
            expected.iter().map(|p| p.display().to_string().trim_end_matches('/').to_owned()).collect();
        assert_eq!(found, expected);
    }
}
