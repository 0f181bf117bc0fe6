//! What a command may do: the fixed list of capabilities, and how the rest is taken from it.
//!
//! [`CapPlan::new`] looks once, at boot, at what the runtime gave; [`CapPlan::drop_rest`] runs in each child before its
//! program. If anything cannot be dropped, the command is not started.

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

/// What a child has to do to be left with [`ALLOWED`].
pub struct CapPlan {
    /// A bit for each capability to take from the bounding set.
    unbound: u64,
    keep: CapabilitySets,
}

impl CapPlan {
    /// Looks at what this process has.
    pub fn new() -> Result<Self, Errno> {
        let have = rustix::thread::capabilities(None)?;
        let mut unbound = 0;
        for number in 0..MOST {
            // SAFETY: the call reads one bit of this process's state.
            #[expect(unsafe_code, reason = "rustix knows only the capabilities of its day")]
            let bound = unsafe { libc::prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(number), 0, 0, 0) };
            match bound {
                1 if ALLOWED.bits() & (1 << number) == 0 => unbound |= 1 << number,
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
        Ok(Self { unbound, keep })
    }

    /// Takes everything but the allowed ones from the calling process. Safe between fork and exec: system calls only.
    pub fn drop_rest(&self) -> Result<(), Errno> {
        let mut left = self.unbound;
        while left != 0 {
            let number = left.trailing_zeros();
            // SAFETY: the call clears one bit of this process's state.
            #[expect(unsafe_code, reason = "rustix knows only the capabilities of its day")]
            let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
            if done != 0 {
                return Err(Errno::PERM);
            }
            left &= left - 1;
        }
        // An empty inheritable set empties the ambient set as well.
        rustix::thread::set_capabilities(None, self.keep)
    }
}
