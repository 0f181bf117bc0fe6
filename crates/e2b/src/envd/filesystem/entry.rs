//! The JSON of an entry: what is at a path.

use engine::{FileInfo, FileKind, PathDetails};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Of the extended attributes that hold metadata, after `user.`.
pub const METADATA_PREFIX: &str = "e2b.";

/// The permission bits that clients get.
const PERMISSION_BITS: u32 = 0o777;

/// The entry. Type and mode of a link are those of its target; permissions and size are its own.
pub fn to_json(details: &PathDetails) -> Value {
    let FileInfo { kind, mode, size, modified_ns, .. } = details.info;
    let (kind, mode) = match (&details.link, kind) {
        (Some(link), _) => (Some(link.kind), link.mode),
        // A broken link has no type.
        (None, FileKind::Link) => (None, mode),
        (None, kind) => (Some(kind), mode),
    };
    let kind = match kind {
        Some(FileKind::File) => "FILE_TYPE_FILE",
        Some(FileKind::Directory) => "FILE_TYPE_DIRECTORY",
        Some(FileKind::Link) => "FILE_TYPE_SYMLINK",
        Some(FileKind::Other) | None => "FILE_TYPE_UNSPECIFIED",
    };
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    put("name", text(details.name()).into());
    put("type", kind.into());
    put("path", text(&details.path).into());
    put("size", size.to_string().into());
    put("mode", (mode & PERMISSION_BITS).into());
    put("permissions", details.permissions().into());
    put("owner", details.owner.as_str().into());
    put("group", details.group.as_str().into());
    if let Some(modified) = rfc3339(modified_ns) {
        put("modifiedTime", modified.into());
    }
    if details.info.kind == FileKind::Link {
        put("isSymlink", true.into());
        let target = details.link.as_ref().map(|link| &link.path).or(details.info.target.as_ref());
        if let Some(target) = target {
            put("symlinkTarget", text(target).into());
        }
    }
    if let Some(metadata) = metadata(details) {
        put("metadata", metadata);
    }
    Value::Object(entry)
}

/// `None` if there is none.
pub fn metadata(details: &PathDetails) -> Option<Value> {
    let pairs = details.attributes.iter().map(|(name, value)| (name.clone(), json!(value)));
    Some(pairs.collect::<Map<_, _>>()).filter(|pairs| !pairs.is_empty()).map(Value::Object)
}

/// Paths in JSON are text; other bytes become U+FFFD.
pub fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn rfc3339(nanoseconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds.into()).ok()?.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use engine::ResolvedLink;

    use super::*;

    fn link(link: Option<ResolvedLink>) -> PathDetails {
        PathDetails {
            path: b"/tmp/l".to_vec(),
            info: FileInfo {
                kind: FileKind::Link,
                mode: 0o777,
                size: 6,
                modified_ns: 1_700_000_000_000_000_000,
                inode: 1,
                target: Some(b"target".to_vec()),
            },
            uid: 1000,
            gid: 1000,
            owner: "user".to_owned(),
            group: "user".to_owned(),
            link,
            attributes: Vec::new(),
        }
    }

    #[test]
    fn a_link_has_the_type_of_its_target() {
        let target = ResolvedLink { path: b"/tmp/target".to_vec(), kind: FileKind::File, mode: 0o644 };
        assert_eq!(
            to_json(&link(Some(target))),
            json!({
                "name": "l", "type": "FILE_TYPE_FILE", "path": "/tmp/l", "size": "6", "mode": 0o644,
                "permissions": "Lrwxrwxrwx", "owner": "user", "group": "user",
                "modifiedTime": "2023-11-14T22:13:20Z", "isSymlink": true, "symlinkTarget": "/tmp/target",
            })
        );
        let broken = to_json(&link(None));
        assert_eq!(broken["type"], "FILE_TYPE_UNSPECIFIED");
        assert_eq!(broken["symlinkTarget"], "target");
    }

    #[test]
    fn metadata_is_left_out_if_there_is_none() {
        let mut details = link(None);
        assert_eq!(metadata(&details), None);
        details.attributes = vec![("author".to_owned(), "me".to_owned())];
        assert_eq!(metadata(&details), Some(json!({ "author": "me" })));
    }
}
