//! Unpacks the entries of an archive into the [`Tree`]. Decides which types and attributes are accepted.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::Timespec;
use tar::EntryType;

use super::name::{self, Meaning, Name, show};
use super::tree::{self, Meta, Tree};
use super::{Rules, unreadable};
use crate::fault::Fault;

/// The highest id that a sandbox's user namespace maps.
const MAX_ID: u64 = 65_535;
/// Limit of the names of directories, which are stored until the end to set their times.
const DIRECTORY_NAME_BYTES: usize = 64 << 20;
const COPY_BYTES: usize = 128 * 1024;
/// The latest time that ext4 can store.
const MAX_SECOND: u64 = 15_032_385_535;

pub(super) struct Unpacker<'a> {
    tree: Tree,
    rules: &'a Rules,
    directories: Vec<(Vec<u8>, Timespec)>,
    directory_name_bytes: usize,
    buffer: Vec<u8>,
}

type TarEntry<'a, R> = tar::Entry<'a, R>;

impl<'a> Unpacker<'a> {
    pub(super) fn new(into: &Path, rules: &'a Rules) -> Result<Self, Fault> {
        let tree = Tree::open(into)?;
        Ok(Self { tree, rules, directories: vec![], directory_name_bytes: 0, buffer: vec![0; COPY_BYTES] })
    }

    pub(super) fn add<R: Read>(&mut self, entry: &mut TarEntry<'_, R>) -> Result<(), Fault> {
        self.rules.budget.take_entry()?;
        if entry.header().entry_type() == EntryType::XGlobalHeader {
            return Ok(());
        }
        let path = entry.path_bytes().into_owned();
        let (pax_mtime, xattrs) = extensions(entry, &path)?;
        let name = name::parse(&path, &self.rules.budget.limits)?;
        let meta = Meta { xattrs, ..meta(entry, &path, pax_mtime)? };
        let Some(last) = &name.last else { return self.root(entry.header().entry_type(), &name, &meta) };
        match name::parse_meaning(last, self.rules.whiteouts)? {
            Meaning::Itself => self.add_itself(entry, &path, &name, last, &meta),
            Meaning::Opaque => self.tree.opaque(&name),
            Meaning::Whiteout(removed) => self.tree.whiteout(&name, &removed),
            Meaning::Nothing => Ok(()),
        }
    }

    fn root(&mut self, kind: EntryType, name: &Name, meta: &Meta) -> Result<(), Fault> {
        if kind != EntryType::Directory {
            return Err(Fault::refused("the archive has an entry for its root that is not a directory"));
        }
        self.remember(b"", meta.mtime)?;
        self.tree.directory(name, meta)
    }

    fn add_itself<R: Read>(
        &mut self,
        entry: &mut TarEntry<'_, R>,
        path: &[u8],
        name: &Name,
        last: &[u8],
        meta: &Meta,
    ) -> Result<(), Fault> {
        match entry.header().entry_type() {
            // Archives older than POSIX mark a directory only by a slash.
            EntryType::Regular if path.ends_with(b"/") => self.directory(path, name, meta),
            EntryType::Directory => self.directory(path, name, meta),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(entry, name, last, meta)
            }
            EntryType::Symlink => {
                let target = link_target(entry, path)?;
                self.tree.symlink(name, last, &target, meta)
            }
            EntryType::Link => {
                let target = name::parse(&link_target(entry, path)?, &self.rules.budget.limits)?;
                self.tree.hard_link(name, last, &target)
            }
            EntryType::Fifo => self.tree.fifo(name, last, meta),
            EntryType::Char | EntryType::Block => Err(Fault::refused(format!(
                "{} is a device; make the archive without device nodes (a sandbox has its own /dev)",
                show(path)
            ))),
            other => {
                let kind = char::from(other.as_byte()).escape_default().to_string();
                Err(Fault::refused(format!("{} is an entry of the unknown type '{kind}'", show(path))))
            }
        }
    }

    fn directory(&mut self, path: &[u8], name: &Name, meta: &Meta) -> Result<(), Fault> {
        self.remember(path, meta.mtime)?;
        self.tree.directory(name, meta)
    }

    fn remember(&mut self, path: &[u8], mtime: Timespec) -> Result<(), Fault> {
        self.directory_name_bytes += path.len() + size_of::<(Vec<u8>, Timespec)>();
        if self.directory_name_bytes > DIRECTORY_NAME_BYTES {
            return Err(Fault::too_big("the names of the archive's directories take more than 64 MiB"));
        }
        self.directories.push((path.to_vec(), mtime));
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        entry: &mut TarEntry<'_, R>,
        name: &Name,
        last: &[u8],
        meta: &Meta,
    ) -> Result<(), Fault> {
        let size = entry.size();
        self.rules.budget.take_bytes(size)?;
        let mut file = self.tree.file(name, last)?;
        let sparse = entry.header().entry_type() == EntryType::GNUSparse;
        let mut left = size;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let n = entry.read(&mut self.buffer[..want]).map_err(unreadable)?;
            if n == 0 {
                return Err(Fault::refused(format!("the archive ends within {}", show(last))));
            }
            let bytes = &self.buffer[..n];
            let written = if sparse { write_sparse(&mut file, bytes) } else { file.write_all(bytes) };
            written.map_err(Fault::io(format!("write {}", show(last))))?;
            self.rules.budget.wrote(n as u64)?;
            left -= n as u64;
        }
        if sparse {
            file.set_len(size).map_err(Fault::io(format!("write {}", show(last))))?;
        }
        tree::apply(&file, name, meta)
    }

    /// Sets the directories' times, which filling them changed, in reverse order of creation.
    pub(super) fn finish(self) -> Result<(), Fault> {
        self.directories.iter().rev().try_for_each(|(path, mtime)| self.tree.touch_directory(path, *mtime))
    }
}

