//! Packs a local directory while others may change it: each file has the length that its header announced, and files that vanish are
//! omitted. Called by [`FileBody::directory`](super::FileBody::directory). A file that cannot be read is an error that names it; the
//! archive is then incomplete.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tar::{Builder, Header, HeaderMode};

use super::ignore::{Choice, Ignore};
use super::state::{DigestReader, EntryState, PERMISSIONS, Sent, SentEntries};

/// Writes a directory as an archive with relative names. Omits sockets, FIFOs and devices, which the service does not create.
pub fn pack(dir: &Path, to: &mut impl Write) -> io::Result<()> {
    pack_entries(dir, &Ignore::default(), to, None)
}

/// As [`pack`], without the entries that are excluded.
pub fn pack_chosen(dir: &Path, ignore: &Ignore, to: &mut impl Write) -> io::Result<()> {
    pack_entries(dir, ignore, to, None)
}

/// As [`pack`], and returns what was written.
pub fn pack_recorded(dir: &Path, to: &mut impl Write) -> io::Result<SentEntries> {
    let mut sent = SentEntries::new();
    pack_entries(dir, &Ignore::default(), to, Some(&mut sent))?;
    Ok(sent)
}

fn pack_entries(
    dir: &Path,
    ignore: &Ignore,
    to: &mut impl Write,
    mut sent: Option<&mut SentEntries>,
) -> io::Result<()> {
    let name = |error: io::Error| named(dir, error);
    let found = dir.metadata().map_err(name)?;
    // Fails before the first header if the path is not a directory.
    let mut waiting = names(dir, Path::new("")).map_err(name)?;
    let mut archive = Builder::new(to);
    archive.append_data(&mut header(&found), "./", io::empty())?;
    while let Some(name) = waiting.pop() {
        append(&mut archive, dir, &name, ignore, &mut waiting, sent.as_deref_mut())?;
    }
    archive.finish()
}

/// Appends one entry. The contents of a directory are queued.
fn append(
    archive: &mut Builder<impl Write>,
    dir: &Path,
    name: &Path,
    ignore: &Ignore,
    waiting: &mut Vec<PathBuf>,
    sent: Option<&mut SentEntries>,
) -> io::Result<()> {
    let path = dir.join(name);
    let Some(found) = unless_not_found(&path, fs::symlink_metadata(&path))? else { return Ok(()) };
    let choice = ignore.choose(name, found.is_dir());
    if choice == Choice::Skip {
        return Ok(());
    }
    if found.is_dir() {
        let Some(below) = unless_not_found(&path, names(&path, name))? else { return Ok(()) };
        waiting.extend(below);
        if choice == Choice::Search {
            return Ok(());
        }
        archive.append_data(&mut header(&found), name, io::empty())?;
        record(sent, name, &found, EntryState::Directory);
    } else if found.is_symlink() {
        let Some(target) = unless_not_found(&path, fs::read_link(&path))? else { return Ok(()) };
        archive.append_link(&mut header(&found), name, &target)?;
        record(sent, name, &found, EntryState::Link(target));
    } else if found.is_file() {
        let Some(file) = unless_not_found(&path, File::open(&path))? else { return Ok(()) };
        // Uses the metadata of the open file, because the name may have been reused.
        let found = file.metadata().map_err(|error| named(&path, error))?;
        if !found.is_file() {
            return Ok(());
        }
        let content = Exactly { from: file, path: &path, left: found.len(), has_ended: false };
        if sent.is_none() {
            return archive.append_data(&mut header(&found), name, content);
        }
        let mut content = DigestReader::new(content);
        archive.append_data(&mut header(&found), name, &mut content)?;
        record(sent, name, &found, EntryState::File(content.content()));
    }
    Ok(())
}

fn record(sent: Option<&mut SentEntries>, name: &Path, found: &Metadata, state: EntryState) {
    if let Some(sent) = sent {
        sent.insert(name.to_owned(), Sent { state, mode: found.permissions().mode() & PERMISSIONS });
    }
}

