//! Start of the agent: arguments, file descriptors, signals, and its protection against the commands it runs.
//!
//! Called once, by `main`. A failure here ends the agent before it has opened anything; the runtime sees exit code 2 and
//! one line on stderr. A missing `/proc` or `close_range` is not a failure.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use guest_proto::TOKEN_LEN;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use crate::connector::{Connector, HostSocket};
use crate::error::BootError;
use crate::identity;

/// How the link is made, according to the arguments.
enum LinkSource {
    ListenFd(i32),
    Connect(HostSocket),
}

/// The result of [`boot`].
pub struct Booted {
    pub connector: Connector,
    pub signals: OwnedFd,
}

/// Makes this process the agent.
pub fn boot() -> Result<Booted, BootError> {
    let link_source = link_source(std::env::args_os().skip(1).collect())?;
    return_memory_early();
    protect()?;
    let connector = match link_source {
        LinkSource::ListenFd(fd) => {
            close_others(Some(fd));
            // SAFETY: the runtime passed this descriptor to be ours, nothing else in this process knows its number, and
            // `Connector::listen` checks that it is open and a listening socket before it is used.
            #[expect(unsafe_code, reason = "a descriptor number from the command line")]
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            Connector::listen(socket)?
        }
        LinkSource::Connect(address) => {
            close_others(None);
            if matches!(address, HostSocket::Tcp(_)) {
                // These processes may be copied. Without the file a program cannot tell, and everything else works.
                let _ = identity::renew_generation();
            }
            Connector::connect(address, token()?)
        }
    };
    fill_stdio()?;
    Ok(Booted { connector, signals: signals()? })
}

/// Writes one line about why the agent ends, for the runtime's log.
pub fn report_failure(error: &BootError) {
    let line = format!("sandbox-agent: {error}\n");
    // If stderr is closed too there is nowhere to report.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

fn link_source(args: Vec<OsString>) -> Result<LinkSource, BootError> {
    let [flag, value] = <[OsString; 2]>::try_from(args)
        .map_err(|args| BootError::Usage(format!("{} arguments", args.len())))?;
    match flag.to_str() {
        Some("--listen-fd") => match value.to_str().and_then(|n| n.parse().ok()) {
            Some(fd @ 3..) => Ok(LinkSource::ListenFd(fd)),
            _ => Err(BootError::Usage(format!("descriptor {value:?}; allowed: 3 and above"))),
        },
        Some("--connect") => {
            if let Some(address) = value.to_str().and_then(|text| text.parse().ok()) {
                return Ok(LinkSource::Connect(HostSocket::Tcp(address)));
            }
            let path = PathBuf::from(OsString::from_vec(value.into_vec()));
            if path.is_absolute() {
                Ok(LinkSource::Connect(HostSocket::Unix(path)))
            } else {
                Err(BootError::Usage(format!("{path:?}, which is neither an absolute path nor an address")))
            }
        }
        _ => Err(BootError::Usage(format!("{flag:?}"))),
    }
}

/// Makes the allocator return large buffers to the kernel.
fn return_memory_early() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` only sets numbers of the allocator; there is one thread.
    #[expect(unsafe_code, reason = "no safe wrapper exists")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 * 1024);
    }
}

fn protect() -> Result<(), BootError> {
    // Commands of any user must not read or trace the agent.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(BootError::step("make the agent not dumpable"))?;
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        // Orphans of commands become children of the agent, as if it were process 1.
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
            .map_err(BootError::step("become the reaper of orphans"))?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

/// Closes what the runtime left open, except the three standard ones and `keep`.
pub fn close_others(keep: Option<i32>) {
    let close = |from: i32, to: i32| {
        // SAFETY: nothing in this process has opened a descriptor yet, so none that is closed here belongs to anybody.
        #[expect(unsafe_code, reason = "no safe wrapper exists")]
        let done = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) } == 0;
        if !done {
            for fd in from..to.min(1024) {
                // SAFETY: as above.
                #[expect(unsafe_code, reason = "no safe wrapper exists")]
                unsafe {
                    libc::close(fd);
                }
            }
        }
    };
    match keep {
        Some(3) | None => close(3 + i32::from(keep.is_some()), i32::MAX),
        Some(fd) => {
            close(3, fd - 1);
            close(fd.saturating_add(1), i32::MAX);
        }
    }
}

/// Reads the token that identifies the sandbox to the host.
fn token() -> Result<[u8; TOKEN_LEN], BootError> {
    let mut token = [0; TOKEN_LEN];
    let mut filled = 0;
    while filled < TOKEN_LEN {
        match rustix::io::read(rustix::stdio::stdin(), &mut token[filled..]) {
            Ok(0) => return Err(BootError::Token(Errno::NODATA)),
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(BootError::Token(errno)),
        }
    }
    Ok(token)
}

/// Opens `/dev/null` as 0, 1 and 2 where they are closed, so that no pipe of a command gets one of these numbers, and
/// replaces the stdin that held the token.
fn fill_stdio() -> Result<(), BootError> {
    let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        // The root file system has no devices: use what the runtime opened.
        return stdio_is_open();
    };
    for n in 0..3 {
        // SAFETY: the call only checks whether the number is an open descriptor.
        #[expect(unsafe_code, reason = "checks a descriptor number")]
        let open = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(n) }).is_ok();
        if n == 0 || !open {
            use std::os::fd::AsRawFd;
            // SAFETY: plain descriptor numbers; nothing in this process owns 0, 1 or 2 as an object.
            #[expect(unsafe_code, reason = "puts /dev/null on a given number")]
            unsafe {
                libc::dup2(null.as_raw_fd(), n);
            }
        }
    }
    use std::os::fd::{AsRawFd, IntoRawFd};
    if null.as_raw_fd() < 3 {
        // It is one of the three itself and stays open.
        let _ = null.into_raw_fd();
    }
    stdio_is_open()
}

fn stdio_is_open() -> Result<(), BootError> {
    for n in 0..3 {
        // SAFETY: the call only checks whether the number is an open descriptor.
        #[expect(unsafe_code, reason = "checks a descriptor number")]
        let fd = unsafe { BorrowedFd::borrow_raw(n) };
        rustix::io::fcntl_getfd(fd).map_err(BootError::step("find stdin, stdout and stderr open"))?;
    }
    Ok(())
}

/// Blocks all signals, so that none ends the agent; resets all handlers to their defaults, which commands inherit;
/// and opens the descriptor that reports ended children.
fn signals() -> Result<OwnedFd, BootError> {
    // SAFETY: the sets are initialised by the calls that fill them before they are read; there is one thread.
    #[expect(unsafe_code, reason = "no safe wrapper exists")]
    unsafe {
        // By the system call: the C library reserves two signals, which a parent may have set to be ignored. An
        // action of all zeros is the default handler; it has at most this length on any architecture.
        let default = [0u64; 8];
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8usize);
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        let mut child: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        let fd = libc::signalfd(-1, &raw const child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL);
            return Err(BootError::Step { step: "open a signal descriptor", errno });
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