/// Leaves a hole for zeros.
fn write_sparse(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    if bytes.iter().all(|b| *b == 0) {
        let skip = i64::try_from(bytes.len()).map_err(std::io::Error::other)?;
        return file.seek(SeekFrom::Current(skip)).map(drop);
    }
    file.write_all(bytes)
}

fn link_target<R: Read>(entry: &TarEntry<'_, R>, path: &[u8]) -> Result<Vec<u8>, Fault> {
    match entry.link_name_bytes() {
        Some(target) if !target.is_empty() && !target.contains(&0) && target.len() < 4_096 => {
            Ok(target.into_owned())
        }
        _ => Err(Fault::refused(format!("{} is a link without a usable target", show(path)))),
    }
}

fn meta<R: Read>(entry: &TarEntry<'_, R>, path: &[u8], pax_mtime: Option<Timespec>) -> Result<Meta, Fault> {
    let header = entry.header();
    let broken =
        |e: std::io::Error| Fault::refused(format!("the header of {} is malformed", show(path))).caused_by(e);
    let id = |what: &str, id: u64| match u32::try_from(id) {
        Ok(small) if id <= MAX_ID => Ok(small),
        _ => Err(Fault::refused(format!("{} belongs to {what} {id}; allowed: 0 to {MAX_ID}", show(path)))),
    };
    let seconds = header.mtime().map_err(broken)?.min(MAX_SECOND);
    let mtime = Timespec { tv_sec: i64::try_from(seconds).unwrap_or(0), tv_nsec: 0 };
    Ok(Meta {
        uid: id("user", header.uid().map_err(broken)?)?,
        gid: id("group", header.gid().map_err(broken)?)?,
        mode: header.mode().map_err(broken)? & 0o7777,
        mtime: pax_mtime.unwrap_or(mtime),
        xattrs: vec![],
    })
}

type Extensions = (Option<Timespec>, Vec<(String, Vec<u8>)>);

/// The extended header's time and attributes. The tar library itself applies its path, link, size and owner.
fn extensions<R: Read>(entry: &mut TarEntry<'_, R>, path: &[u8]) -> Result<Extensions, Fault> {
    let (mut mtime, mut xattrs) = (None, vec![]);
    let Some(records) = entry.pax_extensions().map_err(unreadable)? else { return Ok((None, xattrs)) };
    for record in records {
        // Parsers disagree about what follows a malformed record, so an archive could show each of them another
        // content.
        let record = record.map_err(|e| {
            Fault::refused(format!("the extended header of {} is malformed", show(path))).caused_by(e)
        })?;
        let Ok(key) = record.key() else { continue };
        if key.starts_with("GNU.sparse.") {
            return Err(Fault::refused(format!(
                "{} is sparse in the pax form; make the archive without --sparse or with --format=gnu",
                show(path)
            )));
        }
        if key == "mtime" {
            mtime = record.value().ok().and_then(parse_time);
        }
        if let Some(attribute) = key.strip_prefix("SCHILY.xattr.")
            && is_allowed(attribute)
        {
            xattrs.push((attribute.to_owned(), record.value_bytes().to_vec()));
        }
    }
    Ok((mtime, xattrs))
}

/// Whether an extended attribute is accepted. `trusted.overlay.*` is not: it could redirect lookups of the overlay
/// mount to any file of the host's layers.
fn is_allowed(attribute: &str) -> bool {
    attribute == "security.capability"
        || (attribute.starts_with("user.") && !attribute.starts_with("user.overlay."))
}

fn parse_time(text: &str) -> Option<Timespec> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: u64 = seconds.parse().ok()?;
    let nanos: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let tv_nsec = nanos.parse().ok()?;
    Some(Timespec { tv_sec: i64::try_from(seconds.min(MAX_SECOND)).ok()?, tv_nsec })
}
