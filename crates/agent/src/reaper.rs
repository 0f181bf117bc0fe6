//! Collects children that have ended: commands, and orphans of commands.
//!
//! Called by the loop after SIGCHLD. The exit status of an orphan is not used, but an uncollected orphan would occupy
//! its pid.

use std::os::fd::OwnedFd;

use guest_proto::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};

/// Most children collected in one turn, so that many orphans do not delay everything else.
const BATCH: usize = 512;

/// Empties the signal descriptor.
pub fn drain_signals(signals: &OwnedFd) {
    let mut buffer = [0u8; 4 * size_of::<libc::signalfd_siginfo>()];
    while matches!(rustix::io::read(signals, &mut buffer), Ok(1..)) {}
}

/// Collects children and calls `ended` for each. True if there may be more.
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
