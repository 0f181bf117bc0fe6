//! Creates directories and splits paths. Used by all parts of `files` that create something.

use guest_proto::{FileErrorKind, FileKind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::failure::{FileFailure, shown};
use super::stat;

const DEFAULT_MODE: u32 = 0o755;

/// Makes a directory. With `recursive` also its parents, and an existing one is no error.
pub fn make(path: &[u8], mode: Option<u32>, recursive: bool) -> Result<(), FileFailure> {
    if recursive {
        make_parents(path)?;
    }
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(DEFAULT_MODE)) {
        Ok(()) => {}
        Err(Errno::EXIST) if recursive => return expect_directory(path),
        Err(Errno::NOENT) => {
            let message = format!(
                "the parent directory of '{}' does not exist; recursive=true creates it",
                shown(path)
            );
            return Err(FileFailure::new(FileErrorKind::NotFound, message));
        }
        Err(errno) => return Err(FileFailure::of(errno, path)),
    }
    match mode {
        Some(mode) => rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(FileFailure::with(path)),
        None => Ok(()),
    }
}

/// Makes the parent directories of a path.
pub fn make_parents(path: &[u8]) -> Result<(), FileFailure> {
    let slashes = path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    for (end, _) in slashes {
        let above = &path[..end];
        if path[end..].iter().all(|byte| *byte == b'/') {
            break;
        }
        match rustix::fs::mkdirat(CWD, above, Mode::from_raw_mode(DEFAULT_MODE)) {
            // If it exists and is not a directory, the next component fails.
            Ok(()) | Err(Errno::EXIST) => {}
            // The directory may exist in a file system that refuses new ones.
            Err(errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => {
                expect_directory(above).map_err(|_| FileFailure::of(errno, above))?;
            }
            Err(errno) => return Err(FileFailure::of(errno, above)),
        }
    }
    Ok(())
}

fn expect_directory(path: &[u8]) -> Result<(), FileFailure> {
    let found = rustix::fs::statat(CWD, path, AtFlags::empty()).map_err(FileFailure::with(path))?;
    if stat::kind(&found) == FileKind::Directory { Ok(()) } else { Err(FileFailure::of(Errno::EXIST, path)) }
}

/// Opens a directory as the base of relative paths.
pub fn open(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Splits a path into its directory and its last name; `None` if it has no such name (`/`, `/a/..`).
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = &path[begin..end];
    let is_name = name != b"." && name != b"..";
    is_name.then_some((if begin == 0 { b"." } else { &path[..begin] }, name))
}

/// Like [`split`], with an error for a path without a last name.
pub fn split_or_fail(path: &[u8]) -> Result<(&[u8], &[u8]), FileFailure> {
    split(path).ok_or_else(|| {
        FileFailure::new(
            FileErrorKind::Invalid,
            format!("'{}' must end in the name of a file or directory", shown(path)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split() {
        for (path, expected) in [
            ("/a", Some(("/", "a"))),
            ("/a/b", Some(("/a/", "b"))),
            ("/a//b//", Some(("/a//", "b"))),
            ("/", None),
            ("//", None),
            ("/a/..", None),
            ("/a/.", None),
            ("/a/...", Some(("/a/", "..."))),
        ] {
            let expected = expected.map(|(dir, name)| (dir.as_bytes(), name.as_bytes()));
            assert_eq!(split(path.as_bytes()), expected, "{path}");
        }
    }
}
