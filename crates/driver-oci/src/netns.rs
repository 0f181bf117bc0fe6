//! Network namespaces: that of a sandbox that was just started, and one for a sandbox that will be.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use driver::NetworkHook;
use driver_host::{Paths, first_process, state_of_child};
use rustix::mount::{MountFlags, mount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

const OWN: &str = "/proc/thread-self/ns/net";

/// Passes the network namespace of the container's first process to the network hook.
///
/// The runtime has ended, so that process is a child of the daemon: its pid is not reused until the daemon waits for it, which happens only when
/// the sandbox is killed.
pub fn connect(paths: &Paths, hook: &NetworkHook) -> io::Result<()> {
    let pid = first_process(paths).ok_or_else(|| io::Error::other("the runtime named no first process"))?;
    match state_of_child(pid) {
        Some('Z' | 'X') => return Err(io::Error::other("the sandbox's first process ended at once")),
        Some(_) => {}
        None => return Err(io::Error::other(format!("process {pid} is not the first process of a sandbox"))),
    }
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let (theirs, ours) = (namespace.metadata()?, File::open(OWN)?.metadata()?);
    if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
        return Err(io::Error::other("the sandbox has the host's network"));
    }
    hook(namespace.as_fd())
}

/// A new network namespace, which exists as long as this value or a process in it.
pub struct SandboxNetwork(File);

impl SandboxNetwork {
    /// The calling thread stays in its namespace.
    pub fn new() -> io::Result<Self> {
        let home = File::open(OWN)?;
        // SAFETY: only the thread's network namespace changes, which none of its memory or descriptors depend on.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
        let namespace = File::open(OWN);
        move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(Self(namespace?))
    }

    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// For a process that the daemon starts, while this value exists.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Moves the calling thread into the namespace. It has left the host's mount namespace.
    ///
    /// `runsc` takes a namespace in which `/proc/sys/net/core/rmem_default` exists for the host's. Since Linux 6.11 it exists in
    /// all, so it is hidden, and only in the namespace of this thread and the programs that it starts.
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(mount("none", "/proc/sys/net/core", "tmpfs", MountFlags::RDONLY, None)?)
    }
}
