//! Directories of this machine to archives and back. What is unpacked comes out of a sandbox: it is hostile.

use std::io::{self, Read, Write};
use std::path::Path;

use api::Unpacked;
use tar::{Archive, Builder, EntryType};

/// What a directory's owner needs to put something into it.
const OWN_ALL: u32 = 0o700;
/// They are remembered, and whoever is inside can make many.
const MOST_CLOSED: usize = 10_000;

/// Writes a directory as an archive, with names below it.
pub fn pack(dir: &Path, to: &mut impl Write) -> io::Result<()> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", dir.display()));
    if !dir.metadata().map_err(name)?.is_dir() {
        return Err(name(io::ErrorKind::NotADirectory.into()));
    }
    let mut archive = Builder::new(to);
    archive.follow_symlinks(false);
    // The other side does not know holes.
    archive.sparse(false);
    archive.append_dir_all(".", dir).map_err(name)?;
    archive.finish()
}

/// Unpacks an archive below a directory.
pub fn unpack(archive: &mut impl Read, dir: &Path) -> io::Result<Unpacked> {
    std::fs::create_dir_all(dir)?;
    let path = dir.to_string_lossy().into_owned();
    let mut tally = Unpacked { path, files: 0, directories: 0, links: 0, skipped: 0, bytes: 0 };
    let mut archive = Archive::new(archive);
    archive.set_preserve_mtime(true);
    // Those that even their owner cannot write into come last.
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let counted = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => &mut tally.files,
            EntryType::Symlink | EntryType::Link => &mut tally.links,
            EntryType::Directory if entry.header().mode()? & OWN_ALL == OWN_ALL => &mut tally.directories,
            EntryType::Directory if directories.len() < MOST_CLOSED => {
                directories.push(entry);
                continue;
            }
            EntryType::Directory => {
                let message = format!("more than {MOST_CLOSED} directories are closed to their owner");
                return Err(io::Error::other(message));
            }
            _ => {
                tally.skipped += 1;
                continue;
            }
        };
        // `false`: its name leads out of the directory.
        if entry.unpack_in(dir)? {
            *counted += 1;
            tally.bytes += entry.size();
        } else {
            tally.skipped += 1;
        }
    }
    // Deepest first, so that a mode that forbids writing does not hinder what is below.
    directories.sort_by(|a, b| b.path_bytes().cmp(&a.path_bytes()));
    for mut entry in directories {
        if entry.unpack_in(dir)? {
            tally.directories += 1;
        } else {
            tally.skipped += 1;
        }
    }
    // What is behind the end: the sender is to be heard to its own.
    io::copy(archive.into_inner(), &mut io::sink())?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tar::Header;

    use super::*;

    #[test]
    fn a_directory_survives_the_way() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = from.path();
        std::fs::create_dir_all(root.join("deep/er")).unwrap();
        std::fs::write(root.join("deep/er/file"), "content").unwrap();
        let long = format!("deep/{}", "x".repeat(200));
        std::fs::write(root.join(&long), "").unwrap();
        symlink("er/file", root.join("deep/link")).unwrap();
        std::fs::set_permissions(root.join("deep/er/file"), PermissionsExt::from_mode(0o750)).unwrap();
        std::fs::set_permissions(root.join("deep/er"), PermissionsExt::from_mode(0o555)).unwrap();
        let mut archive = Vec::new();
        pack(root, &mut archive).unwrap();
        let unpacked = unpack(&mut archive.as_slice(), to.path()).unwrap();
        assert_eq!((unpacked.files, unpacked.links, unpacked.skipped, unpacked.bytes), (2, 1, 0, 7));
        assert_eq!(std::fs::read_to_string(to.path().join("deep/link")).unwrap(), "content");
        let mode = |path: &str| to.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("deep/er/file"), mode("deep/er")), (0o750, 0o555));
        assert!(to.path().join(long).exists());
    }

    fn hostile(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, link) in entries {
            let mut header = Header::new_gnu();
            // Not by the method that would refuse it.
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
        for entries in [
            vec![(EntryType::Regular, "../../victim", "")],
            vec![(EntryType::Symlink, "door", "../.."), (EntryType::Regular, "door/victim", "")],
            vec![(EntryType::Symlink, "way", absolute), (EntryType::Regular, "way/victim", "")],
            vec![(EntryType::Symlink, "v", "../../victim"), (EntryType::Regular, "v", "")],
            vec![(EntryType::Link, "hard", "../../victim"), (EntryType::Regular, "hard", "")],
            vec![(EntryType::Symlink, "d", "../.."), (EntryType::Directory, "d/new", "")],
        ] {
            // Refused or skipped: either is well.
            let _ = unpack(&mut hostile(&entries).as_slice(), &dir);
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "good", "{entries:?}");
            assert!(!outside.path().join("new").exists(), "{entries:?}");
        }
        let odd =
            [(EntryType::Fifo, "fifo", ""), (EntryType::Char, "null", ""), (EntryType::Regular, "a", "")];
        let unpacked = unpack(&mut hostile(&odd).as_slice(), &dir).unwrap();
        assert_eq!((unpacked.files, unpacked.skipped), (1, 2));
        assert_eq!(dir.join("a").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
        assert!(!dir.join("fifo").exists());
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
