//! The build context: a tar archive of the client, and an index of its entries with the hashes of their contents.
//!
//! The archive is untrusted: the headers of each entry, the number of entries and the bytes of their names are bounded, and nothing of it
//! is unpacked on the host. The index takes up to 25 MB, so a context has one only while something reads it: when it arrives, and
//! while its build runs, of which only the planning needs the hashes.

pub mod contexts;
pub mod format;
pub mod incoming;
pub mod index;
pub mod spool;
pub mod uploads;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use tarball::{BoundedTar, Exceeded, TarLimits};
use tokio_util::sync::CancellationToken;

use crate::context::index::{ContextEntry, EntryKind, Index, MAX_PATH, NewEntry};
use crate::error::BuilderError;

const PIECE: usize = 64 * 1024;

/// The context of a build.
#[derive(Debug, Default)]
pub struct Context {
    archive: PathBuf,
    pub index: Index,
}

/// What is read of the contents of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashes {
    Compute,
    /// All hashes are zero.
    Skip,
}

fn invalid(reason: impl Into<String>) -> BuilderError {
    BuilderError::Context(reason.into())
}

fn not_tar(error: &io::Error) -> BuilderError {
    match Exceeded::of(error) {
        Some(exceeded) => invalid(format!("is refused: {exceeded}")),
        None => invalid(format!("is not a valid tar archive: {error}")),
    }
}

impl Context {
    /// Reads an uncompressed archive, unless the token is cancelled. Blocks.
    pub fn read(archive: PathBuf, hashes: Hashes, stopped: &CancellationToken) -> Result<Self, BuilderError> {
        // The index bounds the entries and their names.
        let tar = BoundedTar::new(File::open(&archive)?, None, TarLimits::HEADERS);
        let bounds = tar.bounds();
        let mut reader = tar::Archive::new(tar);
        let mut index = Index::default();
        let mut entries = reader.entries_with_seek().map_err(|error| not_tar(&error))?;
        while let Some(mut entry) = bounds.next(&mut entries).map_err(|error| not_tar(&error))? {
            check(stopped)?;
            add(&mut index, &mut entry, hashes, stopped)?;
        }
        index.complete()?;
        if hashes == Hashes::Skip {
            index.forget_hashes();
        }
        Ok(Self { archive, index })
    }

    /// Releases the memory of the hashes, which are zero from now on.
    pub fn without_hashes(mut self) -> Self {
        self.index.forget_hashes();
        self
    }

    /// Identifies the entries and their contents, without their times and their order.
    pub fn digest(&self) -> [u8; 20] {
        let mut hasher = Sha256::new();
        for rank in self.index.below("") {
            let (path, entry) = (self.index.path(rank), self.index.entry(rank));
            hasher.update((path.len() as u64).to_le_bytes());
            hasher.update(path);
            hasher.update(entry.mode.to_le_bytes());
            match &entry.kind {
                EntryKind::Directory => hasher.update(b"d"),
                EntryKind::File { hash, .. } => {
                    hasher.update(b"f");
                    hasher.update(hash);
                }
                EntryKind::Link { target } => {
                    hasher.update(b"l");
                    hasher.update((target.len() as u64).to_le_bytes());
                    hasher.update(target);
                }
            }
        }
        let mut digest = [0; 20];
        digest.copy_from_slice(&hasher.finalize()[..20]);
        digest
    }

    /// The entry with this path, which has neither `.` nor `..`. Links are not followed.
    pub fn get(&self, path: &str) -> Option<ContextEntry<'_>> {
        self.index.find(path).map(|rank| self.index.entry(rank))
    }

    /// The content of a file. Blocks.
    pub fn open(&self, offset: u64, size: u64) -> io::Result<io::Take<File>> {
        let mut file = File::open(&self.archive)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(file.take(size))
    }

    /// The content of a small text file. Blocks.
    pub fn text(&self, path: &str, most: u64) -> Result<String, BuilderError> {
        match self.get(&clean(path)?).map(|entry| entry.kind) {
            Some(EntryKind::File { size, .. }) if size > most => {
                Err(invalid(format!("has '{path}' with {size} bytes; allowed: at most {most}")))
            }
            Some(EntryKind::File { offset, size, .. }) => {
                let mut content = String::new();
                let read = self.open(offset, size)?.read_to_string(&mut content);
                read.map_err(|_| invalid(format!("has '{path}', which is not UTF-8")))?;
                Ok(content)
            }
            _ => Err(invalid(format!("has no file '{path}'"))),
        }
    }
}

