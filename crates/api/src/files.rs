//! Responses about files (docs/api.md).

use serde::{Deserialize, Serialize};

use crate::{Pagination, Timestamp};

/// A file, directory, symbolic link or other entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// The last component of the path. Bytes that are not UTF-8 are shown as U+FFFD.
    #[cfg_attr(feature = "openapi", schema(example = "notes.txt"))]
    pub name: String,
    /// The absolute path. Bytes that are not UTF-8 are shown as U+FFFD.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/notes.txt"))]
    pub path: String,
    pub is_directory: bool,
    pub size_bytes: u64,
    pub modified_at: Timestamp,
    pub kind: FileType,
    /// Permission bits in octal, such as `0644`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-7]{4}$", example = "0644"))]
    pub mode: String,
    /// Target of a symbolic link. Absent for other entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub link_target: Option<String>,
    /// The path, percent-encoded for the query parameter `path`. Present only if the path is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub raw_path: Option<String>,
}

/// Type of a directory entry. `other` is a device, a FIFO or a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum FileType {
    File,
    Directory,
    Symlink,
    /// A device, a FIFO or a socket.
    Other,
}

/// A page of a directory's entries, sorted by name if there are at most 10,000, otherwise in the order of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    pub data: Vec<FileEntry>,
    pub pagination: Pagination,
}

/// Whether a path exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileExists {
    pub exists: bool,
}

/// A change in a watched directory: the data of an event `change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    pub kind: FileChangeKind,
    /// The absolute path. Bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    /// The path, percent-encoded for the query parameter `path`. Present only if the path is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_path: Option<String>,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileChangeKind {
    /// It was created, or moved to this path.
    Create,
    /// Its content changed.
    Write,
    /// It was deleted.
    Remove,
    /// It was moved away from this path.
    Rename,
    /// Its owner, permissions, times or extended attributes changed.
    Chmod,
}

/// The result of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileDeleted {
    pub path: String,
    /// Number of files, directories and links deleted, including the entry itself.
    pub deleted: u64,
}

/// The result of unpacking an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unpacked {
    pub path: String,
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    /// Number of devices, FIFOs and sockets, which are skipped.
    pub skipped: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
}
