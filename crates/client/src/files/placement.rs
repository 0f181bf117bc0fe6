//! Gives a file its place in a local directory: content that is complete in a temporary file beside it replaces it by a rename, so the
//! earlier content is there until then. Called by `read` and `merge`. A failure leaves the earlier file unchanged.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::FileEntry;
use tempfile::{NamedTempFile, TempPath};

use super::state::PERMISSIONS;

/// The end of the name of a file whose local version is kept.
const FROM_SANDBOX: &str = ".from-sandbox";
/// Names that are tried for such a file.
const MOST_NAMES: u32 = 100;
/// The user root, whose files need not belong to it.
const ROOT: u32 = 0;
/// A mode that gives nobody but the owner access.
const PRIVATE: u32 = 0o600;

/// Mode and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits only.
    pub mode: u32,
    /// `None` for a time that this machine cannot represent.
    pub modified: Option<SystemTime>,
}

impl Attributes {
    /// Those of an entry of an archive.
    pub fn new(mode: u32, modified_s: u64) -> Self {
        let modified = UNIX_EPOCH.checked_add(Duration::from_secs(modified_s));
        Self { mode: mode & PERMISSIONS, modified }
    }

    /// Those of a file in a sandbox.
    pub fn of(entry: &FileEntry) -> Self {
        let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or(PRIVATE) & PERMISSIONS;
        Self { mode, modified: UNIX_EPOCH.checked_add(Duration::from_millis(entry.modified_at.0)) }
    }

    /// Sets them. Not every file system can store every time.
    pub fn apply(self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.mode))?;
        if let Some(modified) = self.modified {
            let _ = file.set_modified(modified);
        }
        Ok(())
    }
}

/// A new private file in a directory, which is removed on drop.
pub fn temporary(dir: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".sandbox-").tempfile_in(dir).map_err(without_temporary_name)
}

/// The error without the name of the temporary file, which would hide what the user has named. Other kinds have no text of their own.
fn without_temporary_name(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ (ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::NotADirectory
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded) => kind.into(),
        _ => error,
    }
}

/// A new symbolic link in a directory, which is removed on drop.
pub fn temporary_link(dir: &Path, target: &Path) -> io::Result<TempPath> {
    let make = |path: &Path| std::os::unix::fs::symlink(target, path);
    let link = tempfile::Builder::new()
        .prefix(".sandbox-")
        .make_in(dir, make)
        .map_err(without_temporary_name)?
        .into_temp_path();
    let own = std::fs::symlink_metadata(&link)?;
    if let Some((uid, gid)) = owner_in(dir, &own)? {
        ignore_refusal(lchown(&link, Some(uid), Some(gid)))?;
    }
    Ok(link)
}

/// Gives a file the owner and group of the file that it will replace, as far as this user may.
pub fn own_like(file: &File, replaced: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) == (replaced.uid(), replaced.gid()) {
        return Ok(());
    }
    ignore_refusal(fchown(file, Some(replaced.uid()), Some(replaced.gid())))
}

/// Gives a new file of root the owner of its directory.
pub fn own_in(file: &File, dir: &Path) -> io::Result<()> {
    match owner_in(dir, &file.metadata()?)? {
        Some((uid, gid)) => ignore_refusal(fchown(file, Some(uid), Some(gid))),
        None => Ok(()),
    }
}

/// Creates a directory, which belongs to the owner of the one above if this user is root.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    let Some(above) = path.parent() else { return Ok(()) };
    match owner_in(above, &path.metadata()?)? {
        Some((uid, gid)) => ignore_refusal(lchown(path, Some(uid), Some(gid))),
        None => Ok(()),
    }
}

/// The owner of a directory, if a new entry in it belongs to root.
fn owner_in(dir: &Path, entry: &Metadata) -> io::Result<Option<(u32, u32)>> {
    if entry.uid() != ROOT {
        return Ok(None);
    }
    let dir = dir.metadata()?;
    Ok(Some((dir.uid(), dir.gid())))
}

/// Only root may give files away, and only to ids that exist in its user namespace.
fn ignore_refusal(changed: io::Result<()>) -> io::Result<()> {
    match changed {
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => Ok(()),
        changed => changed,
    }
}

/// Replaces a path.
pub fn replace(temporary: TempPath, path: &Path) -> io::Result<()> {
    temporary.persist(path).map_err(|error| error.error)
}

/// Creates a path. Fails if it exists.
pub fn create(temporary: TempPath, path: &Path) -> io::Result<()> {
    temporary.persist_noclobber(path).map_err(|error| error.error)
}

