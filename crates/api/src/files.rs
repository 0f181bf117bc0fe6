//! What the service answers about files (section 2.10, and additions of ours).

use serde::{Deserialize, Serialize};

use crate::{Pagination, Timestamp};

/// A file, a directory or whatever else is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// The last part of the path. What is not UTF-8 in it is shown as U+FFFD.
    #[cfg_attr(feature = "openapi", schema(example = "notes.txt"))]
    pub name: String,
    /// Where it is, absolute. What is not UTF-8 in it is shown as U+FFFD.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/notes.txt"))]
    pub path: String,
    pub is_directory: bool,
    pub size_bytes: u64,
    pub modified_at: Timestamp,
    pub kind: FileType,
    /// As `chmod` writes it.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-7]{4}$", example = "0644"))]
    pub mode: String,
    /// Where a link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub link_target: Option<String>,
    /// The path percent-encoded, as it goes into a query. There where it is not UTF-8 alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub raw_path: Option<String>,
}

/// What something at a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum FileType {
    File,
    Directory,
    Symlink,
    /// A device, a fifo or a socket.
    Other,
}

/// A page of a directory. By name where it has at most 10,000 entries; in its own order where it has more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    pub data: Vec<FileEntry>,
    pub pagination: Pagination,
}

/// Whether something is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileExists {
    pub exists: bool,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileDeleted {
    pub path: String,
    /// Files, directories and links, itself among them.
    pub deleted: u64,
}

/// What came out of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unpacked {
    pub path: String,
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    /// Devices, fifos and sockets, which are not made.
    pub skipped: u64,
    /// In the files.
    pub bytes: u64,
}
