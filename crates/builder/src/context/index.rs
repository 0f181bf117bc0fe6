//! The entries of a build context in memory: names, and where their contents are in the archive.
//!
//! An archive of a few kilobytes can have many entries with long names, so the index is compact and bounded: [`MAX_ENTRIES`] records of
//! 32 bytes, as many hashes of 32 bytes until a build is planned, and [`storage::MAX_NAME_BYTES`] of text. Directories that an archive lacks are records whose names are prefixes of other names.

mod storage;

use std::ops::Range;

use crate::error::BuilderError;

use storage::{EntryRecord, Hash, RecordKind, Records, Texts, invalid};

pub use storage::{MAX_ENTRIES, MAX_PATH};

const DIRECTORY_MODE: u16 = 0o755;
const MODE_BITS: u32 = 0o7777;

/// A file, a directory or a link of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextEntry<'a> {
    pub mode: u32,
    pub modified_s: u64,
    pub kind: EntryKind<'a>,
}

/// What an entry is, with its content or where that is in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind<'a> {
    Directory,
    File { offset: u64, size: u64, hash: &'a Hash },
    Link { target: &'a str },
}

/// The index, sorted by paths. They have neither `./` nor a slash at the end.
#[derive(Debug, Default)]
pub struct Index {
    texts: Texts,
    records: Records,
    /// Positions of records by their paths.
    order: Vec<u32>,
}

/// What an archive says of an entry.
#[derive(Debug, Clone, Copy)]
pub enum NewEntry<'a> {
    Directory,
    File {
        offset: u64,
        size: u64,
        hash: Hash,
    },
    Link {
        target: &'a str,
    },
    /// Another name of an entry before it.
    HardLink {
        target: &'a str,
    },
}

impl Index {
    /// Adds an entry of the archive. A later one with the same path replaces it. Only [`Self::complete`] makes entries visible.
    pub fn add(
        &mut self,
        path: &str,
        mode: u32,
        modified_s: u64,
        new: NewEntry<'_>,
    ) -> Result<(), BuilderError> {
        let name = self.texts.add(path)?;
        let (kind, offset, size, hash) = match new {
            NewEntry::Directory => (RecordKind::Directory, 0, 0, Hash::default()),
            NewEntry::File { offset, size, hash } => (RecordKind::File, offset, size, hash),
            NewEntry::Link { target } => {
                (RecordKind::Link, self.texts.add(target)?.into(), target.len() as u64, Hash::default())
            }
            NewEntry::HardLink { target } => {
                (RecordKind::HardLink, self.texts.add(target)?.into(), target.len() as u64, Hash::default())
            }
        };
        let record = EntryRecord {
            offset,
            size,
            name,
            modified_s: u32::try_from(modified_s).unwrap_or(u32::MAX),
            // A path has at most `MAX_PATH` bytes.
            name_bytes: u16::try_from(path.len()).unwrap_or(u16::MAX),
            mode: (mode & MODE_BITS) as u16,
            kind,
        };
        self.records.add(record, hash)?;
        Ok(())
    }