/// The entries of a directory, with its name as prefix.
fn names(path: &Path, name: &Path) -> io::Result<Vec<PathBuf>> {
    path.read_dir()?.map(|entry| Ok(name.join(entry?.file_name()))).collect()
}

fn header(found: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(found, HeaderMode::Complete);
    header
}

/// `None` if the entry or its directory vanished meanwhile.
fn unless_not_found<T>(path: &Path, looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(there) => Ok(Some(there)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(named(path, error)),
    }
}

/// Adds the path to the text of an error.
pub fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), PathError { path: path.to_owned(), source: error })
}

#[derive(Debug)]
struct PathError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for PathError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Reads exactly this many bytes: a file that grew is cut off, and one that shrank is filled with zeroes.
struct Exactly<'a, R> {
    from: R,
    path: &'a Path,
    left: u64,
    has_ended: bool,
}

impl<R: Read> Read for Exactly<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..most];
        let mut got = 0;
        if !self.has_ended {
            got = self.from.read(into).map_err(|error| named(self.path, error))?;
            self.has_ended = got == 0;
        }
        if self.has_ended {
            into.fill(0);
            got = most;
        }
        self.left -= got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::files::tree::unpack;

    /// A writer that runs an action as soon as `at` is written, before the data after it.
    struct Meanwhile<F> {
        archive: Vec<u8>,
        at: &'static str,
        act: Option<F>,
    }

    impl<F: FnOnce()> Write for Meanwhile<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.archive.extend_from_slice(bytes);
            if bytes.windows(self.at.len()).any(|part| part == self.at.as_bytes())
                && let Some(act) = self.act.take()
            {
                act();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Packs a directory, running an action when `at` is written. Returns the unpacked entries, sorted.
    fn packed(dir: &Path, at: &'static str, act: impl FnOnce()) -> Vec<(String, Vec<u8>)> {
        let mut meanwhile = Meanwhile { archive: Vec::new(), at, act: Some(act) };
        pack(dir, &mut meanwhile).unwrap();
        assert!(meanwhile.act.is_none(), "{at} was not written");
        let mut archive = tar::Archive::new(meanwhile.archive.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let (name, mut content) = (entry.path().unwrap().to_str().unwrap().to_owned(), Vec::new());
            entry.read_to_end(&mut content).unwrap();
            (name, content)
        });
        let mut all: Vec<_> = entries.collect();
        all.sort();
        all
    }

    fn names_of(entries: &[(String, Vec<u8>)]) -> Vec<&str> {
        entries.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_directory_survives_a_round_trip() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = from.path();
        std::fs::create_dir_all(root.join("deep/er")).unwrap();
        std::fs::write(root.join("deep/er/file"), "content").unwrap();
        let long = format!("deep/{}", "x".repeat(200));
        std::fs::write(root.join(&long), "").unwrap();
        let odd = Path::new("deep").join(OsStr::from_bytes(b"\xff\xfe"));
        std::fs::write(root.join(&odd), "odd").unwrap();
        symlink("er/file", root.join("deep/link")).unwrap();
        symlink("y".repeat(200), root.join("deep/far")).unwrap();
        std::fs::set_permissions(root.join("deep/er/file"), PermissionsExt::from_mode(0o750)).unwrap();
        std::fs::set_permissions(root.join("deep/er"), PermissionsExt::from_mode(0o555)).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(root.join(&odd)).unwrap().set_modified(then).unwrap();
        let mut archive = Vec::new();
        pack(root, &mut archive).unwrap();
        let unpacked = unpack(&mut archive.as_slice(), to.path()).unwrap();
        assert_eq!((unpacked.files, unpacked.links, unpacked.skipped, unpacked.bytes), (3, 2, 0, 10));
        assert_eq!(std::fs::read_to_string(to.path().join("deep/link")).unwrap(), "content");
        assert_eq!(to.path().join("deep/far").read_link().unwrap(), Path::new(&"y".repeat(200)));
        let mode = |path: &str| to.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("deep/er/file"), mode("deep/er")), (0o750, 0o555));
        assert!(to.path().join(long).exists());
        assert_eq!(to.path().join(odd).metadata().unwrap().mtime(), 1_000_000_000);
    }

    #[test]
    fn special_files_are_omitted() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap();
        assert!(made.success());
        std::fs::write(dir.path().join("file"), "content").unwrap();
        let entries = packed(dir.path(), "./", || {});
        assert_eq!(names_of(&entries), ["./", "file"]);
    }

    /// A file that grew is cut off, one that shrank is filled, and the next entry is still found.
    #[test]
    fn a_file_that_changes_keeps_its_archived_size() {
        for (length, left) in [(300, 300), (5000, 1000)] {
            let dir = tempfile::tempdir().unwrap();
            let changing = dir.path().join("changing");
            for name in ["before", "changing", "later"] {
                std::fs::write(dir.path().join(name), vec![b'a'; 1000]).unwrap();
            }
            let entries = packed(dir.path(), "changing", || {
                // Changes the file in place, like a program that has it open.
                let mut file = File::options().write(true).truncate(true).open(&changing).unwrap();
                file.write_all(&vec![b'b'; length]).unwrap();
            });
            assert_eq!(names_of(&entries), ["./", "before", "changing", "later"]);
            let expected = [vec![b'b'; left], vec![0; 1000 - left]].concat();
            assert!(entries[2].1 == expected, "{length}: {} bytes", entries[2].1.len());
            assert!(entries[1].1 == [b'a'; 1000] && entries[3].1 == [b'a'; 1000]);
        }
    }

    #[test]
    fn files_that_vanish_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("dir/below")).unwrap();
        std::fs::create_dir(at("swapped")).unwrap();
        for name in ["file", "dir/file", "swapped/file", "stays"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink("stays", at("link")).unwrap();
        // The directory entry precedes its contents, whose names are known then.
        let entries = packed(dir.path(), "./", || {
            std::fs::remove_dir_all(at("dir")).unwrap();
            std::fs::remove_file(at("file")).unwrap();
            std::fs::remove_file(at("link")).unwrap();
        });
        assert_eq!(names_of(&entries), ["./", "stays", "swapped", "swapped/file"]);
        // A file has replaced the directory meanwhile.
        let entries = packed(dir.path(), "swapped", || {
            std::fs::remove_dir_all(at("swapped")).unwrap();
            std::fs::write(at("swapped"), "").unwrap();
        });
        assert_eq!(names_of(&entries), ["./", "stays", "swapped"]);
    }

    /// An error, not an omitted file.
    #[test]
    fn an_unreadable_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (name, error) =
            ("n".repeat(200), |dir: &Path| pack(dir, &mut Vec::new()).unwrap_err().to_string());
        std::fs::write(dir.path().join(&name), "").unwrap();
        // The directory has the longest possible path, so its contents cannot be opened.
        let mut long = dir.path().to_owned();
        while long.as_os_str().len() < 4000 {
            long.push("..");
            long.push(dir.path().file_name().unwrap());
        }
        assert!(error(&long).contains(&format!("{name}: File name too long")), "{}", error(&long));
        let missing = dir.path().join("missing");
        assert!(error(&missing).contains("missing: No such file"), "{}", error(&missing));
        assert!(error(&dir.path().join(&name)).contains(&name));
        let closed = dir.path().join(&name);
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
        // Root can read the file anyway.
        if File::open(&closed).is_err() {
            assert!(error(dir.path()).contains(&format!("{name}: Permission denied")));
        }
        let mut broken = Exactly { from: Broken, path: &closed, left: 1, has_ended: false };
        assert!(broken.read(&mut [0]).unwrap_err().to_string().contains(&format!("{name}: no more ink")));
    }

    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no more ink"))
        }
    }
}
