//! Requests and replies of file operations. Append-only: see the crate documentation.
//!
//! The output of a file operation begins with replies, each a little-endian `u32` length and that many bytes of `postcard`; after
//! [`FileReply::Content`] and [`FileReply::Packing`] follow raw bytes up to the end. An upload is sent in pieces,
//! each a length and that many bytes; a piece of length 0 ([`LAST_PIECE`]) ends it. An output without
//! `Eof`, or of an operation with an exit code other than 0, is incomplete.

use serde::{Deserialize, Serialize};

use crate::attributes::{AttributePrefix, Attributes, WatchEventKind, check_list};
use crate::error::{expect_no_rest, malformed};
use crate::{MAX_DATA, MAX_PATH, PREFIX, ProtoError, lists};

/// Most bytes in a reply.
pub const MAX_REPLY: usize = 32 * 1024;
/// Most bytes in the name of an entry.
pub const MAX_NAME: usize = 255;
/// Most entries in one list.
pub const MAX_ENTRIES: u32 = 1000;
/// Most bytes in one piece of an upload.
pub const MAX_PIECE: usize = MAX_DATA;
/// Ends an upload.
pub const LAST_PIECE: [u8; PREFIX] = [0; PREFIX];
/// The allowed bits of a mode.
pub const MODE_BITS: u32 = 0o7777;

/// A file operation. Paths are absolute, and byte strings: the kernel does not require UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest<'a> {
    /// A file's content: `Content` and the bytes of the range. With `from_end`, `offset` counts from the end.
    Read {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        offset: u64,
        from_end: bool,
        length: Option<u64>,
    },
    /// `Stat`. Of the link itself unless `follow` is set.
    Stat {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        follow: bool,
    },
    /// `Entry` for each of at most `limit` entries after the first `offset`, then `Listed`.
    List {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        offset: u64,
        limit: u32,
    },
    /// Replaces a file by the upload, atomically: `Stat`.
    Write {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        mode: Option<u32>,
        parents: bool,
    },
    /// `Stat` of the directory.
    MakeDir {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        mode: Option<u32>,
        recursive: bool,
    },
    /// `Done` with the number of deleted entries.
    Delete {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        recursive: bool,
    },
    /// `Stat` of `to`.
    Move {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        from: &'a [u8],
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        to: &'a [u8],
        overwrite: bool,
    },
    /// A directory as a tar archive: `Packing` and its bytes.
    Pack {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
    },
    /// Unpacks an uploaded tar archive into a directory: `Done` with the number of entries.
    Unpack {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
    },
    /// `Details` of a path, of a link itself, with its attributes of this prefix. Since version 3 and only in `FileAs`, like
    /// the following.
    Describe {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        attributes: Option<AttributePrefix<'a>>,
    },
    /// `Details` of all entries of a directory down to a depth, depth first and by name, then `Listed`.
    ListTree {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        depth: u32,
        attributes: Option<AttributePrefix<'a>>,
    },
    /// Writes the upload into a file, which is created or truncated and then belongs to the user: `Details`. Missing
    /// parents are made. `attributes` replaces those with the same prefix.
    WriteInPlace {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        #[serde(borrow)]
        attributes: Option<Attributes<'a>>,
    },
    /// Makes a directory and its missing parents, which belong to the user: `Details`. Fails with `Exists` if the
    /// directory exists.
    MakeDirs {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
    },
    /// Renames; makes missing parents and replaces what is there: `Details` of `to`.
    Rename {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        from: &'a [u8],
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        to: &'a [u8],
    },
    /// Replaces the attributes of a prefix: `Details`.
    SetAttributes {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        #[serde(borrow)]
        attributes: Attributes<'a>,
    },
    /// Watches a directory: `Watching`, then `Changed`. For each byte of an upload piece one `Synced`, after all events
    /// that happened before the agent read it. Ends with the upload.
    Watch {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        path: &'a [u8],
        recursive: bool,
    },
    /// Creates a user with a group, a home directory and a `sudoers` file, unless the sandbox has the user: `Done`.
    CreateUser { name: &'a str, uid: u32 },
    /// Writes everything that is cached to the disk: `Done`. Since version 4.
    Sync,
}

/// A reply of a file operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply<'a> {
    Stat(#[serde(borrow)] FileStat<'a>),
    Entry {
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        name: &'a [u8],
        stat: FileStat<'a>,
    },
    /// After the last entry: the size of the directory.
    Listed {
        total: u64,
    },
    /// A file's bytes from `offset` on, `length` of them if that is known.
    Content {
        stat: FileStat<'a>,
        offset: u64,
        length: Option<u64>,
    },
    Packing,
    Done(Tally),
    /// Still in progress; sent every few seconds if there is nothing else to send.
    Working,
    /// The operation failed. Last reply.
    Failed {
        kind: FileErrorKind,
        message: &'a str,
    },
    /// Since version 3, like the following.
    Details(#[serde(borrow)] FileDetails<'a>),
    /// The watch is active.
    Watching,
    /// `name` is relative to the watched directory; empty for that directory itself.
    Changed {
        kind: WatchEventKind,
        #[serde(borrow, serialize_with = "lists::as_bytes")]
        name: &'a [u8],
    },
    /// Events were lost because they were not read in time, or because there are too many directories.
    Overflow,
    /// See [`FileRequest::Watch`].
    Synced,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat<'a> {
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    /// Since 1970; negative before.
    pub modified_ns: i64,
    /// The inode number, which changes when the file is replaced.
    pub inode: u64,
    /// The target of a link.
    #[serde(borrow, serialize_with = "lists::as_optional_bytes")]
    pub target: Option<&'a [u8]>,
}

/// What a path names, without following a link there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A device, a FIFO or a socket.
    Other,
}

