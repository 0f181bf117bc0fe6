//! The quota of processor time that a running sandbox sees.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use driver::SandboxSpec;
use driver_host::{Cgroups, Paths, first_process};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

/// Writes the files that the launcher has mounted over those of the kernel.
pub fn rewrite_quota(cgroups: &Cgroups, spec: &SandboxSpec, paths: &Paths) -> io::Result<()> {
    let Some(pid) = first_process(paths) else { return Ok(()) };
    // Only the agent can have this root. If the sandbox has ended, another process may have its pid.
    let root = open(format!("/proc/{pid}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !cgroups.processes(spec.id.as_str())?.contains(&pid) {
        return Err(Errno::SRCH.into());
    }
    let (files, text) = cgroups.shown_quota(spec.limits.cpu);
    for file in files {
        match open_inside(&root, file.strip_prefix("/").unwrap_or(&file)) {
            Ok(mut file) => file.write_all(text.as_bytes())?,
            // This host has the controller elsewhere.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn open_inside(root: impl std::os::fd::AsFd, path: &Path) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags, Mode::empty(), resolve).map(File::from)
}
