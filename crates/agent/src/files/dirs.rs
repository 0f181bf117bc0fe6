//! Making directories, and taking paths apart. Used by all of `files` that make something.

use guest_proto::{FileErrorKind, FileKind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::fault::{Fault, shown};
use super::stat;

const DEFAULT_MODE: u32 = 0o755;

/// Makes a directory. With `recursive` those above it too, and one that is there is fine.
pub fn make(path: &[u8], mode: Option<u32>, recursive: bool) -> Result<(), Fault> {
    if recursive {
        make_parents(path)?;
    }
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(DEFAULT_MODE)) {
        Ok(()) => {}
        Err(Errno::EXIST) if recursive => return expect_directory(path),
        Err(Errno::NOENT) => {
            let message = format!(
                "there is no directory that '{}' could be in; recursive=true makes those above it",
                shown(path)
            );
            return Err(Fault::new(FileErrorKind::NotFound, message));
        }
        Err(errno) => return Err(Fault::of(errno, path)),
    }
    match mode {
        Some(mode) => rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(Fault::with(path)),
        None => Ok(()),
    }
}

/// Makes the directories above a path.
pub fn make_parents(path: &[u8]) -> Result<(), Fault> {
    let slashes = path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    for (end, _) in slashes {
        let above = &path[..end];
        if path[end..].iter().all(|byte| *byte == b'/') {
            break;
        }
        match rustix::fs::mkdirat(CWD, above, Mode::from_raw_mode(DEFAULT_MODE)) {
            // What is there and no directory shows at the next.
            Ok(()) | Err(Errno::EXIST) => {}
            // On a file system that takes none, it may be there all the same.
            Err(errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => {
                expect_directory(above).map_err(|_| Fault::of(errno, above))?;
            }
            Err(errno) => return Err(Fault::of(errno, above)),
        }
    }
    Ok(())
}

fn expect_directory(path: &[u8]) -> Result<(), Fault> {
    let found = rustix::fs::statat(CWD, path, AtFlags::empty()).map_err(Fault::with(path))?;
    if stat::kind(&found) == FileKind::Directory { Ok(()) } else { Err(Fault::of(Errno::EXIST, path)) }
}

/// A directory to name things in.
pub fn open(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// A path as its directory and the name in it; nothing where it has no such name (`/`, `/a/..`).
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = &path[begin..end];
    let is_name = name != b"." && name != b"..";
    is_name.then_some((if begin == 0 { b"." } else { &path[..begin] }, name))
}

/// The same, or the fault that such a path is.
pub fn split_or_fault(path: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    split(path).ok_or_else(|| {
        Fault::new(
            FileErrorKind::Invalid,
            format!("'{}' ends in no name that could be put there", shown(path)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart() {
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