/// What is at a path, for [`FileReply::Details`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDetails<'a> {
    /// The path as requested, made absolute; of an entry of a directory, that path and the names below it.
    #[serde(borrow, serialize_with = "lists::as_bytes")]
    pub path: &'a [u8],
    /// Of a link itself.
    #[serde(borrow)]
    pub stat: FileStat<'a>,
    pub uid: u32,
    pub gid: u32,
    /// The number in decimal if the sandbox has no such user.
    pub owner: &'a str,
    /// The number in decimal if the sandbox has no such group.
    pub group: &'a str,
    /// Of a link.
    #[serde(borrow)]
    pub link: Option<LinkTarget<'a>>,
    #[serde(borrow, deserialize_with = "lists::attributes")]
    pub attributes: Vec<(&'a str, &'a str)>,
}

/// Where a link leads after all links are followed. A broken link has no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTarget<'a> {
    #[serde(borrow, serialize_with = "lists::as_bytes")]
    pub path: &'a [u8],
    pub kind: FileKind,
    pub mode: u32,
}

/// Numbers of handled entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    /// Devices, FIFOs and sockets, which are not created.
    pub skipped: u64,
    pub bytes: u64,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileErrorKind {
    NotFound,
    Exists,
    /// A directory, device, FIFO or socket where a file is expected.
    NotAFile,
    NotADirectory,
    NotEmpty,
    Denied,
    DiskFull,
    /// The range begins after the end.
    Range,
    /// The path or the archive is invalid.
    Invalid,
    /// The upload ended early.
    Interrupted,
    /// Anything else; see the message.
    Failed,
    /// The sandbox has no such user. Since version 3.
    UserMissing,
}

/// Where the first reply in `buf` ends, prefix included. `None`: more bytes are needed.
///
/// # Errors
/// [`ProtoError::TooLong`] as soon as the prefix has arrived.
pub fn split_reply(buf: &[u8]) -> Result<Option<usize>, ProtoError> {
    let Some(prefix) = buf.first_chunk::<PREFIX>() else { return Ok(None) };
    let len = u32::from_le_bytes(*prefix) as usize;
    if len > MAX_REPLY {
        return Err(ProtoError::TooLong { len, max: MAX_REPLY });
    }
    Ok((buf.len() >= PREFIX + len).then_some(PREFIX + len))
}

/// Reads the body of a reply.
///
/// # Errors
/// See [`ProtoError`].
pub fn decode_reply(body: &[u8]) -> Result<FileReply<'_>, ProtoError> {
    let (reply, rest) = postcard::take_from_bytes(body).map_err(|error| malformed(&error))?;
    expect_no_rest(rest)?;
    check(&reply)?;
    Ok(reply)
}

/// Appends a reply to `out`.
///
/// # Errors
/// An error that the other side would report.
pub fn encode_reply(reply: &FileReply<'_>, out: &mut Vec<u8>) -> Result<(), ProtoError> {
    check(reply)?;
    let body = postcard::to_allocvec(reply).map_err(|error| malformed(&error))?;
    if body.len() > MAX_REPLY {
        return Err(ProtoError::TooLong { len: body.len(), max: MAX_REPLY });
    }
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

/// The header of a piece of at most [`MAX_PIECE`] bytes.
pub fn piece_header(bytes: usize) -> [u8; PREFIX] {
    debug_assert!((1..=MAX_PIECE).contains(&bytes), "a piece of {bytes} bytes");
    (bytes as u32).to_le_bytes()
}

fn check(reply: &FileReply<'_>) -> Result<(), ProtoError> {
    match reply {
        FileReply::Stat(stat) | FileReply::Content { stat, .. } => target(stat),
        FileReply::Entry { name, stat } => {
            let odd = name.is_empty() || name.len() > MAX_NAME || name.contains(&0) || name.contains(&b'/');
            if odd || *name == b"." || *name == b".." {
                return Err(ProtoError::Invalid {
                    field: "a name",
                    reason: "is not a valid name of an entry",
                });
            }
            target(stat)
        }
        FileReply::Failed { message, .. } if message.len() > crate::MAX_MESSAGE => {
            Err(ProtoError::TooMany { field: "a message", got: message.len(), max: crate::MAX_MESSAGE })
        }
        FileReply::Details(details) => {
            target(&details.stat)?;
            let longest = details.link.map_or(0, |link| link.path.len()).max(details.path.len());
            at_most("a path", longest, MAX_PATH)?;
            at_most("the name of a user", details.owner.len().max(details.group.len()), crate::MAX_USER)?;
            check_list(&details.attributes)
        }
        FileReply::Changed { name, .. } => at_most("a name", name.len(), MAX_PATH),
        _ => Ok(()),
    }
}

fn at_most(field: &'static str, got: usize, max: usize) -> Result<(), ProtoError> {
    if got > max { Err(ProtoError::TooMany { field, got, max }) } else { Ok(()) }
}

fn target(stat: &FileStat<'_>) -> Result<(), ProtoError> {
    let got = stat.target.map_or(0, <[u8]>::len);
    if got > MAX_PATH {
        return Err(ProtoError::TooMany { field: "the target of a link", got, max: MAX_PATH });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
