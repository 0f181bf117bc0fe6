//! The capabilities of commands: a fixed list; all others are dropped.
//!
//! [`CapPlan::new`] runs once, at boot; [`CapPlan::drop_rest`] in each child before its program. If anything cannot be
//! dropped, the agent does not boot, or the command does not start.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The capabilities of a container's root. Commands get no other capability of the agent.
const ALLOWED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP);

/// Number of bits in a capability set.
const MAX_CAPABILITIES: u32 = 64;

/// The capabilities of a child.
pub struct CapPlan {
    keep: CapabilitySets,
}

impl CapPlan {
    /// Reads the capabilities of this process, and drops all but the allowed ones from its bounding set. That affects only programs
    /// that it starts, which are all commands, and saves each of them these calls.
    pub fn new() -> Result<Self, Errno> {
        let have = rustix::thread::capabilities(None)?;
        for number in (0..MAX_CAPABILITIES).filter(|number| ALLOWED.bits() & (1 << number) == 0) {
            match bounding(libc::PR_CAPBSET_READ, number) {
                1 if bounding(libc::PR_CAPBSET_DROP, number) != 0 => return Err(Errno::PERM),
                0 | 1 => {}
                // The kernel has no capability of this number.
                _ => break,
            }
        }
        let keep = CapabilitySets {
            effective: have.effective & ALLOWED,
            permitted: have.permitted & ALLOWED,
            inheritable: CapabilitySet::empty(),
        };
        Ok(Self { keep })
    }

    /// Drops all but the allowed capabilities of the calling process. Safe between fork and exec: only a system call.
    pub fn drop_rest(&self) -> Result<(), Errno> {
        // An empty inheritable set empties the ambient set as well.
        rustix::thread::set_capabilities(None, self.keep)
    }
}

/// Reads or clears one bit of this process's bounding set. rustix does not know newer capabilities.
fn bounding(call: libc::c_int, number: u32) -> libc::c_int {
    // SAFETY: both calls take numbers and touch nothing but this process's own set.
    #[expect(unsafe_code, reason = "the calls have no safe wrapper for every number")]
    unsafe {
        libc::prctl(call, libc::c_ulong::from(number), 0, 0, 0)
    }
}
