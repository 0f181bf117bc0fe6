//! The metadata of files, and ranges of their content. Used by all file operations.

use guest_proto::{FileKind, FileStat};

/// A range of bytes. [`FileRange::ALL`] is the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    pub offset: u64,
    /// `offset` counts from the end of the file.
    pub from_end: bool,
    pub length: Option<u64>,
}

impl FileRange {
    pub const ALL: Self = Self { offset: 0, from_end: false, length: None };
}

/// The metadata of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    pub modified_ns: i64,
    pub inode: u64,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
}

pub(crate) fn info(stat: &FileStat<'_>) -> FileInfo {
    FileInfo {
        kind: stat.kind,
        mode: stat.mode & guest_proto::MODE_BITS,
        size: stat.size,
        modified_ns: stat.modified_ns,
        inode: stat.inode,
        target: stat.target.map(<[u8]>::to_vec),
    }
}
