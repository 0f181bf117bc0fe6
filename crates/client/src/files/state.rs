//! What an upload has sent, and what becomes of an entry that comes back: a three-way comparison of what was sent, what is here now,
//! and what the sandbox has. Contents are compared by their digest, because a program may change a file without changing its size
//! or the second of its modification. Called by `archive`, `record` and `merge`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Permission bits; those for other identities are never copied.
pub const PERMISSIONS: u32 = 0o777;

/// An entry of a directory, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    Absent,
    File(ContentId),
    Link(PathBuf),
    Directory,
    /// A device, a FIFO or a socket.
    Other,
}

/// Identifies the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentId {
    size: u64,
    digest: [u8; 32],
}

/// An entry as it was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub state: EntryState,
    pub mode: u32,
}

/// All entries of an upload, by their paths relative to its directory.
pub type SentEntries = HashMap<PathBuf, Sent>;

/// What to do with an entry that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The sandbox has not changed it, or the local entry is equal.
    Keep,
    /// Only the sandbox has changed it.
    Write,
    /// The local entry must not be replaced.
    Conflict,
}

/// Compares the three states of a file or link.
pub fn merge(sent: &EntryState, local: &EntryState, inside: &EntryState) -> Merge {
    if inside == sent || inside == local {
        return Merge::Keep;
    }
    let is_replaceable = matches!(local, EntryState::Absent | EntryState::File(_) | EntryState::Link(_));
    if local == sent && is_replaceable { Merge::Write } else { Merge::Conflict }
}

impl EntryState {
    /// The state of a local path, without following a symbolic link at its end.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = match std::fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::Absent);
            }
            Err(error) => return Err(error),
        };
        Ok(if found.is_dir() {
            Self::Directory
        } else if found.is_symlink() {
            Self::Link(std::fs::read_link(path)?)
        } else if found.is_file() {
            let mut reader = DigestReader::new(File::open(path)?);
            io::copy(&mut reader, &mut io::sink())?;
            Self::File(reader.content())
        } else {
            Self::Other
        })
    }
}

/// Identifies what is read through it.
pub struct DigestReader<R> {
    from: R,
    size: u64,
    digest: Sha256,
}

impl<R> DigestReader<R> {
    pub fn new(from: R) -> Self {
        Self { from, size: 0, digest: Sha256::new() }
    }

    /// The content that was read.
    pub fn content(self) -> ContentId {
        ContentId { size: self.size, digest: self.digest.finalize().into() }
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(into)?;
        self.digest.update(&into[..got]);
        self.size += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> EntryState {
        let mut reader = DigestReader::new(text.as_bytes());
        io::copy(&mut reader, &mut io::sink()).unwrap();
        EntryState::File(reader.content())
    }

    #[test]
    fn only_what_the_sandbox_alone_has_changed_is_written() {
        let (a, b, c) = (file("a"), file("b"), file("c"));
        let link = EntryState::Link("a".into());
        for (sent, local, inside, expected) in [
            (&a, &a, &a, Merge::Keep),
            (&a, &b, &a, Merge::Keep),
            (&a, &EntryState::Absent, &a, Merge::Keep),
            (&a, &b, &b, Merge::Keep),
            (&a, &a, &b, Merge::Write),
            (&a, &a, &link, Merge::Write),
            (&link, &link, &a, Merge::Write),
            (&EntryState::Absent, &EntryState::Absent, &a, Merge::Write),
            (&a, &b, &c, Merge::Conflict),
            (&a, &EntryState::Absent, &b, Merge::Conflict),
            (&EntryState::Absent, &a, &b, Merge::Conflict),
            (&EntryState::Directory, &EntryState::Directory, &a, Merge::Conflict),
        ] {
            assert_eq!(merge(sent, local, inside), expected, "{sent:?} {local:?} {inside:?}");
        }
    }

    #[test]
    fn a_local_state_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "a").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        let state = |name: &str| EntryState::of(&at(name)).unwrap();
        assert_eq!((state("file"), state("link")), (file("a"), EntryState::Link("file".into())));
        assert_eq!((state("missing"), state("file/below")), (EntryState::Absent, EntryState::Absent));
        assert_eq!(state(""), EntryState::Directory);
    }
}
