//! Ends the processes of sandboxes, and collects those that have ended.

mod first_process;
mod reap;

use std::fs;
use std::io;
use std::time::Duration;

use api::Isolation;

use crate::cgroup::{Cgroups, Population};
use crate::paths::{Paths, first_process, isolation_of};
use crate::removal::poll;
use first_process::kill_first_process;
use reap::reap;

pub use reap::{become_subreaper, collect, state_of_child};

/// A killed process ends only when its system call does, for example a write to a slow disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// Kills all processes of a sandbox, frozen or not, and returns when they have ended.
pub fn kill(cgroups: &Cgroups, name: &str, paths: &Paths) -> io::Result<()> {
    let first = first_process(paths);
    // The kernel ends all processes of a namespace with its first one.
    if isolation_of(paths) == Isolation::Container
        && let Some(pid) = first
        && kill_first_process(cgroups, name, pid)?
    {
        reap(&[pid]);
    }
    let mut seen = Vec::new();
    poll(KILL_TIMEOUT, || {
        if cgroups.population(name)? == Population::Empty {
            return Ok(true);
        }
        seen.extend(cgroups.processes(name)?);
        cgroups.kill(name)?;
        Ok(cgroups.population(name)? == Population::Empty)
    })?;
    seen.extend(first);
    reap(&seen);
    // Another process may get the pid now. If the file stays, the next kill checks that the process is in the cgroup.
    let _ = fs::remove_file(paths.first_process());
    Ok(())
}
