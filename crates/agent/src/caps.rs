//! What a command may do: the fixed list of capabilities, and how the rest is taken from it.
//!
//! [`CapPlan::new`] runs once, at boot; [`CapPlan::drop_rest`] in each child before its program. If anything cannot be
//! dropped, the agent does not boot, or the command does not start.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Capabilities that a container's root has. Everything else the agent has stays with the agent.
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

/// Most capabilities a kernel may know; the sets have this many bits.
const MOST: u32 = 64;

/// What a child is left with.
pub struct CapPlan {
    keep: CapabilitySets,
}

impl CapPlan {
    /// Looks at what this process has, and takes all but the allowed ones from its bounding set. That binds only programs
    /// that are started, and the agent starts none but its commands: it saves each of them as many calls.
    pub fn new() -> Result<Self, Errno> {
        let have = rustix::thread::capabilities(None)?;
        for number in (0..MOST).filter(|number| ALLOWED.bits() & (1 << number) == 0) {
            match bounding(libc::PR_CAPBSET_READ, number) {
                1 if bounding(libc::PR_CAPBSET_DROP, number) != 0 => return Err(Errno::PERM),
                0 | 1 => {}
                // The kernel knows no more.
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

    /// Takes everything but the allowed ones from the calling process. Safe between fork and exec: a system call only.
    pub fn drop_rest(&self) -> Result<(), Errno> {
        // An empty inheritable set empties the ambient set as well.
        rustix::thread::set_capabilities(None, self.keep)
    }
}

/// Asks for, or clears, one bit of this process's bounding set. rustix knows only the capabilities of its day.
fn bounding(call: libc::c_int, number: u32) -> libc::c_int {
    // SAFETY: both calls take numbers and touch nothing but this process's own set.
    #[expect(unsafe_code, reason = "the calls have no safe wrapper for every number")]
    unsafe {
        libc::prctl(call, libc::c_ulong::from(number), 0, 0, 0)
    }
}
