//! Details of paths: names of owner and group, extended attributes, and where links lead.

use guest_proto::{
    AttributePrefix, FileDetails, FileErrorKind, FileKind, FileReply, LinkTarget, MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTES, MAX_NAME, MAX_PATH,
};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::failure::{FileFailure, shown};
use super::list::next_name;
use super::reply::ReplyWriter;
use super::stat;
use crate::users::Names;

/// Most entries of a tree.
const MAX_TREE: u64 = 100_000;
/// The kernel's limit for the names of a file's attributes.
const MAX_NAMES: usize = 64 * 1024;
const NAMESPACE: &str = "user.";

/// Sends details.
pub struct Describer<'a> {
    names: Names,
    prefix: Option<AttributePrefix<'a>>,
}

impl<'a> Describer<'a> {
    /// Sends the attributes of this prefix, or none.
    pub fn new(prefix: Option<AttributePrefix<'a>>) -> Self {
        Self { names: Names::read(), prefix }
    }

    /// Sends the details of a path.
    pub fn send(&self, path: &[u8], reply: &mut ReplyWriter) -> Result<(), FileFailure> {
        let found =
            rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(FileFailure::with(path))?;
        self.send_found(path, &found, reply)
    }

    /// Sends the details of all entries below a directory, depth first and by name.
    pub fn send_tree(&self, path: &[u8], depth: u32, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
        let mut total = 0;
        // Directories whose entries are being sent: the path, and the names that are left, last one first.
        let mut levels = vec![(path.to_vec(), names(path)?)];
        while let Some((above, left)) = levels.last_mut() {
            let Some(name) = left.pop() else {
                levels.pop();
                continue;
            };
            let between: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
            let path = [above, between, &name].concat();
            reply.step()?;
            // It was deleted, or is too deep for a path.
            let Ok(found) = rustix::fs::statat(CWD, &*path, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            total += 1;
            if total > MAX_TREE {
                let message = format!("the directory has more than {MAX_TREE} entries; use a smaller depth");
                return Err(FileFailure::new(FileErrorKind::Invalid, message));
            }
            self.send_found(&path, &found, reply)?;
            if stat::kind(&found) == FileKind::Directory && levels.len() < depth as usize {
                levels.push((path.clone(), names(&path).unwrap_or_default()));
            }
        }
        reply.send(&FileReply::Listed { total })
    }

    fn send_found(&self, path: &[u8], found: &Stat, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
        let target = stat::target_of(CWD, path, found);
        let resolved = if stat::kind(found) == FileKind::Link { resolve(path) } else { None };
        let link = resolved.as_ref().map(|(path, found)| LinkTarget {
            path,
            kind: stat::kind(found),
            mode: found.st_mode & guest_proto::MODE_BITS,
        });
        let attributes = self.prefix.map(|prefix| attributes(path, prefix)).unwrap_or_default();
        let (owner, group) = (self.names.user(found.st_uid), self.names.group(found.st_gid));
        reply.send(&FileReply::Details(FileDetails {
            path,
            stat: stat::to_wire(found, target.as_deref()),
            uid: found.st_uid,
            gid: found.st_gid,
            owner: &owner,
            group: &group,
            link,
            attributes: attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        }))
    }
}

/// The names in a directory, last one first.
fn names(path: &[u8]) -> Result<Vec<Vec<u8>>, FileFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(FileFailure::with(path))?;
    let mut dir = Dir::new(fd).map_err(FileFailure::with(path))?;
    let mut names = Vec::new();
    while let Some(name) = next_name(&mut dir).map_err(FileFailure::with(path))? {
        names.push(name);
        if names.len() as u64 > MAX_TREE {
            let message = format!("the directory '{}' has more than {MAX_TREE} entries", shown(path));
            return Err(FileFailure::new(FileErrorKind::Invalid, message));
        }
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Where a link leads after all links; `None` if it is broken.
fn resolve(path: &[u8]) -> Option<(Vec<u8>, Stat)> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let resolved = std::fs::canonicalize(std::ffi::OsStr::from_bytes(path)).ok()?.into_os_string().into_vec();
    let found = rustix::fs::statat(CWD, &*resolved, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (resolved.len() <= MAX_PATH).then_some((resolved, found))
}

/// The attributes of a prefix, as many as a message holds, by name. Those that are not text are omitted.
fn attributes(path: &[u8], prefix: &str) -> Vec<(String, String)> {
    let mut list = vec![0; MAX_NAMES];
    let Ok(length) = rustix::fs::llistxattr(path, &mut *list) else { return Vec::new() };
    let mut found = Vec::new();
    for full in names_in(&list[..length]) {
        let Some(name) = full.strip_prefix(NAMESPACE).and_then(|name| name.strip_prefix(prefix)) else {
            continue;
        };
        let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
        if let Ok(length) = rustix::fs::lgetxattr(path, full, &mut *value)
            && let Ok(value) = String::from_utf8(value[..length].to_vec())
            && (1..=MAX_NAME).contains(&name.len())
        {
            found.push((name.to_owned(), value));
        }
    }
    found.sort_unstable();
    found.truncate(MAX_ATTRIBUTES);
    let mut bytes = 0;
    found.retain(|(name, value)| {
        bytes += name.len() + value.len();
        bytes <= MAX_ATTRIBUTE_BYTES
    });
    found
}

/// The full names of the attributes of an open file that begin with `user.` and a prefix.
pub fn full_names(file: &std::os::fd::OwnedFd, prefix: &str) -> Result<Vec<String>, Errno> {
    let mut list = vec![0; MAX_NAMES];
    let length = rustix::fs::flistxattr(file, &mut *list)?;
    let start = format!("{NAMESPACE}{prefix}");
    let names = names_in(&list[..length]);
    Ok(names.filter(|name| name.starts_with(&start)).map(str::to_owned).collect())
}

fn names_in(list: &[u8]) -> impl Iterator<Item = &str> {
    list.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok())
}
