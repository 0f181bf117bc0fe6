//! Gives the agent a higher scheduling priority than the commands of its sandbox.
//!
//! Otherwise an agent that ends a fork bomb competes with hundreds of processes. Other sandboxes are not affected:
//! processor time is divided among sandboxes first. Called by the backends; a failure is logged.

use std::io;

/// The default scheduling policy.
const SCHED_OTHER: u32 = 0;
/// Children get the default priority.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;
const HIGHEST_NICE: i32 = -20;

// From the kernel's <linux/sched/types.h>, in its first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives a process, but not its children, the highest non-real-time priority.
pub fn raise_priority(pid: i32) -> io::Result<()> {
    let attr = SchedAttr {
        size: u32::try_from(size_of::<SchedAttr>()).map_err(io::Error::other)?,
        policy: SCHED_OTHER,
        flags: SCHED_FLAG_RESET_ON_FORK,
        nice: HIGHEST_NICE,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `attr.size` bytes from a live struct of that layout and keeps no pointer to it.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attr, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
