//! Unpacks archives into local directories. The archives come from sandboxes and are treated as hostile.

use std::io::{self, Read};
use std::path::Path;

use api::Unpacked;
use tar::{Archive, Entry, EntryType};

use super::bounded::{Allowance, BoundedReader};
use crate::error::with_sources;

/// The mode bits that the owner of a directory needs to create entries.
pub const OWN_ALL: u32 = 0o700;
/// Limits memory, because the archive may contain any number of directories.
pub const MOST_CLOSED: usize = 10_000;
const MOST_CLOSED_BYTES: u64 = 32 << 20;
/// Failures that are reported individually.
const MOST_FAULTS: usize = 5;

/// Unpacks an archive below a directory. Entries that cannot be created are skipped and reported as an error at the end.
pub fn unpack(archive: &mut impl Read, dir: &Path) -> io::Result<Unpacked> {
    std::fs::create_dir_all(dir)?;
    let path = dir.to_string_lossy().into_owned();
    let mut tally = Unpacked { path, files: 0, directories: 0, links: 0, skipped: 0, bytes: 0 };
    let allowance = Allowance::new();
    let mut archive = Archive::new(BoundedReader::new(archive, &allowance));
    archive.set_preserve_mtime(true);
    // Read-only directories get their mode last.
    let (mut directories, mut closed_bytes, mut faults) = (Vec::new(), 0, Faults::default());
    let mut entries = archive.entries()?;
    let mut before = 0;
    while let (Some(entry), length) = allowance.head(before, || entries.next()) {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory && entry.header().mode()? & OWN_ALL != OWN_ALL {
            closed_bytes += length;
            if directories.len() == MOST_CLOSED || closed_bytes > MOST_CLOSED_BYTES {
                let message =
                    format!("more than {} directories are not accessible to their owner", directories.len());
                return Err(io::Error::other(message));
            }
            before = pass(&mut entry)?;
            directories.push(entry);
            continue;
        }
        if is_supported(kind) {
            unpack_entry(&mut entry, dir, &mut tally, &mut faults);
        } else {
            tally.skipped += 1;
        }
        before = pass(&mut entry)?;
    }
    // Deepest first: a read-only parent would prevent changes below it.
    directories.sort_by(|a, b| b.path_bytes().cmp(&a.path_bytes()));
    for mut entry in directories {
        unpack_entry(&mut entry, dir, &mut tally, &mut faults);
    }
    // Reads the padding after the archive, up to the end of the stream.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    faults.none().map(|()| tally)
}

/// Creates one entry. A failure does not affect the next entries.
fn unpack_entry<R: Read>(entry: &mut Entry<'_, R>, dir: &Path, tally: &mut Unpacked, faults: &mut Faults) {
    let kind = entry.header().entry_type();
    match entry.unpack_in(dir) {
        Ok(true) => {
            *counted(kind, tally) += 1;
            tally.bytes += entry.size();
        }
        // The name leads outside the directory.
        Ok(false) => tally.skipped += 1,
        Err(error) => faults.add(&entry.path_bytes(), &error),
    }
}

/// Failures to create entries.
#[derive(Default)]
pub struct Faults {
    /// The first failures.
    messages: Vec<String>,
    others: u64,
}

impl Faults {
    /// Notes a failure. Messages beyond the first few are only counted.
    pub fn add(&mut self, name: &[u8], error: &io::Error) {
        if self.messages.len() == MOST_FAULTS {
            self.others += 1;
        } else {
            let (name, why) = (String::from_utf8_lossy(name), with_sources(error));
            let message = if why.contains(&*name) { why } else { format!("{name}: {why}") };
            self.messages.push(message);
        }
    }

    /// An error that lists the failures, if any.
    pub fn none(self) -> io::Result<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let mut all = self.messages.join("; ");
        if self.others > 0 {
            all.push_str(&format!("; and {} more", self.others));
        }
        Err(io::Error::other(all))
    }
}

fn is_supported(kind: EntryType) -> bool {
    use EntryType::{Continuous, Directory, Link, Regular, Symlink};
    matches!(kind, Regular | Continuous | Symlink | Link | Directory)
}

