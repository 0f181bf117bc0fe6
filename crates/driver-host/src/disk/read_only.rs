//! Finds disks of sandboxes whose file system has become read-only. That happens when the kernel cannot write its journal, for example
//! because the file system below the image is full. Only an unmount ends it.

use std::fs;
use std::io;
use std::path::Path;

use api::SandboxId;

use crate::loopdev::{self, DeviceNumber};

/// Where the kernel lists its ext4 file systems, each a directory with the name of its device.
const FILE_SYSTEMS: &str = "/proc/fs/ext4";
const OPTIONS: &str = "options";

/// Sandboxes whose disk is mounted and read-only, also those of other daemons on this host.
pub fn find() -> io::Result<Vec<SandboxId>> {
    let entries = match fs::read_dir(FILE_SYSTEMS) {
        // No ext4 file system was mounted since the boot.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok()) else {
            continue;
        };
        // It may have been unmounted meanwhile.
        let Ok(options) = fs::read_to_string(entry.path().join(OPTIONS)) else { continue };
        if refuses_writes(&options) {
            found.extend(loopdev::backing_path(number).and_then(|path| sandbox_of_disk(Path::new(&path))));
        }
    }
    Ok(found)
}

/// Whether the file system on this loop device is mounted and refuses writes.
pub fn is_read_only(device: DeviceNumber) -> io::Result<bool> {
    let dir = Path::new(FILE_SYSTEMS).join(format!("loop{}", device.minor));
    match fs::read_to_string(dir.join(OPTIONS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        options => Ok(refuses_writes(&options?)),
    }
}

/// Whether a file system with these options, one a line, refuses writes. Kernels since 6.15 leave `rw` and add `emergency_ro`.
fn refuses_writes(options: &str) -> bool {
    options.lines().any(|option| matches!(option, "ro" | "emergency_ro"))
}

/// The sandbox whose disk this is. Disks of snapshots are always mounted read-only.
fn sandbox_of_disk(path: &Path) -> Option<SandboxId> {
    if path.file_name()? != "disk.img" {
        return None;
    }
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use rustix::fs::{Mode, OFlags, openat};

    use super::*;
    use crate::disk::ext4::{mount_disk, sync};
    use crate::disk::{Content, create_template};

    #[test]
    fn options_of_old_and_new_kernels_are_understood() {
        assert!(!refuses_writes("rw\nbsddf\nerrors=remount-ro\n"));
        assert!(refuses_writes("ro\nbsddf\nerrors=remount-ro\n"));
        assert!(refuses_writes("rw\nbsddf\nerrors=remount-ro\nemergency_ro\n"));
    }

    #[test]
    fn only_disks_of_sandboxes_count() {
        let id: SandboxId = SandboxId::from_random([7; 20]);
        let of = |path: &str| sandbox_of_disk(Path::new(path));
        assert_eq!(of(&format!("/data/sandboxes/{id}/disk.img")), Some(id));
        assert_eq!(of("/data/snapshots/snap_12345678/snap_12345678.img"), None);
        assert_eq!(of("/else/disk.img"), None);
    }

    fn open(mount: &OwnedFd, name: &str) -> io::Result<File> {
        Ok(openat(mount, name, OFlags::CREATE | OFlags::RDWR, Mode::RUSR)?.into())
    }

    /// A disk on a small file system that something else fills.
    #[test]
    fn a_disk_on_a_full_file_system_becomes_read_only() {
        let dir = tempfile::tempdir().unwrap();
        let host = create_template(&dir.path().join("host"), 64, Content::Empty).unwrap();
        let (host, _) = mount_disk(&host).unwrap();
        let id: SandboxId = SandboxId::from_random([7; 20]);
        let image = create_template(&dir.path().join("disk"), 48, Content::Directories).unwrap();
        let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&host));
        let sandbox = Path::new(&place).join(id.as_str());
        fs::create_dir(&sandbox).unwrap();
        let disk = sandbox.join("disk.img");
        let file = File::create(&disk).unwrap();
        file.set_len(48 << 20).unwrap();
        crate::disk::copy_data(&File::open(&image).unwrap(), &file, 0..48 << 20, &mut || {}).unwrap();
        let (mount, device) = mount_disk(&disk).unwrap();
        assert!(!find().unwrap().contains(&id) && !is_read_only(device).unwrap());
        let mut filled = open(&host, "filled").unwrap();
        while filled.write_all(&[1; 64 << 10]).is_ok() {}
        for number in 0..100 {
            // These fail at some time.
            let _ = open(&mount, "upper/big").and_then(|mut file| file.write_all(&vec![number; 4 << 20]));
            let _ = sync(&mount);
            if find().unwrap().contains(&id) {
                assert!(is_read_only(device).unwrap());
                return;
            }
        }
        panic!("the disk is not found to be read-only");
    }
}