/// Creates a file beside `path`, whose name says that it comes from the sandbox. Returns its path.
pub fn create_beside(mut temporary: TempPath, path: &Path) -> io::Result<PathBuf> {
    for number in 1..=MOST_NAMES {
        let mut name = path.as_os_str().to_owned();
        name.push(FROM_SANDBOX);
        if number > 1 {
            name.push(format!(".{number}"));
        }
        match temporary.persist_noclobber(&name) {
            Ok(()) => return Ok(name.into()),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => temporary = error.path,
            Err(error) => return Err(error.error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn new_file(dir: &Path, content: &str) -> TempPath {
        let file = temporary(dir).unwrap();
        fs::write(file.path(), content).unwrap();
        file.into_temp_path()
    }

    fn entry(mode: &str) -> FileEntry {
        let entry = json!({
            "name": "a", "path": "/a", "isDirectory": false, "sizeBytes": 0,
            "modifiedAt": "2023-11-14T22:13:20.500Z", "kind": "file", "mode": mode,
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn only_permission_bits_leave_a_sandbox() {
        for (mode, own) in
            [("0644", 0o644), ("4755", 0o755), ("2770", 0o770), ("1777", 0o777), ("rw", 0o600), ("", 0o600)]
        {
            assert_eq!(Attributes::of(&entry(mode)).mode, own, "{mode}");
        }
        assert_eq!(Attributes::new(0o7751, 0).mode, 0o751);
    }

    #[test]
    fn a_time_that_this_machine_cannot_represent_is_left_out() {
        let at = |seconds| Attributes::new(0o644, seconds).modified;
        assert_eq!(at(0), Some(UNIX_EPOCH));
        assert_eq!(at(u64::MAX), None);
        let half = Duration::from_millis(1_700_000_000_500);
        assert_eq!(Attributes::of(&entry("0644")).modified, Some(UNIX_EPOCH + half));
    }

    #[test]
    fn attributes_are_those_of_the_written_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = temporary(dir.path()).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().mode() & 0o777, 0o600, "private until it is complete");
        Attributes::new(0o640, 1_000_000).apply(file.as_file()).unwrap();
        let found = file.as_file().metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.mtime()), (0o640, 1_000_000));
        Attributes { mode: 0o600, modified: None }.apply(file.as_file()).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().mtime(), 1_000_000);
    }

    #[test]
    fn a_new_file_never_replaces_one_unless_it_is_meant_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        create(new_file(dir.path(), "one"), &path).unwrap();
        let refused = create(new_file(dir.path(), "two"), &path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        replace(new_file(dir.path(), "three"), &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "temporary files are removed");
    }

    #[test]
    fn each_version_of_the_sandbox_gets_a_name_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        let make = || {
            let beside = create_beside(new_file(dir.path(), "x"), &path)?;
            Ok::<_, io::Error>(beside.file_name().unwrap().to_string_lossy().into_owned())
        };
        assert_eq!(make().unwrap(), "notes.from-sandbox");
        assert_eq!(make().unwrap(), "notes.from-sandbox.2");
        assert_eq!(make().unwrap(), "notes.from-sandbox.3");
        for _ in 4..=MOST_NAMES {
            make().unwrap();
        }
        assert_eq!(make().unwrap_err().kind(), ErrorKind::AlreadyExists);
    }

    #[test]
    fn errors_do_not_name_temporary_files() {
        let error = |kind| io::Error::new(kind, "at path .sandbox-x7");
        let named = without_temporary_name(error(ErrorKind::NotFound));
        assert_eq!((named.kind(), named.to_string().contains(".sandbox-")), (ErrorKind::NotFound, false));
        assert_eq!(without_temporary_name(error(ErrorKind::TimedOut)).to_string(), "at path .sandbox-x7");
        let missing = temporary(Path::new("/no/such/directory")).unwrap_err();
        assert_eq!((missing.kind(), missing.to_string().contains(".sandbox-")), (ErrorKind::NotFound, false));
    }

    #[test]
    fn only_the_refusal_to_give_a_file_away_is_ignored() {
        for (kind, is_ignored) in [
            (ErrorKind::PermissionDenied, true),
            (ErrorKind::InvalidInput, true),
            (ErrorKind::NotFound, false),
            (ErrorKind::ReadOnlyFilesystem, false),
        ] {
            assert_eq!(ignore_refusal(Err(kind.into())).is_ok(), is_ignored, "{kind:?}");
        }
    }

    #[test]
    fn a_temporary_link_is_removed_unless_it_is_placed() {
        let dir = tempfile::tempdir().unwrap();
        let link = temporary_link(dir.path(), Path::new("../target")).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("../target"));
        drop(link);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let link = temporary_link(dir.path(), Path::new("target")).unwrap();
        create(link, &dir.path().join("link")).unwrap();
        assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("target"));
    }

    #[test]
    fn a_directory_is_made_once_and_not_with_its_parents() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        make_directory(&made, 0o700).unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(make_directory(&made, 0o700).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let deep = dir.path().join("a/b");
        assert_eq!(make_directory(&deep, 0o700).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
