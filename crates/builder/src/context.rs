//! The build context: a tar archive of the client, and an index of its entries with the hashes of their contents.
//!
//! The archive is untrusted: the number and the names of its entries are checked, and nothing of it is unpacked on the host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::BuilderError;

/// Most entries of a context.
const MAX_ENTRIES: usize = 200_000;
/// Most bytes in a path.
const MAX_PATH: usize = 4096;
const PIECE: usize = 64 * 1024;
const DIRECTORY_MODE: u32 = 0o755;

/// The context of a build.
#[derive(Debug)]
pub struct Context {
    archive: PathBuf,
    /// By their paths, without `./` and a slash at the end.
    entries: Arc<BTreeMap<String, Entry>>,
}

/// A file, a directory or a link of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub modified_s: u64,
    pub kind: EntryKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    File { offset: u64, size: u64, hash: [u8; 32] },
    Link { target: String },
}

fn invalid(reason: impl Into<String>) -> BuilderError {
    BuilderError::Context(reason.into())
}

impl Context {
    /// A context without entries.
    pub fn empty() -> Self {
        Self { archive: PathBuf::new(), entries: Arc::default() }
    }

    /// Reads an uncompressed archive. Blocks.
    pub fn read(archive: PathBuf) -> Result<Self, BuilderError> {
        let mut reader = tar::Archive::new(File::open(&archive)?);
        let mut entries = BTreeMap::new();
        let not_tar = |error: io::Error| invalid(format!("is not a valid tar archive: {error}"));
        for entry in reader.entries_with_seek().map_err(not_tar)? {
            let mut entry = entry.map_err(not_tar)?;
            if entries.len() >= MAX_ENTRIES {
                return Err(invalid(format!("has more than {MAX_ENTRIES} entries")));
            }
            let path = clean(&text(&entry.path_bytes())?)?;
            let (mode, modified_s) =
                (entry.header().mode().unwrap_or(0o644), entry.header().mtime().unwrap_or(0));
            let kind = match entry.header().entry_type() {
                tar::EntryType::Directory => EntryKind::Directory,
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    let (offset, size) = (entry.raw_file_position(), entry.size());
                    EntryKind::File { offset, size, hash: hash(&mut entry, size).map_err(not_tar)? }
                }
                tar::EntryType::Symlink => {
                    let target = entry.link_name_bytes().unwrap_or_default();
                    EntryKind::Link { target: text(&target)? }
                }
                tar::EntryType::Link => {
                    let target = clean(&text(&entry.link_name_bytes().unwrap_or_default())?)?;
                    let linked: Option<&Entry> = entries.get(&target);
                    let linked = linked
                        .ok_or_else(|| invalid(format!("has a hard link to '{target}', which it lacks")))?;
                    linked.kind.clone()
                }
                tar::EntryType::GNUSparse => {
                    return Err(invalid(format!(
                        "has the sparse file '{path}'; create the archive without --sparse"
                    )));
                }
                // Devices, FIFOs and sockets, and headers for the whole archive.
                _ => continue,
            };
            if !path.is_empty() {
                add_parents(&mut entries, &path);
                entries.insert(path, Entry { mode: mode & 0o7777, modified_s, kind });
            }
        }
        Ok(Self { archive, entries: Arc::new(entries) })
    }

    /// The same context, with its archive elsewhere.
    pub fn at(&self, archive: PathBuf) -> Self {
        Self { archive, entries: Arc::clone(&self.entries) }
    }

    /// Identifies the entries and their contents, without their times and their order.
    pub fn digest(&self) -> [u8; 20] {
        let mut hasher = Sha256::new();
        for (path, entry) in self.entries.iter() {
            hasher.update((path.len() as u64).to_le_bytes());
            hasher.update(path);
            hasher.update(entry.mode.to_le_bytes());
            match &entry.kind {
                EntryKind::Directory => hasher.update(b"d"),
                EntryKind::File { hash, .. } => hasher.update([b"f".as_slice(), hash].concat()),
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

    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The entries below a directory, by path. `""` is the root.
    pub fn below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let after = self.entries.range(prefix.clone()..);
        after
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, entry)| (path.as_str(), entry))
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The content of a file. Blocks.
    pub fn open(&self, offset: u64, size: u64) -> io::Result<io::Take<File>> {
        let mut file = File::open(&self.archive)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(file.take(size))
    }

    /// The content of a small text file. Blocks.
    pub fn text(&self, path: &str, most: u64) -> Result<String, BuilderError> {
        match self.get(&clean(path)?).map(|entry| &entry.kind) {
            Some(EntryKind::File { size, .. }) if *size > most => {
                Err(invalid(format!("has '{path}' with {size} bytes; allowed: at most {most}")))
            }
            Some(EntryKind::File { offset, size, .. }) => {
                let mut content = String::new();
                let read = self.open(*offset, *size)?.read_to_string(&mut content);
                read.map_err(|_| invalid(format!("has '{path}', which is not UTF-8")))?;
                Ok(content)
            }
            _ => Err(invalid(format!("has no file '{path}'"))),
        }
    }
}

/// Archives may lack the directories of their files.
fn add_parents(entries: &mut BTreeMap<String, Entry>, path: &str) {
    for (at, _) in path.match_indices('/') {
        let parent = Entry { mode: DIRECTORY_MODE, modified_s: 0, kind: EntryKind::Directory };
        entries.entry(path[..at].to_owned()).or_insert(parent);
    }
}

fn text(bytes: &[u8]) -> Result<String, BuilderError> {
    let name = String::from_utf8_lossy(bytes);
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| invalid(format!("has the name '{}', which is not UTF-8", name.escape_debug())))
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

fn hash(content: &mut impl Read, size: u64) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE).max(1))];
    let mut read = 0;
    loop {
        match content.read(&mut piece)? {
            0 if read < size => return Err(io::ErrorKind::UnexpectedEof.into()),
            0 => return Ok(hasher.finalize().into()),
            n => {
                hasher.update(&piece[..n]);
                read += n as u64;
            }
        }
    }
}

#[cfg(test)]
pub mod tests;
