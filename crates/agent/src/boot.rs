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

use crate::connector::Connector;
use crate::error::BootError;

/// How the link is made, by the arguments.
enum Place {
    ListenFd(i32),
    Connect(PathBuf),
}

/// What the start leaves to the agent.
pub struct Booted {
    pub connector: Connector,
    pub signals: OwnedFd,
}

/// Makes this process the agent.
pub fn boot() -> Result<Booted, BootError> {
    let place = place(std::env::args_os().skip(1).collect())?;
    keep_memory_small();
    protect()?;
    let connector = match place {
        Place::ListenFd(fd) => {
            close_others(Some(fd));
            // SAFETY: the runtime passed this descriptor to be ours, nothing else in this process knows its number, and
            // `Connector::listen` checks that it is open and a listening socket before it is used.
            #[expect(unsafe_code, reason = "a descriptor number from the command line")]
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            Connector::listen(socket)?
        }
        Place::Connect(path) => {
            close_others(None);
            Connector::connect(path, token()?)
        }
    };
    fill_stdio()?;
    Ok(Booted { connector, signals: signals()? })
}

/// Writes one line about why the agent ends, for the runtime's log.
pub fn complain(error: &BootError) {
    let line = format!("sandbox-agent: {error}\n");
    // If stderr is closed too there is nowhere to report.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

fn place(args: Vec<OsString>) -> Result<Place, BootError> {
    let [flag, value] = <[OsString; 2]>::try_from(args)
        .map_err(|args| BootError::Usage(format!("{} arguments", args.len())))?;
    match flag.to_str() {
        Some("--listen-fd") => match value.to_str().and_then(|n| n.parse().ok()) {
            Some(fd @ 3..) => Ok(Place::ListenFd(fd)),
            _ => Err(BootError::Usage(format!("descriptor {value:?}, allowed are 3 and above"))),
        },
        Some("--connect") => {
            let path = PathBuf::from(OsString::from_vec(value.into_vec()));
            if path.is_absolute() {
                Ok(Place::Connect(path))
            } else {
                Err(BootError::Usage(format!("{path:?}, which is not absolute")))
            }
        }
        _ => Err(BootError::Usage(format!("{flag:?}"))),
    }
}

/// Makes the allocator return large buffers to the kernel.
fn keep_memory_small() {
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
    let mut have = 0;
    while have < TOKEN_LEN {
        match rustix::io::read(rustix::stdio::stdin(), &mut token[have..]) {
            Ok(0) => return Err(BootError::Token(Errno::NODATA)),
            Ok(n) => have += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(BootError::Token(errno)),
        }
    }
    Ok(token)
}

/// Makes sure that 0, 1 and 2 are taken, so that no pipe of a command ever gets one of these numbers, and lets go of the
/// stdin that held the token.
fn fill_stdio() -> Result<(), BootError> {
    let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        // The root file system has no devices: use what the runtime opened.
        return stdio_is_open();
    };
    for n in 0..3 {
        // SAFETY: the number is only looked at, and the call says whether it is open.
        #[expect(unsafe_code, reason = "asks about a number")]
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
        // SAFETY: the number is only looked at, and the call says whether it is open.
        #[expect(unsafe_code, reason = "asks about a number")]
        let fd = unsafe { BorrowedFd::borrow_raw(n) };
        rustix::io::fcntl_getfd(fd).map_err(BootError::step("find stdin, stdout and stderr open"))?;
    }
    Ok(())
}

/// Blocks every signal, so that none ends or disturbs the agent, puts every handler back to its default, which is what
/// commands inherit, and opens the descriptor that reports ended children.
fn signals() -> Result<OwnedFd, BootError> {
    // SAFETY: the sets are initialised by the calls that fill them before they are read; there is one thread.
    #[expect(unsafe_code, reason = "no safe wrapper exists")]
    unsafe {
        // By the system call: the C library keeps two signals to itself, which a parent may have left ignored. The
        // action is all zeros, which is the default handler, and no architecture's is longer than this.
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
