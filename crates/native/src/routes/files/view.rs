//! Converts the agent's file responses, which are untrusted, to types of the API.

use api::{FileEntry, FileType, Timestamp};
use engine::{FileInfo, FileKind};

const NANOSECONDS_A_MS: i64 = 1_000_000;
/// The largest integer that every JSON client can hold.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The entry at an absolute path.
pub fn entry(path: &[u8], info: &FileInfo) -> FileEntry {
    let normalized = normalized(path);
    let name = normalized.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = if name.is_empty() { b"/" } else { name };
    FileEntry {
        name: text(name),
        path: text(&normalized),
        is_directory: info.kind == FileKind::Directory,
        size_bytes: info.size.min(INTEGER_MAX),
        modified_at: modified(info),
        kind: match info.kind {
            FileKind::File => FileType::File,
            FileKind::Directory => FileType::Directory,
            FileKind::Link => FileType::Symlink,
            FileKind::Other => FileType::Other,
        },
        mode: format!("{:04o}", info.mode & 0o7777),
        link_target: info.target.as_deref().map(text),
        raw_path: std::str::from_utf8(&normalized).is_err().then(|| encoded(&normalized)),
    }
}

/// The path of an entry in a directory.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, if dir.ends_with(b"/") { b"" } else { b"/" }, name].concat()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn modified(info: &FileInfo) -> Timestamp {
    Timestamp(u64::try_from(info.modified_ns / NANOSECONDS_A_MS).unwrap_or(0))
}

/// The entity tag. It changes with the content and when another file takes its place.
pub fn etag(info: &FileInfo) -> String {
    format!("\"{:x}-{:x}-{:x}\"", info.inode, info.size, info.modified_ns)
}

/// Removes duplicate slashes and `.`. `..` stays, because its meaning depends on links.
pub fn normalized(path: &[u8]) -> Vec<u8> {
    let mut normalized = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        normalized.push(b'/');
        normalized.extend_from_slice(part);
    }
    if normalized.is_empty() { b"/".to_vec() } else { normalized }
}

pub fn encoded(path: &[u8]) -> String {
    path.iter()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                char::from(*byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_shows_where_it_is() {
        let info = FileInfo {
            kind: FileKind::Link,
            mode: 0o100_0777,
            size: u64::MAX,
            modified_ns: -5,
            inode: 255,
            target: Some(b"t\xff".to_vec()),
        };
        let view = entry(b"/a//./b\xffc/", &info);
        assert_eq!((view.name.as_str(), view.path.as_str()), ("b\u{fffd}c", "/a/b\u{fffd}c"));
        assert_eq!(view.raw_path.as_deref(), Some("/a/b%FFc"));
        assert_eq!(
            (view.mode.as_str(), view.size_bytes, view.modified_at),
            ("0777", INTEGER_MAX, Timestamp(0))
        );
        assert_eq!(view.link_target.as_deref(), Some("t\u{fffd}"));
        let root = entry(b"/", &info);
        assert_eq!((root.name.as_str(), root.path.as_str(), root.raw_path), ("/", "/", None));
        assert_eq!(entry(&below(b"/", b"x"), &info).path, "/x");
        assert_eq!(entry(b"/a/../b", &info).path, "/a/../b");
        assert!(etag(&info).starts_with("\"ff-"));
    }
}
