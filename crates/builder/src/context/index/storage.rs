//! The memory of an index: records of entries, and their names. Both grow in pieces, because a growing vector exists twice while it is
//! copied.

use crate::error::BuilderError;

/// Most entries of a context, with the directories of its files.
pub const MAX_ENTRIES: usize = 200_000;
/// Most bytes in the names of all entries and in the targets of links.
pub const MAX_NAME_BYTES: usize = 10 << 20;
/// Most bytes in a path.
pub const MAX_PATH: usize = 4096;
const TEXT_PIECE: usize = 256 << 10;
const RECORD_PIECE: usize = 4096;
const NO_HASH: Hash = [0; 32];

/// Of the content of a file. Zero for other entries.
pub type Hash = [u8; 32];

/// The kind of a [`EntryRecord`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    Directory,
    File,
    /// `offset` and `size` are the position and the length of the target.
    Link,
    /// The same, until the index is complete.
    HardLink,
}

/// An entry, whose name is among the texts.
#[derive(Debug, Clone, Copy)]
pub struct EntryRecord {
    pub offset: u64,
    pub size: u64,
    pub name: u32,
    pub modified_s: u32,
    pub name_bytes: u16,
    pub mode: u16,
    pub kind: RecordKind,
}

/// Texts of at most [`MAX_PATH`] bytes, each within one piece.
#[derive(Debug, Default)]
pub struct Texts {
    pieces: Vec<String>,
    bytes: usize,
}

impl Texts {
    /// Returns the position of the text.
    pub fn add(&mut self, text: &str) -> Result<u32, BuilderError> {
        self.bytes += text.len();
        if self.bytes > MAX_NAME_BYTES {
            return Err(invalid(format!(
                "has names with more than {MAX_NAME_BYTES} bytes together; leave out directories by a .dockerignore"
            )));
        }
        match self.pieces.last() {
            Some(last) if last.len() + text.len() <= TEXT_PIECE => {}
            _ => self.pieces.push(String::with_capacity(TEXT_PIECE)),
        }
        let at = self.pieces.len() - 1;
        let last = &mut self.pieces[at];
        let position = at * TEXT_PIECE + last.len();
        last.push_str(text);
        // All pieces together have fewer than 2^24 bytes.
        Ok(u32::try_from(position).unwrap_or(u32::MAX))
    }

    /// The text that was added at this position. Panics if none was.
    pub fn get(&self, position: u32, bytes: usize) -> &str {
        let position = position as usize;
        let start = position % TEXT_PIECE;
        &self.pieces[position / TEXT_PIECE][start..start + bytes]
    }
}

/// The records in the order of the archive, and the hashes of their contents, which are needed for a shorter time.
#[derive(Debug, Default)]
pub struct Records {
    pieces: Vec<Vec<EntryRecord>>,
    hashes: Vec<Vec<Hash>>,
    pub len: usize,
}

impl Records {
    /// Returns the position of the record.
    pub fn add(&mut self, record: EntryRecord, hash: Hash) -> Result<u32, BuilderError> {
        if self.len >= MAX_ENTRIES {
            return Err(invalid(format!(
                "has more than {MAX_ENTRIES} entries, with the directories of its files"
            )));
        }
        if self.len.is_multiple_of(RECORD_PIECE) {
            self.pieces.push(Vec::with_capacity(RECORD_PIECE));
            self.hashes.push(Vec::with_capacity(RECORD_PIECE));
        }
        let at = self.pieces.len() - 1;
        self.pieces[at].push(record);
        self.hashes[at].push(hash);
        self.len += 1;
        // Fewer than `MAX_ENTRIES`.
        Ok(u32::try_from(self.len - 1).unwrap_or(u32::MAX))
    }

    /// The record with this number. Panics if there is none.
    pub fn get(&self, at: u32) -> &EntryRecord {
        let at = at as usize;
        &self.pieces[at / RECORD_PIECE][at % RECORD_PIECE]
    }

    /// Zero after [`Self::forget_hashes`].
    pub fn hash(&self, at: u32) -> &Hash {
        let at = at as usize;
        self.hashes.get(at / RECORD_PIECE).map_or(&NO_HASH, |piece| &piece[at % RECORD_PIECE])
    }

    /// Replaces a record. Before [`Self::forget_hashes`].
    pub fn set(&mut self, at: u32, record: EntryRecord, hash: Hash) {
        let (piece, at) = (at as usize / RECORD_PIECE, at as usize % RECORD_PIECE);
        self.pieces[piece][at] = record;
        self.hashes[piece][at] = hash;
    }

    /// Frees the hashes, which are needed for the keys of steps only.
    pub fn forget_hashes(&mut self) {
        self.hashes = Vec::new();
    }
}

/// Completes "the build context …".
pub fn invalid(reason: impl Into<String>) -> BuilderError {
    BuilderError::Context(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_their_positions_in_any_piece() {
        let mut texts = Texts::default();
        let all: Vec<String> =
            (0..1000).map(|number| "ä".repeat(number % 600) + &number.to_string()).collect();
        let positions: Vec<u32> = all.iter().map(|text| texts.add(text).unwrap()).collect();
        assert!(texts.pieces.len() > 1 && texts.pieces.iter().all(|piece| piece.len() <= TEXT_PIECE));
        for (text, position) in all.iter().zip(positions) {
            assert_eq!(texts.get(position, text.len()), text);
        }
    }

    #[test]
    fn names_have_a_bound_together() {
        let mut texts = Texts::default();
        let text = "x".repeat(MAX_PATH);
        for _ in 0..MAX_NAME_BYTES / MAX_PATH {
            texts.add(&text).unwrap();
        }
        assert_eq!(texts.bytes, MAX_NAME_BYTES);
        let error = texts.add("x").unwrap_err().to_string();
        assert!(
            error.contains("more than 10485760 bytes together") && error.contains(".dockerignore"),
            "{error}"
        );
    }

    fn record(offset: u64) -> EntryRecord {
        let (size, name, modified_s, name_bytes, mode) = (1, 2, 3, 4, 0o644);
        EntryRecord { offset, size, name, modified_s, name_bytes, mode, kind: RecordKind::File }
    }

    #[test]
    fn records_keep_their_numbers_and_hashes_across_pieces() {
        let mut records = Records::default();
        let count = u32::try_from(RECORD_PIECE).unwrap() + 2;
        for number in 0..count {
            let hash = [u8::try_from(number % 251).unwrap() + 1; 32];
            assert_eq!(records.add(record(number.into()), hash).unwrap(), number);
        }
        for number in [0, count - 3, count - 2, count - 1] {
            assert_eq!(records.get(number).offset, u64::from(number));
            assert_eq!(records.hash(number)[0], u8::try_from(number % 251).unwrap() + 1);
        }
        records.set(count - 1, record(7), [9; 32]);
        assert_eq!((records.get(count - 1).offset, *records.hash(count - 1)), (7, [9; 32]));
        records.forget_hashes();
        assert_eq!((*records.hash(0), *records.hash(count - 1)), (NO_HASH, NO_HASH));
        assert_eq!((records.get(0).offset, records.len), (0, count as usize));
    }

    #[test]
    fn entries_have_a_bound() {
        let mut records = Records::default();
        for number in 0..MAX_ENTRIES {
            records.add(record(number as u64), NO_HASH).unwrap();
        }
        let error = records.add(record(0), NO_HASH).unwrap_err().to_string();
        assert!(error.contains("has more than 200000 entries"), "{error}");
    }
}
