//! Collecting children that have ended: commands, and orphans that were left to the agent.
//!
//! Called by the loop after SIGCHLD. An orphan's end is of no interest; without this it would hold a process number.

use std::os::fd::OwnedFd;

use guest_proto::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};

/// Children collected in one turn, so that a storm of orphans does not hold up the others.
const BATCH: usize = 512;

/// Empties the signal descriptor.
pub fn quiet(signals: &OwnedFd) {
    let mut buffer = [0u8; 4 * size_of::<libc::signalfd_siginfo>()];
    while matches!(rustix::io::read(signals, &mut buffer), Ok(1..)) {}
}

/// Collects what has ended and tells `ended` of each. True if there may be more.
pub fn reap(mut ended: impl FnMut(Pid, Exit)) -> bool {
    for _ in 0..BATCH {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(exit) = exit(status) {
                    ended(pid, exit);
                }
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return false,
        }
    }
    true
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}
