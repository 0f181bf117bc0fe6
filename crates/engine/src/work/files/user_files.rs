//! File operations on behalf of a user: requests, and the details of paths. `SandboxHandle::user_file_op` starts them.

use guest_proto::{
    Attributes, FileDetails, FileErrorKind, FileKind, FileRequest, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES,
    MAX_PATH,
};

use crate::error::FileError;
use crate::work::files::info::{FileInfo, FileRange, info};

/// A file operation on behalf of a user. Relative paths, `~` and `~/…` begin at the user's home; an empty path is the home. The
/// user owns what the operation creates. Permissions are those of root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserFileOp {
    /// `Content`, then bytes.
    Read { path: Vec<u8>, range: FileRange },
    /// `Details` of a path, of a link itself, with the attributes `user.PREFIX…`.
    Describe { path: Vec<u8>, prefix: Option<String> },
    /// `Details` of all entries below a directory, at most 100,000, depth first and by name, then `Listed`. A depth of 1 is the
    /// directory alone.
    ListTree { path: Vec<u8>, depth: u32, prefix: Option<String> },
    /// Takes an upload, and answers with `Details`. Creates or truncates the file, and missing parents. The inode stays.
    WriteInPlace { path: Vec<u8>, attributes: Option<FileAttributes> },
    /// `Details`. Makes missing parents; fails with `Exists` if the directory exists.
    MakeDirs { path: Vec<u8> },
    /// `Details` of the new path. Makes missing parents, and replaces what is there.
    Rename { from: Vec<u8>, to: Vec<u8> },
    /// `Done`. Fails with `NotFound` if there is nothing.
    Remove { path: Vec<u8> },
    /// `Details`. Replaces the attributes of a prefix.
    SetAttributes { path: Vec<u8>, attributes: FileAttributes },
    /// Takes a tar archive as its upload, and answers with `Done`. The user owns what it creates.
    Unpack { path: Vec<u8> },
    /// See [`crate::Watch`].
    Watch { path: Vec<u8>, recursive: bool },
}

/// Extended attributes `user.PREFIX…` of a file. They replace all that the file has with this prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// Such as `app.` for attributes `user.app.NAME`.
    pub prefix: String,
    pub pairs: Vec<(String, String)>,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDetails {
    /// The path as requested, made absolute; links in it are not resolved.
    pub path: Vec<u8>,
    /// Of a link itself.
    pub info: FileInfo,
    pub uid: u32,
    pub gid: u32,
    /// Its number if the sandbox has no such user.
    pub owner: String,
    /// Its number if the sandbox has no such group.
    pub group: String,
    /// Where a link leads after all links; `None` if it is broken.
    pub link: Option<ResolvedLink>,
    /// Without the prefix, by name.
    pub attributes: Vec<(String, String)>,
}

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedLink {
    pub path: Vec<u8>,
    pub kind: FileKind,
    pub mode: u32,
}

impl PathDetails {
    pub(crate) fn from_wire(details: &FileDetails<'_>) -> Self {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            path: details.path.to_vec(),
            info: info(&details.stat),
            uid: details.uid,
            gid: details.gid,
            owner: details.owner.to_owned(),
            group: details.group.to_owned(),
            link: details.link.map(|link| ResolvedLink {
                path: link.path.to_vec(),
                kind: link.kind,
                mode: link.mode & guest_proto::MODE_BITS,
            }),
            attributes: details.attributes.iter().map(pair).collect(),
        }
    }

    /// The last component of the path.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or(b"/")
    }

    /// The type and the permissions as text, such as `drwxr-xr-x`, `-rw-r--r--` or `Lrwxrwxrwx`: letters for the type and the
    /// special bits, `-` if there is none, then nine for the permissions.
    pub fn permissions(&self) -> String {
        let FileInfo { kind, mode, .. } = self.info;
        let special = [
            (kind == FileKind::Directory, 'd'),
            (kind == FileKind::Link, 'L'),
            (kind == FileKind::Other, '?'),
            (mode & 0o4000 != 0, 'u'),
            (mode & 0o2000 != 0, 'g'),
            (mode & 0o1000 != 0, 't'),
        ];
        let mut text: String =
            special.into_iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect();
        if text.is_empty() {
            text.push('-');
        }
        let bits = "rwxrwxrwx".chars().enumerate();
        text.extend(bits.map(|(at, letter)| if mode & (0o400 >> at) != 0 { letter } else { '-' }));
        text
    }
}

