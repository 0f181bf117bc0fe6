//! The local directory that a merge changes. Symbolic links in it are never followed: an entry behind one counts as absent, and a
//! directory is not created behind one. Called by `merge`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::placement;
use super::state::{EntryState, SentEntries};
use super::tree::OWN_ALL;

/// Mode of a directory that is created again, and was not sent.
const DIRECTORY_MODE: u32 = 0o755;

/// A local directory, whose entries have relative names.
pub struct LocalTree<'a> {
    pub root: &'a Path,
    pub sent: &'a SentEntries,
}

impl LocalTree<'_> {
    /// The path of an entry.
    pub fn path(&self, name: &Path) -> PathBuf {
        self.root.join(name)
    }

    /// The state of an entry.
    pub fn state(&self, name: &Path) -> io::Result<EntryState> {
        let path = self.path(name);
        if path.parent() == Some(&*self.existing_parent(name)?) {
            return EntryState::of(&path);
        }
        Ok(EntryState::Absent)
    }

    /// The deepest existing directory above an entry.
    pub fn existing_parent(&self, name: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(self.root)?;
        let mut dir = self.root.to_owned();
        for part in name.parent().into_iter().flat_map(Path::components) {
            let next = dir.join(part);
            match fs::symlink_metadata(&next) {
                Ok(found) if found.is_dir() => dir = next,
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(dir)
    }

    /// Creates the missing directories above an entry, with the modes that were sent. Returns the last one.
    pub fn make_parents(&self, name: &Path) -> io::Result<PathBuf> {
        let mut made = PathBuf::new();
        for part in name.parent().into_iter().flat_map(Path::components) {
            made.push(part);
            let path = self.path(&made);
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(ErrorKind::NotADirectory.into()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let mode = self.sent.get(&made).map_or(DIRECTORY_MODE, |sent| sent.mode);
                    placement::make_directory(&path, mode | OWN_ALL)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.path(&made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::state::Sent;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A directory with `dir/file`, and with `link`, which leads to another directory with a `file`.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (root, other) = (dir.path().join("root"), dir.path().join("other"));
        for path in [root.join("dir"), other.clone()] {
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        }
        symlink(&other, root.join("link")).unwrap();
        (dir, root)
    }

    #[test]
    fn links_are_not_followed_on_the_way_to_an_entry() {
        let (_dir, root) = tree();
        let sent = SentEntries::default();
        let tree = LocalTree { root: &root, sent: &sent };
        let state = |name: &str| tree.state(Path::new(name)).unwrap();
        assert!(matches!(state("dir/file"), EntryState::File(_)));
        assert_eq!(state("dir"), EntryState::Directory);
        assert!(matches!(state("link"), EntryState::Link(_)), "the last part may be one");
        assert_eq!(state("link/file"), EntryState::Absent);
        assert_eq!(state("none/file"), EntryState::Absent);
        assert_eq!(state("dir/file/below"), EntryState::Absent);
    }

    #[test]
    fn the_deepest_real_directory_is_found() {
        let (_dir, root) = tree();
        let sent = SentEntries::default();
        let tree = LocalTree { root: &root, sent: &sent };
        for (name, parent) in
            [("file", ""), ("dir/new", "dir"), ("dir/a/b/c", "dir"), ("link/a/b", ""), ("dir/file/a", "dir")]
        {
            let found = tree.existing_parent(Path::new(name)).unwrap();
            assert_eq!(found, root.join(parent), "{name}");
        }
        assert_eq!(tree.path(Path::new("a/b")), root.join("a/b"));
    }

    #[test]
    fn a_missing_root_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let (root, sent) = (dir.path().join("a/b"), SentEntries::default());
        let tree = LocalTree { root: &root, sent: &sent };
        assert_eq!(tree.state(Path::new("file")).unwrap(), EntryState::Absent);
        assert!(root.is_dir());
    }

    #[test]
    fn directories_are_made_again_with_their_modes_and_access_for_the_owner() {
        let (_dir, root) = tree();
        let sent = Sent { state: EntryState::Directory, mode: 0o500 };
        let sent = SentEntries::from([(PathBuf::from("locked"), sent)]);
        let tree = LocalTree { root: &root, sent: &sent };
        assert_eq!(tree.make_parents(Path::new("locked/new/file")).unwrap(), root.join("locked/new"));
        let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("locked"), 0o700);
        assert_eq!(mode("locked/new") & 0o700, 0o700);
        assert_eq!(tree.make_parents(Path::new("file")).unwrap(), tree.path(Path::new("")));
    }

    #[test]
    fn nothing_is_made_behind_a_link_or_a_file() {
        let (dir, root) = tree();
        let sent = SentEntries::default();
        let tree = LocalTree { root: &root, sent: &sent };
        for name in ["link/new/file", "dir/file/new/file"] {
            let refused = tree.make_parents(Path::new(name)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotADirectory, "{name}");
        }
        assert!(!dir.path().join("other/new").exists());
    }
}
