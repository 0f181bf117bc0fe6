//! System calls without a safe wrapper.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits};

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const KEYCTL_JOIN_SESSION_KEYRING: u64 = 1;

// From the kernel's <linux/sched.h>, in its version with `cgroup`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The side of a fork.
pub enum Side {
    Parent(i32),
    Child,
}

/// Forks into new namespaces, and into a cgroup if there is one. The caller must be single-threaded.
///
/// The kernel charges what the users of a namespace take of its tables (inotify instances, queued signals, message queues) to the
/// user who created it, and limits each of these. That is `creator`, whom no other sandbox has.
pub fn fork_into(namespaces: libc::c_int, cgroup: Option<BorrowedFd<'_>>, creator: u32) -> io::Result<Side> {
    let mut args = CloneArgs {
        flags: u64::from(namespaces.unsigned_abs()),
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    let bits = capabilities_secure_bits()?;
    // Otherwise the change of users would drop capabilities.
    set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    set_effective_user(creator)?;
    // SAFETY: the kernel reads a live struct of the given size. Without a stack this is a fork: the child goes on with a copy of
    // all memory, and has the only thread.
    let forked = match unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) } {
        -1 => Err(io::Error::last_os_error()),
        // Its namespace has given it all capabilities, and it gets its user when the ids are mapped.
        0 => return Ok(Side::Child),
        pid => i32::try_from(pid).map_err(io::Error::other),
    };
    set_effective_user(0)?;
    set_capabilities_secure_bits(bits)?;
    // The change of users has cleared the signal.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(Side::Parent(forked?))
}

/// Changes the effective user of this process only.
fn set_effective_user(user: u32) -> io::Result<()> {
    const UNCHANGED: libc::c_int = -1;
    // SAFETY: changes the credentials of this process and accesses no memory. By the system call: there is one thread.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, UNCHANGED, user, UNCHANGED) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the process a session keyring of its own, so that none of the host's keys can be found.
pub fn new_session_keyring() -> io::Result<()> {
    // SAFETY: a null name asks for an anonymous keyring; no memory is accessed.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) };
    // A kernel without keyrings has no keys.
    if done < 0 && Errno::from_io_error(&io::Error::last_os_error()) != Some(Errno::NOSYS) {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Brings up the loopback interface of the network namespace, which gives it its addresses.
pub fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: the struct is plain integers, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo\0") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads a live struct of the type that the request takes.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Becomes user and group 0 of the user namespace, in no other group.
pub fn become_root() -> io::Result<()> {
    // SAFETY: these calls change this process's credentials and access no memory. By the system calls: there is one thread.
    let done = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) == 0
            && libc::syscall(libc::SYS_setresgid, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_setresuid, 0, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes `from` the descriptor `number` of the program that this process will execute.
pub fn inherit_as(from: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: a system call on two numbers. The process owns no object with the number `number` that it still uses.
    let done = unsafe { libc::dup2(from.as_raw_fd(), number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Duplicates a descriptor to a number of at least `least`.
pub fn lift(fd: BorrowedFd<'_>, least: i32) -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, least)?)
}

/// Closes all descriptors from `first` to `last`.
pub fn close_range(first: i32, last: i32) -> io::Result<()> {
    // SAFETY: the caller uses none of these descriptors afterwards.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets both the soft and the hard limit of the calling process.
pub fn set_limit(resource: u32, value: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: the kernel reads a live struct and writes nothing.
    let done = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            resource,
            &raw const limit,
            std::ptr::null_mut::<libc::rlimit64>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Installs a filter of system calls. The process needs `CAP_SYS_ADMIN` in its user namespace.
pub fn set_filter(filter: &[(u16, u8, u8, u32)]) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> =
        filter.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(Errno::TOOBIG))?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