fn check(stopped: &CancellationToken) -> Result<(), BuilderError> {
    if stopped.is_cancelled() { Err(BuilderError::Stopping) } else { Ok(()) }
}

/// Adds an entry of the archive to the index.
fn add(
    index: &mut Index,
    entry: &mut tar::Entry<'_, impl Read>,
    hashes: Hashes,
    stopped: &CancellationToken,
) -> Result<(), BuilderError> {
    let path = clean(text(&entry.path_bytes())?)?;
    if path.is_empty() {
        return Ok(());
    }
    let (mode, modified_s) = (entry.header().mode().unwrap_or(0o644), entry.header().mtime().unwrap_or(0));
    match entry.header().entry_type() {
        tar::EntryType::Directory => index.add(&path, mode, modified_s, NewEntry::Directory),
        tar::EntryType::Regular | tar::EntryType::Continuous => {
            let (offset, size) = (entry.raw_file_position(), entry.size());
            let hash = match hashes {
                Hashes::Compute => hash(entry, size, stopped)?,
                Hashes::Skip => [0; 32],
            };
            index.add(&path, mode, modified_s, NewEntry::File { offset, size, hash })
        }
        tar::EntryType::Symlink => {
            let target = entry.link_name_bytes().unwrap_or_default();
            let target = text(&target)?;
            if target.len() > MAX_PATH {
                return Err(invalid(format!(
                    "has a link target with {} bytes; allowed: {MAX_PATH}",
                    target.len()
                )));
            }
            index.add(&path, mode, modified_s, NewEntry::Link { target })
        }
        tar::EntryType::Link => {
            let target = clean(text(&entry.link_name_bytes().unwrap_or_default())?)?;
            index.add(&path, mode, modified_s, NewEntry::HardLink { target: &target })
        }
        tar::EntryType::GNUSparse => {
            Err(invalid(format!("has the sparse file '{path}'; create the archive without --sparse")))
        }
        // Devices, FIFOs and sockets, and headers for the whole archive.
        _ => Ok(()),
    }
}

fn text(bytes: &[u8]) -> Result<&str, BuilderError> {
    // With `./` and the like a path may be longer than it is without.
    if bytes.len() > 2 * MAX_PATH {
        return Err(invalid(format!("has a path with {} bytes; allowed: {}", bytes.len(), 2 * MAX_PATH)));
    }
    std::str::from_utf8(bytes).map_err(|_| {
        let name = String::from_utf8_lossy(bytes);
        invalid(format!("has the name '{}', which is not UTF-8", name.escape_debug()))
    })
}

/// A path of the context without `.`, `..` and slashes at its ends.
pub fn clean(path: &str) -> Result<String, BuilderError> {
    let mut parts: Vec<&str> = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => {
                let outside = || invalid(format!("has no path '{path}': it is outside of the context"));
                parts.pop().ok_or_else(outside)?;
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let clean = parts.join("/");
    if clean.len() > MAX_PATH || clean.contains('\0') {
        return Err(invalid(format!(
            "has a path with {} bytes or a NUL byte; allowed: {MAX_PATH}",
            clean.len()
        )));
    }
    Ok(clean)
}

fn hash(content: &mut impl Read, size: u64, stopped: &CancellationToken) -> Result<[u8; 32], BuilderError> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE).max(1))];
    let mut read = 0;
    loop {
        match content.read(&mut piece).map_err(|error| not_tar(&error))? {
            0 if read < size => return Err(not_tar(&io::ErrorKind::UnexpectedEof.into())),
            0 => return Ok(hasher.finalize().into()),
            n => {
                check(stopped)?;
                hasher.update(&piece[..n]);
                read += n as u64;
            }
        }
    }
}

#[cfg(test)]
pub mod tests;
