//! Collects the ended processes of sandboxes.
//!
//! When a runtime ends, the nearest subreaper becomes the parent of the container's first process. The daemon is this
//! subreaper, so that no zombie remains because of a slow init, and therefore collects these processes.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

/// Number of checks, every 0.5 ms: a process leaves its cgroup a moment before it is a zombie.
const CHECKS: u32 = 100;
const CHECK_INTERVAL: Duration = Duration::from_micros(500);

/// Makes this process the parent of orphaned descendants.
pub fn become_subreaper() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for those processes of an ended sandbox that are children of the daemon.
///
/// `pids` were seen in the sandbox's cgroup. The pid of a child is not reused before it is waited for, and programs that the daemon
/// starts itself are waited for at once elsewhere, so a zombie child with such a pid is the sandbox's.
pub fn reap(pids: &[i32]) {
    for pid in pids {
        for _ in 0..CHECKS {
            if collect(*pid) {
                break;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// Waits for a process if it is a child of the daemon that has ended. Returns false if it is one that still runs.
pub fn collect(pid: i32) -> bool {
    match (state_of_child(pid), Pid::from_raw(pid)) {
        (Some('Z' | 'X'), Some(pid)) => {
            // Fails if it was collected already.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            true
        }
        (state, _) => state.is_none(),
    }
}

/// The state of a process, if it is a child of the daemon.
pub fn state_of_child(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may contain anything; the state and the parent follow.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent: i32 = fields.next()?.parse().ok()?;
    (parent == getpid().as_raw_nonzero().get()).then_some(state)
}