fn counted(kind: EntryType, tally: &mut Unpacked) -> &mut u64 {
    match kind {
        EntryType::Symlink | EntryType::Link => &mut tally.links,
        EntryType::Directory => &mut tally.directories,
        _ => &mut tally.files,
    }
}

/// Skips the rest of an entry. Returns how much of it still precedes the next header.
pub fn pass<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<u64> {
    if entry.header().entry_type() != EntryType::GNUSparse {
        io::copy(entry, &mut io::sink())?;
        return Ok(0);
    }
    // A sparse entry is not read, because its holes may have any length. Its size is not reliable if pax records change it.
    let size = if entry.pax_extensions()?.is_none() { entry.header().entry_size()? } else { 0 };
    Ok(size)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tar::{Builder, Header};

    use super::*;
    use crate::files::archive::pack;

    fn hostile(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, link) in entries {
            let mut header = Header::new_gnu();
            // Bypasses the method that would reject the name.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            header.set_size(if *kind == EntryType::Regular { 4 } else { 0 });
            header.set_cksum();
            let content: &[u8] = if *kind == EntryType::Regular { b"evil" } else { b"" };
            archive.append(&header, content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn nothing_is_written_outside() {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "good").unwrap();
        let dir = outside.path().join("in/side");
        std::fs::create_dir_all(&dir).unwrap();
        let absolute = outside.path().to_str().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(outside.path(), PermissionsExt::from_mode(0o700)).unwrap();
        for entries in [
            vec![(EntryType::Regular, "../../victim", "")],
            vec![(EntryType::Symlink, "door", "../.."), (EntryType::Regular, "door/victim", "")],
            vec![(EntryType::Symlink, "way", absolute), (EntryType::Regular, "way/victim", "")],
            vec![(EntryType::Symlink, "v", "../../victim"), (EntryType::Regular, "v", "")],
            vec![(EntryType::Link, "hard", "../../victim"), (EntryType::Regular, "hard", "")],
            vec![(EntryType::Symlink, "d", "../.."), (EntryType::Directory, "d/new", "")],
            vec![(EntryType::Symlink, "e", "../.."), (EntryType::Directory, "e", "")],
            vec![
                (EntryType::Symlink, "s", "../../victim"),
                (EntryType::Link, "t", "s"),
                (EntryType::Regular, "t", ""),
            ],
            vec![(EntryType::Regular, victim.to_str().unwrap(), "")],
        ] {
            // The entry may be rejected or skipped.
            let _ = unpack(&mut hostile(&entries).as_slice(), &dir);
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "good", "{entries:?}");
            assert!(!outside.path().join("new").exists(), "{entries:?}");
            assert_eq!(mode(outside.path()), 0o700, "{entries:?}");
        }
        let odd =
            [(EntryType::Fifo, "fifo", ""), (EntryType::Char, "null", ""), (EntryType::Regular, "a", "")];
        let unpacked = unpack(&mut hostile(&odd).as_slice(), &dir).unwrap();
        assert_eq!((unpacked.files, unpacked.skipped), (1, 2));
        assert_eq!(dir.join("a").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
        assert!(!dir.join("fifo").exists());
    }

    #[test]
    fn a_conflicting_entry_does_not_affect_others() {
        let (outside, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), to.path().join("link")).unwrap();
        let names: Vec<String> = (0..MOST_FAULTS + 1).map(|n| format!("link/{n}")).collect();
        let mut entries = vec![(EntryType::Regular, "before", ""), (EntryType::Directory, "link", "")];
        entries.extend(names.iter().map(|name| (EntryType::Regular, name.as_str(), "")));
        entries.push((EntryType::Regular, "behind", ""));
        let error = unpack(&mut hostile(&entries).as_slice(), to.path()).unwrap_err().to_string();
        assert!(to.path().join("before").exists() && to.path().join("behind").exists());
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
        // The message contains causes and has a bounded length.
        assert!(
            error.contains("link`: ") && error.contains("link/0") && error.ends_with("; and 2 more"),
            "{error}"
        );
    }

    /// An entry whose kind modifies the next one.
    fn about_next(archive: &mut Builder<Vec<u8>>, kind: EntryType, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }

    fn file(archive: &mut Builder<Vec<u8>>, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, "file", content).unwrap();
    }

    fn record(key: &str, value: &str) -> Vec<u8> {
        let rest = format!(" {key}={value}\n");
        let length = (rest.len()..).find(|length| length.to_string().len() + rest.len() == *length).unwrap();
        format!("{length}{rest}").into_bytes()
    }

    #[test]
    fn long_names_do_not_use_memory() {
        let to = tempfile::tempdir().unwrap();
        let mut whole = Vec::new();
        for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
            let mut archive = Builder::new(Vec::new());
            file(&mut archive, &[7; 1 << 20]);
            about_next(&mut archive, kind, &vec![b'a'; 8 << 20]);
            file(&mut archive, b"");
            whole = archive.into_inner().unwrap();
            let mut rest = whole.as_slice();
            let error = unpack(&mut rest, to.path()).unwrap_err();
            assert!(error.to_string().contains("longer than 65536 bytes"), "{kind:?}: {error}");
            // The entry was not read.
            assert!(rest.len() > 7 << 20, "{kind:?}: {} left of {}", rest.len(), whole.len());
        }
        assert!(whole.len() > 9 << 20);
    }

    /// Contents may have any length, also those of omitted entries, and headers may have the longest legitimate size.
    #[test]
    fn nothing_else_is_bounded() {
        let to = tempfile::tempdir().unwrap();
        let mut archive = Builder::new(Vec::new());
        let long = vec![b'x'; 3 << 20];
        about_next(&mut archive, EntryType::XGlobalHeader, &long);
        about_next(&mut archive, EntryType::Fifo, &long);
        // A sparse file with a hole of gigabytes.
        let mut sparse = Header::new_gnu();
        sparse.set_entry_type(EntryType::GNUSparse);
        sparse.set_size(long.len() as u64);
        let gnu = sparse.as_gnu_mut().unwrap();
        gnu.sparse[0].offset = *b"00000000000\0";
        gnu.sparse[0].numbytes = *b"00014000000\0";
        gnu.sparse[1].offset = *b"77777777777\0";
        gnu.sparse[1].numbytes = *b"00000000000\0";
        gnu.realsize = *b"77777777777\0";
        sparse.set_cksum();
        archive.append(&sparse, long.as_slice()).unwrap();
        about_next(&mut archive, EntryType::XHeader, &record("comment", &"c".repeat(60_000)));
        file(&mut archive, &long);
        let unpacked = unpack(&mut archive.into_inner().unwrap().as_slice(), to.path()).unwrap();
        assert_eq!((unpacked.files, unpacked.skipped, unpacked.bytes), (1, 3, long.len() as u64));
    }

    #[test]
    fn long_names_do_not_escape_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        let (victim, dir) = (outside.path().join("victim"), outside.path().join("in/side"));
        std::fs::write(&victim, "good").unwrap();
        for name in ["../../victim", victim.to_str().unwrap()] {
            for (kind, content) in [
                (EntryType::XHeader, record("path", name)),
                (EntryType::GNULongName, format!("{name}\0").into_bytes()),
            ] {
                let mut archive = Builder::new(Vec::new());
                about_next(&mut archive, kind, &content);
                file(&mut archive, b"evil");
                let _ = unpack(&mut archive.into_inner().unwrap().as_slice(), &dir);
                assert_eq!(std::fs::read_to_string(&victim).unwrap(), "good", "{kind:?} {name}");
            }
        }
    }

    #[test]
    fn half_an_archive_is_an_error() {
        let from = tempfile::tempdir().unwrap();
        std::fs::write(from.path().join("file"), vec![1; 10_000]).unwrap();
        let mut archive = Vec::new();
        pack(from.path(), &mut archive).unwrap();
        let to = tempfile::tempdir().unwrap();
        assert!(unpack(&mut &archive[..5000], to.path()).is_err());
    }
}
