//! Copies back into a local directory what a sandbox has changed since the upload from there. Entries that the sandbox has not changed are
//! not touched, also if they were changed or deleted locally meanwhile. What both have changed stays as it is here, and the version
//! of the sandbox is written beside it. The archive is not trusted: nothing is written outside the directory, also not through
//! symbolic links. Called by `record`. Failures of entries do not affect others, and are one error at the end.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use api::Unpacked;
use tar::{Archive, Entry, EntryType};
use tempfile::{NamedTempFile, TempPath};

use super::bounded::{Allowance, BoundedReader};
use super::local_tree::LocalTree;
use super::placement::{self, Attributes};
use super::state::{ContentId, DigestReader, EntryState, Merge, PERMISSIONS, Sent, SentEntries, merge};
use super::tree::{Faults, MOST_CLOSED, OWN_ALL, pass};

/// Content up to this size is compared in memory, so that an unchanged file causes no write.
const MOST_IN_MEMORY: u64 = 1 << 20;
/// The state of what was not sent.
static ABSENT: EntryState = EntryState::Absent;

/// Merges the archive of a directory.
pub fn merge_archive(archive: &mut impl Read, root: &Path, sent: &SentEntries) -> io::Result<Unpacked> {
    let allowance = Allowance::new();
    let mut archive = Archive::new(BoundedReader::new(archive, &allowance));
    let mut merger = Merger::new(root, sent);
    let mut entries = archive.entries()?;
    let mut before = 0;
    while let (Some(entry), _) = allowance.head(before, || entries.next()) {
        let mut entry = entry?;
        merger.entry(&mut entry)?;
        before = pass(&mut entry)?;
    }
    // Reads the padding after the archive, up to the end of the stream.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    merger.finish()
}

/// Merges the content of a single file, which has `size` bytes.
pub fn merge_file(
    from: &mut impl Read,
    root: &Path,
    sent: &SentEntries,
    size: u64,
    attributes: Attributes,
) -> io::Result<Unpacked> {
    let mut merger = Merger::new(root, sent);
    for name in sent.keys() {
        merger.file(name, size, attributes, from)?;
    }
    merger.finish()
}

struct Merger<'a> {
    tree: LocalTree<'a>,
    sent: &'a SentEntries,
    /// Directories whose contents their owner cannot change. They get their mode last.
    closed: Vec<(PathBuf, u32)>,
    tally: Unpacked,
    faults: Faults,
}

impl<'a> Merger<'a> {
    fn new(root: &'a Path, sent: &'a SentEntries) -> Self {
        let path = root.to_string_lossy().into_owned();
        let tally = Unpacked { path, files: 0, directories: 0, links: 0, skipped: 0, bytes: 0 };
        Self { tree: LocalTree { root, sent }, sent, closed: Vec::new(), tally, faults: Faults::default() }
    }

    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> io::Result<()> {
        let Some(name) = relative(&entry.path()?) else {
            self.tally.skipped += 1;
            return Ok(());
        };
        if name.as_os_str().is_empty() {
            return Ok(());
        }
        let header = entry.header();
        let attributes = Attributes::new(header.mode()?, header.mtime().unwrap_or(0));
        let merged = match header.entry_type() {
            EntryType::Directory => self.directory(&name, attributes.mode),
            EntryType::Symlink => {
                let target = entry.link_name()?.map(|target| target.into_owned()).unwrap_or_default();
                self.link(&name, &target)
            }
            EntryType::Regular | EntryType::Continuous => {
                let size = entry.size();
                self.file(&name, size, attributes, entry)
            }
            _ => {
                self.tally.skipped += 1;
                return Ok(());
            }
        };
        if let Err(error) = merged {
            self.faults.add(name.as_os_str().as_bytes(), &error);
        }
        Ok(())
    }

