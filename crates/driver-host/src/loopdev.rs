//! Loop devices that the kernel detaches after their last use.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FlockOperation};
use rustix::io::Errno;

// From the kernel's <linux/loop.h>.
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LOOP_MAJOR: u32 = 7;
/// How long a file system may take to be unmounted, which writes what is dirty.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
const LOCK_INTERVAL: Duration = Duration::from_millis(1);
/// Attempts: another process may take the free device between the two calls.
const ATTEMPTS: u32 = 64;

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// The number of a block device, written `7:3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DeviceNumber {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = text.trim().split_once(':').unwrap_or((text, ""));
        Ok(Self { major: major.parse()?, minor: minor.parse()? })
    }
}

/// A file, whatever its name: the number of its file system and of its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` if no file has this name.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self { device: metadata.dev(), inode: metadata.ino() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An attached device. The kernel detaches it when this value and all its mounts are gone, so a killed daemon leaves
/// no device attached.
#[derive(Debug)]
pub struct LoopDevice {
    pub path: String,
    pub number: DeviceNumber,
    open: OwnedFd,
}

impl LoopDevice {
    /// Asks the kernel to read the first bytes of the device: with one request instead of one for each block that a mount needs.
    pub fn read_ahead(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.open, 0, NonZeroU64::new(bytes), Advice::WillNeed)?)
    }
}

/// Whether this is a loop device that is detached.
pub fn is_free(device: DeviceNumber) -> bool {
    device.major == LOOP_MAJOR && !Path::new(&backing_file(device)).exists()
}

fn backing_file(device: DeviceNumber) -> String {
    format!("/sys/dev/block/{device}/loop/backing_file")
}

/// Whether a loop device is detached, or attached to a file in a directory of this name.
pub fn is_free_or_of(device: DeviceNumber, dir: &str) -> bool {
    let file = fs::read_to_string(backing_file(device));
    file.map_or(true, |path| path.split('/').any(|part| part == dir))
}

/// The path of the file that the loop device with this number in its name is attached to.
pub fn backing_path(number: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/class/block/loop{number}/loop/backing_file")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Attaches `backing` to a free loop device. Waits until an earlier device of the same file is detached: two file systems over one
/// file would destroy it.
pub fn attach(backing: &Path) -> io::Result<LoopDevice> {
    let file = OpenOptions::new().read(true).write(true).open(backing)?;
    lock(&file)?;
    attach_file(&file, LO_FLAGS_AUTOCLEAR)
}

/// Attaches `backing` to a free loop device that cannot be written.
pub fn attach_read_only(backing: &Path) -> io::Result<LoopDevice> {
    attach_file(&File::open(backing)?, LO_FLAGS_AUTOCLEAR | LO_FLAGS_READ_ONLY)
}

/// Waits until no loop device of this image is left that could write to it.
pub fn wait_until_detached(image: &Path) -> io::Result<()> {
    lock(&File::open(image)?)
}

/// The loop device that is attached to a file.
pub fn find(backing: &Path) -> io::Result<Option<DeviceNumber>> {
    // The kernel shows the path without symbolic links.
    let backing = backing.canonicalize()?;
    for minor in numbers()? {
        let device = DeviceNumber { major: LOOP_MAJOR, minor };
        let file = fs::read_to_string(backing_file(device));
        if file.is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == backing) {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// The files that loop devices are attached to, also those that were renamed or deleted since.
pub fn attached_files() -> io::Result<HashSet<FileId>> {
    numbers()?.into_iter().filter_map(|number| attached_file(number).transpose()).collect()
}

/// The numbers in the names of all loop devices. With partitions they are not the minor numbers.
fn numbers() -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/sys/class/block")? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix("loop")?.parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// The file that a loop device is attached to; `None` if it is detached. An attached device that cannot be read is an error: its file
/// must not look unused.
fn attached_file(number: u32) -> io::Result<Option<FileId>> {
    let backing_file = format!("/sys/class/block/loop{number}/loop/backing_file");
    let is_detached = || !Path::new(&backing_file).exists();
    if is_detached() {
        return Ok(None);
    }
    match backing_id(&format!("/dev/loop{number}")) {
        // A moment ago.
        Err(_) if is_detached() => Ok(None),
        found => found.map(Some),
    }
}

fn backing_id(device: &str) -> io::Result<FileId> {
    let opened = File::open(device)?;
    // SAFETY: the struct is plain integers, for which all zeroes is a value.
    let mut info: LoopInfo64 = unsafe { std::mem::zeroed() };
    // SAFETY: LOOP_GET_STATUS64 writes one `struct loop_info64`, which `info` is, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(opened.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(FileId { device: info.device, inode: info.inode })
}

impl DeviceNumber {
    /// The path of a loop device.
    pub fn loop_path(self) -> String {
        format!("/dev/loop{}", self.minor)
    }

    /// From the device number of a file.
    pub fn of(number: u64) -> Self {
        Self { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }
}

fn attach_file(file: &File, flags: u32) -> io::Result<LoopDevice> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..ATTEMPTS {
        match try_attach(&control, file, flags) {
            Ok(device) => return Ok(device),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// The device keeps the open file, and with it the lock, until it is detached. That may be after the daemon has closed its last
/// descriptor of the mount: a program that it was starting at that moment has a copy until it is executed.
fn lock(file: &File) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begin.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_INTERVAL),
            Err(Errno::INTR) => {}
            locked => return Ok(locked?),
        }
    }
}

fn try_attach(control: &File, backing: &File, flags: u32) -> io::Result<LoopDevice> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and accesses no memory of this process.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    let path = format!("/dev/loop{number}");
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&path)?;
    // SAFETY: the struct is plain integers, for which all zeroes is a value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = u32::try_from(backing.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // 4096-byte sectors: the size of the file system's blocks, so no read-modify-write below it.
    config.block_size = 4096;
    config.info.flags = flags;
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, which `config` is, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = DeviceNumber::of(device.metadata()?.rdev());
    Ok(LoopDevice { path, number, open: device.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_device_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let first = attach(&path).unwrap();
        let begin = Instant::now();
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| attach(&path).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap()
        });
        assert!(begin.elapsed() >= Duration::from_millis(100));
        assert_eq!(find(&path).unwrap(), Some(second.number));
        assert!(is_free_or_of(second.number, dir.path().file_name().unwrap().to_str().unwrap()));
    }

    #[test]
    fn an_attached_file_is_known_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("disk"), dir.path().join("moved"));
        let make = || File::create(&path).unwrap().set_len(1 << 20).unwrap();
        make();
        let device = attach(&path).unwrap();
        let attached = FileId::of(&path).unwrap().unwrap();
        assert!(attached_files().unwrap().contains(&attached));
        fs::rename(&path, &moved).unwrap();
        assert_eq!(FileId::of(&path).unwrap(), None);
        make();
        let files = attached_files().unwrap();
        assert!(files.contains(&attached) && !files.contains(&FileId::of(&path).unwrap().unwrap()));
        fs::remove_file(&moved).unwrap();
        assert!(attached_files().unwrap().contains(&attached));
        drop(device);
    }

    /// Otherwise the processes of all sandboxes would seem to use other files than their disks.
    #[test]
    fn a_device_that_cannot_be_read_is_an_error() {
        let missing = backing_id("/dev/no-loop-device").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(backing_id("/dev/null").is_err());
    }
}
