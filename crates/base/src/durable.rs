//! Changes of files and directories that survive a loss of power.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file as a whole, or creates it: after a crash, also of the host, it has the old content or the new one. `mode` has the
/// permissions of the new file. A draft that a crash has left, the path with `.new`, is replaced by the next call. A file that has this
/// content and these permissions is not written, so that a start on a full disk can succeed.
pub fn replace_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if is_unchanged(path, content, mode) {
        return Ok(());
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    allow_missing(fs::remove_file(draft))?;
    write_draft(draft, content, mode).and_then(|()| fs::rename(draft, path)).inspect_err(|_| {
        // What is left has no use, and takes space of a disk that may be full.
        let _ = fs::remove_file(draft);
    })?;
    sync_parent(path)
}

/// Opens a lock file with mode 0600: any process that can open it could hold the lock.
pub fn lock_file(path: &Path) -> io::Result<File> {
    let open = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open
        .map_err(|error| io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display())))?;
    // An existing file may have another mode.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

fn is_unchanged(path: &Path, content: &[u8], mode: u32) -> bool {
    let has_mode = fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o7777 == mode);
    has_mode && fs::read(path).is_ok_and(|found| found == content)
}

fn write_draft(draft: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // Not an existing file, whose permissions would stay.
    let mut file = File::options().write(true).create_new(true).mode(mode).open(draft)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Whether an error, or one that caused it, is that of a full disk.
pub fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    let own = error.downcast_ref::<io::Error>();
    matches!(own.map(io::Error::kind), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
        // The source of an error that wraps another one is that of the wrapped one.
        || own.and_then(io::Error::get_ref).is_some_and(|wrapped| is_disk_full(wrapped))
        || error.source().is_some_and(is_disk_full)
}

/// The result of the removal or the move of a file or directory, which may be missing.
pub fn allow_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes the names in a directory durable: those of new, renamed and removed files. Their contents have to be synced before.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// As [`sync_dir`], for the directory that has this file or directory.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        // The name alone: the file is in the current directory.
        Some(dir) if dir.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(dir) => sync_dir(dir),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_without_a_draft() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(dir.path().join("a.json.new"), "of a crash, and longer").unwrap();
        for (content, mode) in [("longer", 0o600), ("new", 0o600), ("other", 0o400)] {
            replace_file(&path, content.as_bytes(), mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(replace_file(&dir.path().join("missing/a"), b"", 0o600).is_err());
    }

    #[test]
    fn a_file_that_is_as_it_should_be_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        replace_file(&path, b"text", 0o600).unwrap();
        let inode = || fs::metadata(&path).unwrap().ino();
        let first = inode();
        replace_file(&path, b"text", 0o600).unwrap();
        assert_eq!(inode(), first);
        // Somebody has made it readable for all.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace_file(&path, b"text", 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_failed_write_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        // A directory cannot be replaced by a file.
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        replace_file(&path, b"text", 0o600).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_is_found_behind_other_errors() {
        let full = io::Error::other(io::Error::from(io::ErrorKind::StorageFull));
        assert!(is_disk_full(&full));
        assert!(!is_disk_full(&io::Error::other("storage full")));
    }

    #[test]
    fn a_directory_is_synced_and_a_missing_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        sync_dir(dir.path()).unwrap();
        sync_parent(&dir.path().join("file")).unwrap();
        sync_parent(Path::new("/")).unwrap();
        sync_parent(Path::new("file")).unwrap();
        let missing = dir.path().join("missing");
        assert_eq!(sync_dir(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(sync_parent(&missing.join("file")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_a_missing_file_is_as_good_as_a_removed_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for _ in 0..2 {
            allow_missing(fs::remove_file(&file)).unwrap();
        }
        assert!(!file.exists());
        allow_missing(fs::rename(&file, dir.path().join("other"))).unwrap();
        assert!(allow_missing(fs::remove_file(dir.path())).is_err(), "a directory");
    }
}
