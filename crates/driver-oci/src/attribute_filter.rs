//! Makes the file system under an older gVisor one without extended attributes. Called in the child that becomes the runtime.
//!
//! Releases before [`SERVED_SINCE`] set and list no attributes, but ask the host for those of a symbolic link by a descriptor that may
//! not be read. The host answers `EBADF`, which no program expects: `ls -l` prints an error for each link. Attributes of any other file
//! that programs ask for are those of the image, of which gVisor uses only the capabilities of programs. So the host's kernel answers
//! each other question with `EOPNOTSUPP`, and `ls`, `cp`, `tar` and `rsync` behave as on a file system without attributes.
//!
//! Later releases read the attributes of links by their path, and need no filter.

use std::io;
use std::mem::offset_of;

/// The first release that serves attributes of links.
const SERVED_SINCE: u32 = 20_241_021;
/// The size of the buffer for the capabilities of a program that gVisor loads.
const CAPABILITY_BYTES: u32 = 24;

/// What the host's kernel answers to the processes of a runtime that ask for extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAttributes {
    Served,
    /// `EOPNOTSUPP`.
    Unsupported,
}

impl HostAttributes {
    /// For a release of gVisor.
    pub fn under_gvisor(release: u32) -> Self {
        if release < SERVED_SINCE { Self::Unsupported } else { Self::Served }
    }
}

// Of the kernel's classic BPF.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const NUMBER: u32 = offset_of!(libc::seccomp_data, nr) as u32;
/// The lower half of the fourth argument, the size of the buffer: both architectures are little-endian.
const SIZE: u32 = (offset_of!(libc::seccomp_data, args) + 3 * size_of::<u64>()) as u32;

/// The runtime makes the calls of one architecture only, so their numbers suffice.
const FILTER: [libc::sock_filter; 6] = [
    libc::sock_filter { code: LOAD, jt: 0, jf: 0, k: NUMBER },
    libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 3, k: libc::SYS_fgetxattr as u32 },
    libc::sock_filter { code: LOAD, jt: 0, jf: 0, k: SIZE },
    libc::sock_filter { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k: CAPABILITY_BYTES },
    libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32 },
    libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
];

/// Filters the calls of this thread and of all that it starts. Async-signal-safe. Fails for a thread that may gain privileges without
/// `CAP_SYS_ADMIN`.
pub fn refuse_attributes() -> io::Result<()> {
    let mut filter = FILTER;
    let program = libc::sock_fprog { len: FILTER.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program, whose length is that of the array, and keeps no pointer to it.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;

    use super::*;

    fn read(file: &OwnedFd, bytes: u32) -> Errno {
        rustix::fs::fgetxattr(file, "security.selinux", &mut vec![0_u8; bytes as usize][..]).unwrap_err()
    }

    /// A descriptor as gVisor has it of a symbolic link.
    #[test]
    fn only_capabilities_of_programs_can_be_read() {
        // The filter ends with its thread.
        let filtered = std::thread::spawn(|| {
            let file = rustix::fs::open("/proc/self/exe", OFlags::PATH, Mode::empty()).unwrap();
            assert_eq!((read(&file, 255), read(&file, CAPABILITY_BYTES)), (Errno::BADF, Errno::BADF));
            rustix::thread::set_no_new_privs(true).unwrap();
            refuse_attributes().unwrap();
            assert_eq!((read(&file, 255), read(&file, CAPABILITY_BYTES)), (Errno::OPNOTSUPP, Errno::BADF));
            // Other calls are as before.
            assert!(rustix::fs::fstat(&file).unwrap().st_size > 0);
        });
        filtered.join().unwrap();
    }

    #[test]
    fn later_releases_serve_attributes() {
        assert_eq!(HostAttributes::under_gvisor(20_240_729), HostAttributes::Unsupported);
        assert_eq!(HostAttributes::under_gvisor(20_241_021), HostAttributes::Served);
    }
}
