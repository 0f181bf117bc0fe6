//! Id-mapped mounts: files appear to be owned by the sandbox's own range of host ids.
//!
//! On disk the files of a layer belong to ids 0..65535. A mount with an id map shows them as `base..base+65535`, which the
//! sandbox's user namespace in turn shows as 0..65535 again. No file is copied and none changes its owner.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// Number of ids of a sandbox.
pub const IDS: u32 = 65_536;

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// Attributes of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// As the mount is.
    pub const NONE: Self = Self(0);
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(0x1);
    /// Programs do not get the rights of their owners.
    pub const NO_SET_USER_ID: Self = Self(0x2);
    /// Device files cannot be opened.
    pub const NO_DEVICES: Self = Self(0x4);
    /// Nothing can be executed.
    pub const NO_EXECUTION: Self = Self(0x8);
}

impl std::ops::BitOr for Attributes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Whether a mount is writable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountAccess {
    ReadOnly,
    ReadWrite,
}

/// A user namespace that maps 0..65535 to `base..`, as the id map of mounts.
#[derive(Debug)]
pub struct UserNamespace(OwnedFd);

impl UserNamespace {
    /// The namespace of a process.
    pub fn of(pid: libc::pid_t) -> io::Result<Self> {
        Ok(Self(fs::File::open(format!("/proc/{pid}/ns/user"))?.into()))
    }

    /// Writes the map of a process that was created in a new namespace.
    pub fn map(pid: libc::pid_t, base: u32) -> io::Result<()> {
        let map = format!("0 {base} {IDS}");
        fs::write(format!("/proc/{pid}/uid_map"), &map)?;
        fs::write(format!("/proc/{pid}/gid_map"), &map)
    }

    /// A new namespace.
    pub fn with_base(base: u32) -> io::Result<Self> {
        let child = Holder::spawn()?;
        Self::map(child.0, base)?;
        Self::of(child.0)
    }

    /// Sets this map on a detached mount.
    pub fn apply(&self, mount: &OwnedFd, access: MountAccess) -> io::Result<()> {
        let read_only =
            if access == MountAccess::ReadOnly { Attributes::READ_ONLY } else { Attributes::NONE };
        let attributes = Attributes(MOUNT_ATTR_IDMAP) | Attributes::NO_DEVICES | read_only;
        set(mount, libc::AT_EMPTY_PATH, attributes, Some(&self.0))
    }

    /// A mapped, read-only copy of the tree at `source`, attached at `target`.
    pub fn bind_read_only(&self, source: &Path, target: &Path) -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(rustix::fs::CWD, source, flags)?;
        self.apply(&tree, MountAccess::ReadOnly)?;
        attach(&tree, target)
    }
}

/// Adds attributes to a mount and those below it.
pub fn set_attributes(mount: &OwnedFd, attributes: Attributes) -> io::Result<()> {
    set(mount, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attributes, None)
}

fn set(
    mount: &OwnedFd,
    flags: libc::c_int,
    attributes: Attributes,
    users: Option<&OwnedFd>,
) -> io::Result<()> {
    let attr = MountAttr {
        set: attributes.0,
        clear: 0,
        propagation: 0,
        // A file descriptor is never negative.
        userns_fd: users.map_or(0, |users| u64::from(users.as_raw_fd().unsigned_abs())),
    };
    // SAFETY: the kernel reads `size_of::<MountAttr>()` bytes from a live struct of that layout and an empty C string.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Attaches a detached mount.
pub fn attach(mount: &OwnedFd, target: &Path) -> io::Result<()> {
    move_mount(mount.as_fd(), "", rustix::fs::CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// A child that holds its user namespace; killed on drop.
struct Holder(libc::pid_t);

impl Holder {
    fn spawn() -> io::Result<Self> {
        // clone without a stack is a fork: the child runs on a copy of the parent's stack.
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: as after any fork of a threaded process, the child may only make async-signal-safe calls: it makes none
        // but those in `wait_for_kill`. No pointer is passed.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => wait_for_kill(parent),
            pid => Ok(Self(libc::pid_t::try_from(pid).map_err(io::Error::other)?)),
        }
    }
}

/// Waits until the child is killed, at the latest when the thread that created it ends.
fn wait_for_kill(parent: libc::pid_t) -> ! {
    // SAFETY: these calls are async-signal-safe and take no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // If the parent died before the line above, the signal never comes.
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        loop {
            libc::pause();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: the pid is that of a child that was not waited for yet, so it is not reused.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