    fn directory(&mut self, name: &Path, mode: u32) -> io::Result<()> {
        let (path, sent) = (self.tree.path(name), self.sent.get(name));
        let was_sent = sent.is_some_and(|sent| sent.state == EntryState::Directory);
        match self.tree.state(name)? {
            EntryState::Directory if was_sent => {
                if is_mode_to_change(&path, sent, mode)? {
                    self.set_directory_mode(path, mode)?;
                }
                Ok(())
            }
            // Created here meanwhile.
            EntryState::Directory => Ok(()),
            // Deleted or replaced here. What is new in it creates it again.
            _ if was_sent => Ok(()),
            EntryState::Absent => {
                self.tree.make_parents(name)?;
                placement::make_directory(&path, mode | OWN_ALL)?;
                self.tally.directories += 1;
                self.set_directory_mode(path, mode)
            }
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn set_directory_mode(&mut self, path: PathBuf, mode: u32) -> io::Result<()> {
        if mode & OWN_ALL == OWN_ALL {
            return fs::set_permissions(path, Permissions::from_mode(mode));
        }
        if self.closed.len() == MOST_CLOSED {
            let message = format!("more than {MOST_CLOSED} directories are not accessible to their owner");
            return Err(io::Error::other(message));
        }
        self.closed.push((path, mode));
        Ok(())
    }

    fn link(&mut self, name: &Path, target: &Path) -> io::Result<()> {
        let (local, inside) = (self.tree.state(name)?, EntryState::Link(target.to_owned()));
        let decision = merge(self.sent_state(name), &local, &inside);
        if decision == Merge::Keep {
            return Ok(());
        }
        let dir = self.tree.make_parents(name)?;
        self.tally.links += 1;
        self.write(name, placement::temporary_link(&dir, target)?, &local, decision)
    }

    fn file(
        &mut self,
        name: &Path,
        size: u64,
        attributes: Attributes,
        from: &mut impl Read,
    ) -> io::Result<()> {
        let received = self.receive(name, size, from)?;
        let (local, inside) = (self.tree.state(name)?, EntryState::File(received.content));
        let (path, sent) = (self.tree.path(name), self.sent.get(name));
        let decision = merge(self.sent_state(name), &local, &inside);
        if decision == Merge::Keep {
            if matches!(local, EntryState::File(_)) && is_mode_to_change(&path, sent, attributes.mode)? {
                fs::set_permissions(&path, Permissions::from_mode(attributes.mode))?;
            }
            return Ok(());
        }
        let dir = self.tree.make_parents(name)?;
        let file = received.into_temporary(&dir)?;
        let mut mode = attributes.mode;
        if decision == Merge::Write && matches!(local, EntryState::File(_)) {
            let replaced = path.metadata()?;
            placement::own_like(file.as_file(), &replaced)?;
            if sent.is_some_and(|sent| sent.mode == mode) {
                mode = replaced.permissions().mode() & PERMISSIONS;
            }
        } else {
            placement::own_in(file.as_file(), &dir)?;
        }
        Attributes { mode, ..attributes }.apply(file.as_file())?;
        self.tally.files += 1;
        self.tally.bytes += size;
        self.write(name, file.into_temp_path(), &local, decision)
    }

    /// Gives a complete file or link its name.
    fn write(&self, name: &Path, temporary: TempPath, local: &EntryState, decision: Merge) -> io::Result<()> {
        let path = self.tree.path(name);
        if decision == Merge::Conflict {
            let beside = placement::create_beside(temporary, &path)?;
            let beside = beside.strip_prefix(self.tree.root).unwrap_or(&beside);
            let message = format!(
                "'{}' has changed here and in the sandbox; the version of the sandbox is in '{}'",
                name.display(),
                beside.display()
            );
            return Err(io::Error::other(message));
        }
        match local {
            EntryState::Absent => placement::create(temporary, &path),
            _ => placement::replace(temporary, &path),
        }
    }

    /// Reads the content of a file, whose size was announced.
    fn receive(&self, name: &Path, size: u64, from: &mut impl Read) -> io::Result<Received> {
        let mut reader = DigestReader::new(from.take(size));
        let mut buffer = Vec::new();
        let mut file = None;
        let got = if size <= MOST_IN_MEMORY {
            io::copy(&mut reader, &mut buffer)?
        } else {
            let mut large = placement::temporary(&self.tree.existing_parent(name)?)?;
            let got = io::copy(&mut reader, large.as_file_mut())?;
            file = Some(large);
            got
        };
        if got != size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Received { content: reader.content(), buffer, file })
    }

    fn sent_state(&self, name: &Path) -> &'a EntryState {
        self.sent.get(name).map_or(&ABSENT, |sent| &sent.state)
    }

    fn finish(mut self) -> io::Result<Unpacked> {
        // Deepest first: a closed directory would prevent changes below it.
        self.closed.sort();
        for (path, mode) in std::mem::take(&mut self.closed).into_iter().rev() {
            if let Err(error) = fs::set_permissions(&path, Permissions::from_mode(mode)) {
                self.faults.add(path.as_os_str().as_bytes(), &error);
            }
        }
        self.faults.none().map(|()| self.tally)
    }
}

/// The content of a file in a sandbox: in memory, or if it is large in a file.
struct Received {
    content: ContentId,
    buffer: Vec<u8>,
    file: Option<NamedTempFile>,
}

impl Received {
    /// The file to be moved into this directory, which is on the same file system.
    fn into_temporary(self, dir: &Path) -> io::Result<NamedTempFile> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let mut file = placement::temporary(dir)?;
        file.as_file_mut().write_all(&self.buffer)?;
        Ok(file)
    }
}

/// The path below the directory; `None` if it leads outside.
pub fn relative(path: &Path) -> Option<PathBuf> {
    let mut name = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(name)
}

/// Whether the mode has changed in the sandbox, and not here.
fn is_mode_to_change(path: &Path, sent: Option<&Sent>, mode: u32) -> io::Result<bool> {
    let Some(sent) = sent.filter(|sent| sent.mode != mode) else { return Ok(false) };
    let local = fs::symlink_metadata(path)?.permissions().mode() & PERMISSIONS;
    Ok(local == sent.mode)
}

#[cfg(test)]
mod tests;