impl UserFileOp {
    /// Whether it takes space on the disk.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Self::WriteInPlace { .. }
                | Self::MakeDirs { .. }
                | Self::SetAttributes { .. }
                | Self::Unpack { .. }
        )
    }

    pub(crate) fn check(&self, user: &str) -> Result<(), FileError> {
        let invalid = |message: &str| {
            let message = message.to_owned();
            Err(FileError { kind: FileErrorKind::Invalid, message })
        };
        if user.is_empty() || user.len() > guest_proto::MAX_USER || user.contains('\0') {
            return invalid("the name of the user is empty, has more than 256 bytes or a NUL byte");
        }
        if self.paths().iter().any(|path| path.len() > MAX_PATH || path.contains(&0)) {
            return invalid("a path has more than 4095 bytes or a NUL byte");
        }
        let (prefix, pairs) = match self {
            Self::WriteInPlace { attributes: Some(attributes), .. }
            | Self::SetAttributes { attributes, .. } => {
                (Some(&attributes.prefix), attributes.pairs.as_slice())
            }
            Self::Describe { prefix, .. } | Self::ListTree { prefix, .. } => (prefix.as_ref(), &[][..]),
            _ => (None, &[][..]),
        };
        let is_name = |name: &str| name.len() <= guest_proto::MAX_NAME && !name.contains('\0');
        let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let are_names = pairs.iter().all(|(name, _)| !name.is_empty() && is_name(name));
        if pairs.len() > MAX_ATTRIBUTES
            || bytes > MAX_ATTRIBUTE_BYTES
            || !are_names
            || !prefix.is_none_or(|p| is_name(p))
        {
            return invalid(
                "there are more than 128 attributes or more than 8 KiB of them, or one has an invalid name",
            );
        }
        Ok(())
    }

    fn paths(&self) -> Vec<&[u8]> {
        match self {
            Self::Read { path, .. }
            | Self::Describe { path, .. }
            | Self::ListTree { path, .. }
            | Self::WriteInPlace { path, .. }
            | Self::MakeDirs { path }
            | Self::Remove { path }
            | Self::Unpack { path }
            | Self::SetAttributes { path, .. }
            | Self::Watch { path, .. } => vec![path],
            Self::Rename { from, to } => vec![from, to],
        }
    }

    pub(crate) fn request(&self) -> FileRequest<'_> {
        match self {
            Self::Read { path, range: FileRange { offset, from_end, length } } => {
                FileRequest::Read { path, offset: *offset, from_end: *from_end, length: *length }
            }
            Self::Describe { path, prefix } => FileRequest::Describe { path, attributes: prefix.as_deref() },
            Self::ListTree { path, depth, prefix } => {
                FileRequest::ListTree { path, depth: (*depth).max(1), attributes: prefix.as_deref() }
            }
            Self::WriteInPlace { path, attributes } => FileRequest::WriteInPlace {
                path,
                attributes: attributes.as_ref().map(FileAttributes::to_wire),
            },
            Self::MakeDirs { path } => FileRequest::MakeDirs { path },
            Self::Rename { from, to } => FileRequest::Rename { from, to },
            Self::Unpack { path } => FileRequest::Unpack { path },
            Self::Remove { path } => FileRequest::Delete { path, recursive: true },
            Self::SetAttributes { path, attributes } => {
                FileRequest::SetAttributes { path, attributes: attributes.to_wire() }
            }
            Self::Watch { path, recursive } => FileRequest::Watch { path, recursive: *recursive },
        }
    }
}

impl FileAttributes {
    fn to_wire(&self) -> Attributes<'_> {
        let pairs = self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Attributes { prefix: &self.prefix, pairs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(kind: FileKind, mode: u32) -> PathDetails {
        PathDetails {
            path: b"/a/b".to_vec(),
            info: FileInfo { kind, mode, size: 0, modified_ns: 0, inode: 1, target: None },
            uid: 0,
            gid: 0,
            owner: "root".to_owned(),
            group: "root".to_owned(),
            link: None,
            attributes: Vec::new(),
        }
    }

    #[test]
    fn permissions_are_shown_as_text() {
        for (kind, mode, expected) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o755, "drwxr-xr-x"),
            (FileKind::Directory, 0o1777, "dtrwxrwxrwx"),
            (FileKind::Link, 0o777, "Lrwxrwxrwx"),
            (FileKind::File, 0o4755, "urwxr-xr-x"),
            (FileKind::File, 0o000, "----------"),
        ] {
            assert_eq!(details(kind, mode).permissions(), expected);
        }
    }

    #[test]
    fn the_name_is_the_last_component() {
        for (path, name) in [("/a/b", "b"), ("/a/", "a"), ("/", "/")] {
            let details = PathDetails { path: path.into(), ..details(FileKind::File, 0) };
            assert_eq!(details.name(), name.as_bytes());
        }
    }

    #[test]
    fn oversized_attributes_are_refused() {
        let of = |pairs| UserFileOp::SetAttributes {
            path: b"a".to_vec(),
            attributes: FileAttributes { prefix: "p.".to_owned(), pairs },
        };
        assert!(of(vec![("a".to_owned(), "x".repeat(8191))]).check("user").is_ok());
        assert!(of(vec![("a".to_owned(), "x".repeat(8192))]).check("user").is_err());
        assert!(of(vec![(String::new(), String::new())]).check("user").is_err());
        assert!(of(Vec::new()).check("").is_err());
    }
}
