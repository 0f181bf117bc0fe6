//! Puts the agent before the commands of its sandbox where they contend for a processor.
//!
//! Without it an agent that has to end a fork bomb is one among hundreds that want to run, and loses. It takes nothing from
//! others on the host: what a sandbox may use is shared out among sandboxes first. Called by `launch`; a failure costs only
//! the advantage.

use std::io;

/// The policy of ordinary processes.
const SCHED_OTHER: u32 = 0;
/// Commands start with an ordinary process's priority again.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;
const FIRST: i32 = -20;

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

/// Gives a process the highest ordinary priority, and its children none of it.
pub fn put_first(pid: i32) -> io::Result<()> {
    let attr = SchedAttr {
        size: u32::try_from(size_of::<SchedAttr>()).map_err(io::Error::other)?,
        policy: SCHED_OTHER,
        flags: SCHED_FLAG_RESET_ON_FORK,
        nice: FIRST,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `attr.size` bytes from a live struct of that layout and keeps no pointer to it.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attr, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
