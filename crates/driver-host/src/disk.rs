//! A sandbox's own disk: one sparse ext4 image whose size is the sandbox's hard limit.
//!
//! For each size `mkfs.ext4` creates a template once; a sandbox gets a sparse copy of it. It holds `upper` and `work`
//! for the overlay. An incomplete disk has another name and is never used.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use driver::DriverError;
use rustix::fs::{SeekFrom, seek};

use crate::paths::{Paths, templates_dir};
use crate::settings::Settings;

/// Raised when the content of templates changes, so that an upgrade creates new ones.
const TEMPLATE_VERSION: u32 = 2;
const COPY_BYTES: usize = 256 * 1024;

/// Creates the disk of a sandbox if it has none.
pub fn ensure(settings: &Settings, paths: &Paths, disk_mb: u32) -> Result<(), DriverError> {
    let disk = paths.disk();
    if disk.exists() {
        return Ok(());
    }
    let template = template(settings, disk_mb)?;
    let unfinished = paths.unfinished_disk();
    copy_sparse(&template, &unfinished)
        .and_then(|()| fs::rename(&unfinished, &disk))
        .map_err(|error| DriverError::failed("copy the disk's template", error))
}

/// The template of a size; creates it if it does not exist.
pub fn template(settings: &Settings, disk_mb: u32) -> Result<PathBuf, DriverError> {
    let dir = templates_dir(settings);
    let finished = dir.join(format!("disk-{disk_mb}mb-v{TEMPLATE_VERSION}.img"));
    if finished.exists() {
        return Ok(finished);
    }
    // Concurrent callers work under different names; the last rename wins, and both files are complete.
    let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let work = dir.join(format!("new-{disk_mb}mb-{unique}"));
    let created = create_template(&work, disk_mb).and_then(|image| {
        fs::rename(image, &finished).map_err(|error| DriverError::failed("rename the template", error))
    });
    let cleared = fs::remove_dir_all(&work)
        .map_err(|error| DriverError::failed("remove the template's work directory", error));
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

pub fn create_template(work: &Path, disk_mb: u32) -> Result<PathBuf, DriverError> {
    let failed = |error: io::Error| DriverError::failed("lay out a disk template", error);
    let tree = work.join("tree");
    lay_out(&tree).map_err(failed)?;
    let image = work.join("image");
    let file = File::create(&image).map_err(failed)?;
    file.set_len(u64::from(disk_mb) * 1024 * 1024).map_err(failed)?;
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
        .map_err(|error| DriverError::failed("run mkfs.ext4 (package e2fsprogs)", error))?;
    if !output.status.success() {
        return Err(DriverError::failed("run mkfs.ext4", String::from_utf8_lossy(&output.stderr).trim()));
    }
    file.sync_all().map_err(failed)?;
    Ok(image)
}

/// Directories that a disk has from the start, with any image.
fn lay_out(tree: &Path) -> io::Result<()> {
    for (dir, mode) in [
        ("work", 0o700),
        ("upper", 0o755),
        ("upper/workspace", 0o755),
        ("upper/tmp", 0o1777),
        ("upper/etc", 0o755),
        ("upper/proc", 0o555),
        ("upper/sys", 0o555),
        ("upper/dev", 0o755),
    ] {
        fs::create_dir_all(tree.join(dir))?;
        fs::set_permissions(tree.join(dir), fs::Permissions::from_mode(mode))?;
    }
    fs::write(tree.join("upper/etc/hosts"), "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
}

/// Copies data and preserves holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < length {
        let start = match seek(&source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(&source, SeekFrom::Hole(start))?;
        copy_range(&source, &target, start, end, &mut buffer)?;
        at = end;
    }
    Ok(())
}

fn copy_range(source: &File, target: &File, start: u64, end: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        source.read_exact_at(&mut buffer[..want], at)?;
        target.write_all_at(&buffer[..want], at)?;
        at += want as u64;
    }
    Ok(())
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
}
