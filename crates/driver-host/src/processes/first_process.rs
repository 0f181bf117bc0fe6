//! Ends a sandbox by its first process: the kernel ends all processes of a process id namespace with it.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::{Cgroups, Population};

/// A process that has not ended by then is killed with all others of its cgroups.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Kills the first process of a sandbox's process id namespace, and waits until it has ended. Returns false if it is not in the
/// sandbox's cgroup any more.
pub fn kill_first_process(cgroups: &Cgroups, name: &str, pid: i32) -> io::Result<bool> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(false) };
    // Opened first: if the pid is in the cgroup afterwards, the descriptor is of that process.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let processes = cgroups.processes(name).unwrap_or_default();
    if !processes.contains(&pid.as_raw_nonzero().get()) {
        return Ok(false);
    }
    match pidfd_send_signal(&process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    // A frozen process does not see the signal.
    if cgroups.population(name)? == Population::Frozen {
        cgroups.thaw(name)?;
    }
    let timeout = Timespec::try_from(END_TIMEOUT).map_err(io::Error::other)?;
    let ended = rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout))?;
    Ok(ended > 0)
}
