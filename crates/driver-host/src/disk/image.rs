//! A sandbox's own disk: one sparse ext4 image whose size is the sandbox's hard limit.
//!
//! For each size `mkfs.ext4` creates a template once; a sandbox gets a sparse copy of it, or of the disk of a snapshot. It holds
//! `upper` and `work` for the overlay. An incomplete disk has another name and is never used.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use driver::{AtStep, DriverError, DriverStep, SandboxSpec, snapshot_of_layer};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::paths::{Paths, templates_dir};
use crate::settings::Settings;

/// Raised when the content of templates changes, so that an upgrade creates new ones.
const TEMPLATE_VERSION: u32 = 2;
const COPY_BYTES: usize = 1 << 20;

/// What a new disk contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// The directories that a sandbox has with any image.
    Directories,
    /// Nothing: a snapshot below it has the directories.
    Empty,
    /// What the disk of a snapshot contains.
    CopyOf(&'a Path),
}

impl<'a> Content<'a> {
    /// That of the disk of a new sandbox.
    pub fn of(spec: &'a SandboxSpec) -> Self {
        spec.disk_from.as_deref().map_or_else(|| Self::without_copy(spec), Content::CopyOf)
    }

    /// That of a disk which replaces a lost one.
    pub fn without_copy(spec: &SandboxSpec) -> Self {
        if spec.layers.iter().any(|layer| snapshot_of_layer(layer).is_some()) {
            Self::Empty
        } else {
            Self::Directories
        }
    }
}

/// Creates the disk of a sandbox if it has none.
pub fn ensure(
    settings: &Settings,
    paths: &Paths,
    disk_mb: u32,
    content: Content<'_>,
) -> Result<(), DriverError> {
    let disk = paths.disk();
    if disk.exists() {
        return Ok(());
    }
    create(settings, &paths.unfinished_disk(), disk_mb, content)?;
    fs::rename(paths.unfinished_disk(), &disk)
        .and_then(|()| if matches!(content, Content::CopyOf(_)) { sync_names(&paths.data) } else { Ok(()) })
        .at(DriverStep::SaveDisk)
}

/// Creates a disk. A copy of a snapshot survives a power failure; an empty disk is created again after one.
pub fn create(
    settings: &Settings,
    image: &Path,
    disk_mb: u32,
    content: Content<'_>,
) -> Result<(), DriverError> {
    let Content::CopyOf(snapshot) = content else {
        let template = template(settings, disk_mb, content)?;
        return copy_sparse(&template, image).at(DriverStep::CopyTemplate);
    };
    copy_sparse(snapshot, image).at(DriverStep::CopySnapshotDisk)?;
    let file = File::options().write(true).open(image).at(DriverStep::CopySnapshotDisk)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).at(DriverStep::CopySnapshotDisk)?;
    let bytes = u64::from(disk_mb) << 20;
    if bytes > file.metadata().at(DriverStep::CopySnapshotDisk)?.len() {
        file.set_len(bytes).at(DriverStep::CopySnapshotDisk)?;
        grow_file_system(image)?;
    }
    file.sync_all().at(DriverStep::CopySnapshotDisk)
}

