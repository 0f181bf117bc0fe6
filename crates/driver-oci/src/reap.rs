//! Takes dead sandboxes off the process table.
//!
//! A runtime that ends leaves its container's first process to the next one up that takes orphans. The daemon makes itself
//! that one, so that no other's laziness keeps a dead process on the table; then it has to look after them.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

/// A process leaves its cgroup a moment before it is a zombie: so often it is looked at, 0.5 ms apart.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_micros(500);

/// Makes this process the parent of the orphans below it.
pub fn take_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for those of a dead sandbox's processes that are our children.
///
/// `pids` were seen in the sandbox's cgroup. A child cannot lose its number before it is waited for, and programs that we
/// start and wait for elsewhere are waited for at once, so a zombie of ours under such a number is the sandbox's.
pub fn reap(pids: &[i32]) {
    for pid in pids {
        for _ in 0..LOOKS {
            match state_of_child(*pid) {
                None => break,
                Some('Z' | 'X') => {
                    if let Some(pid) = Pid::from_raw(*pid) {
                        // Already gone is what we want.
                        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                    }
                    break;
                }
                Some(_) => std::thread::sleep(BETWEEN_LOOKS),
            }
        }
    }
}

/// The state of a process, if it is a child of ours.
pub fn state_of_child(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in brackets and may hold anything: the state, then the parent.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent: i32 = fields.next()?.parse().ok()?;
    (parent == getpid().as_raw_nonzero().get()).then_some(state)
}