    /// Sorts the entries, resolves hard links, and adds the directories that the archive lacks.
    pub fn complete(&mut self) -> Result<(), BuilderError> {
        let len = u32::try_from(self.records.len).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..len).collect();
        self.sort(&mut order);
        self.resolve_hard_links(&order)?;
        order.dedup_by(|later, kept| {
            let is_same = self.name(*later) == self.name(*kept);
            if is_same {
                *kept = *later;
            }
            is_same
        });
        self.order = order;
        let added = self.add_parents()?;
        if added > 0 {
            let end = u32::try_from(self.records.len).unwrap_or(u32::MAX);
            let mut order = std::mem::take(&mut self.order);
            order.reserve_exact(added as usize);
            order.extend(end - added..end);
            self.sort(&mut order);
            self.order = order;
        }
        Ok(())
    }

    /// By path; entries with the same path as in the archive.
    fn sort(&self, order: &mut [u32]) {
        order.sort_unstable_by(|one, two| self.name(*one).cmp(self.name(*two)).then(one.cmp(two)));
    }

    /// A hard link is the latest entry with the path of its target that precedes it.
    fn resolve_hard_links(&mut self, order: &[u32]) -> Result<(), BuilderError> {
        let end = u32::try_from(self.records.len).unwrap_or(u32::MAX);
        for at in 0..end {
            let link = *self.records.get(at);
            if link.kind != RecordKind::HardLink {
                continue;
            }
            let target = self.text(link.offset, link.size);
            let behind = order.partition_point(|other| (self.name(*other), *other) < (target, at));
            let found = behind.checked_sub(1).map(|before| order[before]);
            let Some(found) = found.filter(|found| self.name(*found) == target) else {
                return Err(invalid(format!("has a hard link to '{target}', which it lacks")));
            };
            let (EntryRecord { kind, offset, size, .. }, hash) =
                (*self.records.get(found), *self.records.hash(found));
            self.records.set(at, EntryRecord { kind, offset, size, ..link }, hash);
        }
        Ok(())
    }

    /// Adds the directories that have no entry. Returns their number.
    fn add_parents(&mut self) -> Result<u32, BuilderError> {
        let (mut added, mut before) = (0, None::<u32>);
        for rank in 0..self.order.len() {
            let at = self.order[rank];
            let name = self.name(at);
            // All paths below a directory follow each other: the one before has had the directories that both share.
            let shared = before.map_or(0, |before| shared_directories(self.name(before), name));
            let ends: Vec<usize> =
                name.match_indices('/').map(|(end, _)| end).filter(|end| *end > shared).collect();
            for end in ends {
                let record = *self.records.get(at);
                if self.find(&self.name(at)[..end]).is_none() {
                    let directory = EntryRecord {
                        name_bytes: u16::try_from(end).unwrap_or(u16::MAX),
                        mode: DIRECTORY_MODE,
                        modified_s: 0,
                        kind: RecordKind::Directory,
                        ..record
                    };
                    self.records.add(directory, Hash::default())?;
                    added += 1;
                }
            }
            before = Some(at);
        }
        Ok(added)
    }

    /// From now on all hashes are zero.
    pub fn forget_hashes(&mut self) {
        self.records.forget_hashes();
    }

    fn name(&self, at: u32) -> &str {
        let record = self.records.get(at);
        self.texts.get(record.name, record.name_bytes.into())
    }

    fn text(&self, position: u64, bytes: u64) -> &str {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        self.texts.get(position, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The path of the entry with a rank in the order of paths.
    pub fn path(&self, rank: u32) -> &str {
        self.name(self.order[rank as usize])
    }

    /// The entry with a rank in the order of paths.
    pub fn entry(&self, rank: u32) -> ContextEntry<'_> {
        let at = self.order[rank as usize];
        let EntryRecord { offset, size, modified_s, mode, kind, .. } = self.records.get(at);
        let kind = match kind {
            RecordKind::Directory => EntryKind::Directory,
            RecordKind::File => EntryKind::File { offset: *offset, size: *size, hash: self.records.hash(at) },
            RecordKind::Link | RecordKind::HardLink => EntryKind::Link { target: self.text(*offset, *size) },
        };
        ContextEntry { mode: (*mode).into(), modified_s: (*modified_s).into(), kind }
    }

    /// The rank of the entry at a path.
    pub fn find(&self, path: &str) -> Option<u32> {
        let rank = self.order.binary_search_by(|at| self.name(*at).cmp(path)).ok()?;
        u32::try_from(rank).ok()
    }

    /// The ranks of the entries below a directory. `""` is the root.
    pub fn below(&self, directory: &str) -> Range<u32> {
        let rank = |rank: usize| u32::try_from(rank).unwrap_or(u32::MAX);
        if directory.is_empty() {
            return 0..rank(self.order.len());
        }
        // `/` and the character that follows it.
        let start = format!("{directory}/");
        let end = format!("{directory}0");
        let first = self.order.partition_point(|at| self.name(*at) < start.as_str());
        let last = self.order.partition_point(|at| self.name(*at) < end.as_str());
        rank(first)..rank(last)
    }
}

/// The length of the longest directory that both paths are in, or that the first one is.
fn shared_directories(before: &str, path: &str) -> usize {
    let same = before.bytes().zip(path.bytes()).take_while(|(one, two)| one == two).count();
    if same == before.len() && path.as_bytes().get(same) == Some(&b'/') {
        return same;
    }
    path.as_bytes()[..same].iter().rposition(|byte| *byte == b'/').unwrap_or(0)
}

#[cfg(test)]
mod tests;