fn grow_file_system(image: &Path) -> Result<(), DriverError> {
    // Forced: it would ask for a check, which the journal makes unnecessary.
    let output = Command::new("resize2fs").arg("-f").arg(image).output().at(DriverStep::RunResize)?;
    if output.status.success() {
        return Ok(());
    }
    Err(DriverError::failed(DriverStep::RunResize, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Saves the names in a directory, and its own.
pub fn sync_names(dir: &Path) -> io::Result<()> {
    base::sync_dir(dir)?;
    base::sync_parent(dir)
}

/// The template of a size; creates it if it does not exist.
fn template(settings: &Settings, disk_mb: u32, content: Content<'_>) -> Result<PathBuf, DriverError> {
    let dir = templates_dir(settings);
    let kind = if content == Content::Empty { "-empty" } else { "" };
    let finished = dir.join(format!("disk-{disk_mb}mb-v{TEMPLATE_VERSION}{kind}.img"));
    if finished.exists() {
        return Ok(finished);
    }
    // Concurrent callers work under different names; the last rename wins, and both files are complete.
    let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let work = dir.join(format!("new-{disk_mb}mb-{unique}{kind}"));
    let created = create_template(&work, disk_mb, content)
        .and_then(|image| fs::rename(image, &finished).at(DriverStep::MakeTemplate));
    let cleared = fs::remove_dir_all(&work).at(DriverStep::MakeTemplate);
    created.and(cleared).map(|()| finished)
}

/// Removes incomplete templates of processes that have died.
pub fn clear_unfinished(settings: &Settings) -> io::Result<()> {
    for entry in fs::read_dir(templates_dir(settings))? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("new-")?.split('-').nth(1));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

pub fn create_template(work: &Path, disk_mb: u32, content: Content<'_>) -> Result<PathBuf, DriverError> {
    let tree = work.join("tree");
    lay_out(&tree, content).at(DriverStep::MakeTemplate)?;
    let image = work.join("image");
    let file = File::create(&image).at(DriverStep::MakeTemplate)?;
    file.set_len(u64::from(disk_mb) * 1024 * 1024).at(DriverStep::MakeTemplate)?;
    let output = Command::new("mkfs.ext4")
        // No blocks reserved for root, as which all commands run. A small journal, lazy tables and one copy of the superblock
        // keep the template small.
        .args(["-q", "-F", "-b", "4096", "-m", "0", "-J", "size=4", "-L", "sandbox"])
        .args(["-O", "^resize_inode,^sparse_super,sparse_super2"])
        .args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,packed_meta_blocks=1,num_backup_sb=1"])
        .arg("-d")
        .arg(&tree)
        .arg(&image)
        .output()
        .at(DriverStep::RunMkfs)?;
    if !output.status.success() {
        return Err(DriverError::failed(DriverStep::RunMkfs, String::from_utf8_lossy(&output.stderr).trim()));
    }
    file.sync_all().at(DriverStep::MakeTemplate)?;
    Ok(image)
}

const OVERLAY_DIRECTORIES: [(&str, u32); 2] = [("work", 0o700), ("upper", 0o755)];
/// Directories that a sandbox has from the start, with any image.
const DIRECTORIES: [(&str, u32); 6] = [
    ("upper/workspace", 0o755),
    ("upper/tmp", 0o1777),
    ("upper/etc", 0o755),
    ("upper/proc", 0o555),
    ("upper/sys", 0o555),
    ("upper/dev", 0o755),
];
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";

fn lay_out(tree: &Path, content: Content<'_>) -> io::Result<()> {
    let own: &[_] = if content == Content::Directories { &DIRECTORIES } else { &[] };
    for (dir, mode) in OVERLAY_DIRECTORIES.iter().chain(own) {
        fs::create_dir_all(tree.join(dir))?;
        fs::set_permissions(tree.join(dir), fs::Permissions::from_mode(*mode))?;
    }
    if content == Content::Directories {
        fs::write(tree.join("upper/etc/hosts"), HOSTS)?;
    }
    Ok(())
}

/// Copies data and preserves holes, by reference where the file system supports it.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    let length = source.metadata()?.len();
    target.set_len(length)?;
    copy_data(&source, &target, 0..length, &mut || {})
}

/// Copies the data in a range of an image, which may be in use, to another image. Holes of the source become holes. Calls
/// `after_piece` after each piece.
pub fn copy_data(
    source: &File,
    target: &File,
    range: Range<u64>,
    after_piece: &mut dyn FnMut(),
) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = range.start;
    while at < range.end {
        let start = match seek(source, SeekFrom::Data(at)) {
            Ok(start) => start.min(range.end),
            Err(rustix::io::Errno::NXIO) => range.end,
            Err(error) => return Err(error.into()),
        };
        punch(target, at..start)?;
        if start == range.end {
            break;
        }
        let end = seek(source, SeekFrom::Hole(start))?.min(range.end);
        at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            source.read_exact_at(&mut buffer[..want], at)?;
            target.write_all_at(&buffer[..want], at)?;
            at += want as u64;
            after_piece();
        }
    }
    Ok(())
}

/// Makes a hole. Asks first whether there is data, which is cheaper than to punch a large hole into an empty file.
fn punch(file: &File, range: Range<u64>) -> io::Result<()> {
    match seek(file, SeekFrom::Data(range.start)) {
        Ok(data) if data < range.end => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(file, flags, data, range.end - data)?)
        }
        Ok(_) | Err(rustix::io::Errno::NXIO) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_sparse_copy_has_the_same_bytes_and_stays_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        file.write_all_at(&[7; 300_000], 40 << 20).unwrap();
        copy_sparse(&from, &to).unwrap();
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
        assert!(fs::metadata(&to).unwrap().blocks() * 512 < 2 << 20);
    }

    #[test]
    fn a_range_is_copied_with_its_holes() {
        let dir = tempfile::tempdir().unwrap();
        let image = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            File::create(&path).unwrap();
            let file = File::options().read(true).write(true).open(path).unwrap();
            file.set_len(16 << 20).unwrap();
            file.write_all_at(bytes, 4 << 20).unwrap();
            file
        };
        // The target has old data where the source has a hole.
        let (source, target) = (image("source", &[1; 4096]), image("target", &[2; 2 << 20]));
        copy_data(&source, &target, 4 << 20..5 << 20, &mut || {}).unwrap();
        let mut read = vec![9; 2 << 20];
        target.read_exact_at(&mut read, 4 << 20).unwrap();
        assert!(read[..4096].iter().all(|byte| *byte == 1));
        assert!(read[4096..1 << 20].iter().all(|byte| *byte == 0));
        assert!(read[1 << 20..].iter().all(|byte| *byte == 2), "outside of the range nothing changes");
        assert!(target.metadata().unwrap().blocks() * 512 < 2 << 20);
    }
}
