//! The network namespace of a sandbox that was just started.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use driver::NetworkHook;

use crate::paths::Paths;
use crate::reap::state_of_child;
use crate::runtime::first_process;

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
    let (theirs, ours) = (namespace.metadata()?, File::open("/proc/thread-self/ns/net")?.metadata()?);
    if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
        return Err(io::Error::other("the sandbox has the host's network"));
    }
    hook(namespace.as_fd())
}
