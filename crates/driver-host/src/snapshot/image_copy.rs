//! The disk of a snapshot: a copy of a sandbox's disk image, made while the sandbox uses it.
//!
//! ```text
//! begin     copies the image, and again what was written meanwhile, until little is left
//! capture   (processes are frozen) writes all cached data to the image, copies what is left
//! finish    lets the file system replay its journal, makes the copy durable and gives it its name
//! ```
//!
//! If the host's file system can share data between files, the capture is one system call and nothing is copied.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use driver::{AtStep, DriverError, DriverStep, SnapshotDisk};

use super::SnapshotDir;
use super::changes::{ChangeTracker, Changes};
use crate::disk::ext4::{mount_disk, sync};
use crate::disk::{MountId, MountedDisk, copy_data, sync_names};
use crate::{loopdev, stored_processes};

/// The capture begins when less than this is left to copy, or after this many passes.
const LITTLE: u64 = 8 << 20;
const PASSES: u32 = 4;
/// Passes of a capture. Only the kernel writes then, and hardly anything.
const CAPTURE_PASSES: u32 = 16;

/// A copy in progress.
pub struct ImageCopy {
    pub dir: SnapshotDir,
    source: File,
    target: File,
    /// Whether the host's file system can share data between files.
    is_shared: bool,
    /// Of the disk that was mounted when the copy began.
    tracked: Option<(MountId, ChangeTracker)>,
}

impl ImageCopy {
    /// `disk` is an image, which is mounted if the sandbox has processes. The mount is not held during the copy: the sandbox may be
    /// stopped and started meanwhile.
    pub fn begin(disk: &Path, dir: SnapshotDir, mounted: Option<MountedDisk>) -> io::Result<Self> {
        let source = File::open(disk)?;
        fs::create_dir_all(&dir.0)?;
        let open =
            File::options().read(true).write(true).create(true).truncate(true).open(dir.unfinished_image());
        let target = open?;
        let is_shared = rustix::fs::ioctl_ficlone(&target, &source).is_ok();
        let mut copy = Self { dir, source, target, is_shared, tracked: None };
        if let Some(mounted) = mounted.filter(|_| !is_shared) {
            // What is written before this call is copied by the first pass.
            copy.tracked = track(&mounted);
            sync(&mounted.mount)?;
        }
        if !is_shared {
            copy.target.set_len(copy.source.metadata()?.len())?;
            copy.copy_all()?;
            copy.copy_until_little_is_left()?;
        }
        Ok(copy)
    }

    fn copy_all(&mut self) -> io::Result<()> {
        let Self { source, target, tracked, .. } = self;
        let length = source.metadata()?.len();
        copy_data(source, target, 0..length, &mut || {
            if let Some((_, tracker)) = tracked {
                tracker.poll();
            }
        })
    }

    /// Copies what was written since the last pass. Returns the number of copied bytes; `None` if that is unknown.
    fn copy_changes(&mut self) -> io::Result<Option<u64>> {
        let Some((_, tracker)) = &mut self.tracked else { return Ok(None) };
        let Changes::Ranges(ranges) = tracker.take() else { return Ok(None) };
        let length = self.source.metadata()?.len();
        let mut bytes = 0;
        for range in ranges {
            let range = range.start.min(length)..range.end.min(length);
            bytes += range.end - range.start;
            copy_data(&self.source, &self.target, range, &mut || tracker.poll())?;
        }
        Ok(Some(bytes))
    }

    fn copy_until_little_is_left(&mut self) -> io::Result<()> {
        for _ in 0..PASSES {
            match self.copy_changes()? {
                Some(bytes) if bytes > LITTLE => {}
                // Too much was written for the tracker. It gets another chance.
                None if self.tracked.is_some() => self.copy_all()?,
                _ => break,
            }
        }
        Ok(())
    }

    /// Writes cached data to the image, so that less is left when the processes are frozen.
    pub fn approach(&mut self, mounted: Option<&MountedDisk>) -> io::Result<()> {
        let Some(mounted) = mounted else { return Ok(()) };
        sync(&mounted.mount)?;
        if !self.is_shared && self.is_tracked(mounted) && self.copy_changes()?.is_none() {
            // The tracker forgets what it has lost, so the whole disk is copied again.
            self.copy_all()?;
        }
        Ok(())
    }

