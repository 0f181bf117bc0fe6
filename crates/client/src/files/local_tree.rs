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