    /// Completes the copy. Nothing may write to the disk meanwhile. Fails if the sandbox has got another disk since the copy began.
    pub fn capture(&mut self, disk: &Path, mounted: Option<&MountedDisk>) -> io::Result<()> {
        if fs::metadata(disk)?.ino() != self.source.metadata()?.ino() {
            return Err(io::Error::other("the disk was replaced meanwhile"));
        }
        match mounted {
            Some(mounted) => sync(&mounted.mount)?,
            // The kernel writes what is cached when the last process of the sandbox is gone, which may have ended a moment ago.
            None => loopdev::wait_until_detached(disk)?,
        }
        if self.is_shared {
            return Ok(rustix::fs::ioctl_ficlone(&self.target, &self.source)?);
        }
        if mounted.is_some_and(|mounted| self.is_tracked(mounted)) {
            for _ in 0..CAPTURE_PASSES {
                match self.copy_changes()? {
                    Some(0) => return Ok(()),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        self.copy_all()
    }

    /// Whether the changes of this mount were tracked since the copy began.
    fn is_tracked(&self, mounted: &MountedDisk) -> bool {
        self.tracked.as_ref().is_some_and(|(tracked, _)| *tracked == mounted.id)
    }

    pub fn finish(self) -> Result<SnapshotDisk, DriverError> {
        let Self { dir, source, target, tracked, .. } = self;
        drop((source, tracked));
        // The file system was in use: the mount replays its journal, and the end of the mount leaves it clean.
        drop(mount_disk(&dir.unfinished_image())?);
        publish(&dir, &target).at(DriverStep::FinishSnapshot)
    }
}

/// Makes the copy durable and gives it its name.
fn publish(dir: &SnapshotDir, target: &File) -> io::Result<SnapshotDisk> {
    let unfinished = dir.unfinished_image();
    loopdev::wait_until_detached(&unfinished)?;
    let mut bytes = target.metadata()?.blocks() * 512;
    let memory = dir.memory();
    if memory.exists() {
        stored_processes::sync(&memory)?;
        bytes += stored_processes::size(&memory)?;
    }
    target.set_permissions(fs::Permissions::from_mode(0o400))?;
    target.sync_all()?;
    let layer = dir.image();
    fs::rename(unfinished, &layer)?;
    sync_names(&dir.0)?;
    Ok(SnapshotDisk { layer, bytes })
}

fn track(mounted: &MountedDisk) -> Option<(MountId, ChangeTracker)> {
    match ChangeTracker::start(mounted.id.device) {
        Ok(tracker) => Some((mounted.id, tracker)),
        Err(error) => {
            tracing::warn!(%error, "cannot track the writes to a disk; a snapshot freezes its sandbox for the whole copy");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::path::{Path, PathBuf};

    use rustix::fs::{Mode, OFlags, openat};
    use rustix::io::Errno;

    use super::*;
    use crate::disk::{Content, create_template};
    use crate::snapshot::changes::processors;

    /// A mounted disk of 64 MB, and a copy of it in progress.
    fn begin(dir: &Path) -> (MountedDisk, PathBuf, ImageCopy) {
        let disk = dir.join("disk.img");
        fs::rename(create_template(&dir.join("template"), 64, Content::Directories).unwrap(), &disk).unwrap();
        let (mount, device) = mount_disk(&disk).unwrap();
        let id = MountId { device, start: 1 };
        let again = MountedDisk { id, mount: mount.try_clone().unwrap() };
        let snapshot = SnapshotDir(dir.join("snap_12345678"));
        let copy = ImageCopy::begin(&disk, snapshot, Some(again)).unwrap();
        (MountedDisk { id, mount }, disk, copy)
    }

    fn write(mounted: &MountedDisk, name: &str, content: &[u8]) {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&mounted.mount, format!("upper/{name}"), flags, Mode::RUSR).unwrap();
        File::from(file).write_all(content).unwrap();
    }

    /// The content of these files in the finished copy; `None` for one that it lacks.
    fn contents(copy: ImageCopy, names: &[String]) -> Vec<Option<Vec<u8>>> {
        let disk = copy.finish().unwrap();
        assert!(disk.layer.ends_with("snap_12345678/snap_12345678.img"));
        let device = loopdev::attach_read_only(&disk.layer).unwrap();
        let mount = crate::disk::ext4::mount_read_only(&device.path).unwrap();
        let read = |name: &String| {
            let file = match openat(&mount, format!("upper/{name}"), OFlags::RDONLY, Mode::empty()) {
                Err(Errno::NOENT) => return None,
                file => file.unwrap(),
            };
            let mut content = Vec::new();
            File::from(file).read_to_end(&mut content).unwrap();
            Some(content)
        };
        names.iter().map(read).collect()
    }

    #[test]
    fn what_is_written_after_the_beginning_is_in_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let (mounted, disk, mut copy) = begin(dir.path());
        let content = vec![7; 3 << 20];
        write(&mounted, "first", &content);
        copy.approach(Some(&mounted)).unwrap();
        write(&mounted, "second", b"small");
        copy.capture(&disk, Some(&mounted)).unwrap();
        write(&mounted, "third", b"too late");
        let found = contents(copy, &["first", "second", "third"].map(str::to_owned));
        assert!(found == [Some(content), Some(b"small".to_vec()), None]);
    }

    #[test]
    fn a_copy_is_complete_although_events_were_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (mounted, disk, mut copy) = begin(dir.path());
        let tracker = ChangeTracker::with_rings(mounted.id.device, processors().unwrap(), 1).unwrap();
        (copy.is_shared, copy.tracked) = (false, Some((mounted.id, tracker)));
        let names: Vec<String> = (0..300).map(|number| format!("file-{number}")).collect();
        // Each file is at least one request of its own.
        for (number, name) in names.iter().enumerate() {
            write(&mounted, name, &name.repeat(500).into_bytes());
            if number % 3 == 0 {
                sync(&mounted.mount).unwrap();
            }
        }
        copy.approach(Some(&mounted)).unwrap();
        copy.capture(&disk, Some(&mounted)).unwrap();
        for (name, found) in names.iter().zip(contents(copy, &names)) {
            assert!(found == Some(name.repeat(500).into_bytes()), "{name} differs");
        }
    }

    #[test]
    fn a_replaced_disk_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (mounted, disk, mut copy) = begin(dir.path());
        let other = dir.path().join("other");
        fs::copy(&disk, &other).unwrap();
        fs::rename(&other, &disk).unwrap();
        assert!(copy.capture(&disk, Some(&mounted)).is_err());
    }
}
