//! File operations: each runs in a forked child of the agent. Started by `serve`; from then on the loop handles it like
//! a command. The child runs [`files`].
//!
//! A child, because files can be slow, endless or stuck, and the loop never blocks. It is a plain `fork`: no program
//! of the image is needed, and since there is one thread its memory is consistent. It has the rights of a command.
//!
//! When the host disconnects, the agent closes the child's pipes; the child then removes incomplete files and ends.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use guest_proto::{FileRequest, RefusalKind};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Resource};

use crate::boot;
use crate::files;
use crate::spawn::{CapPlan, ProgramKind, Spawned, StartRefusal, no_process, raise_oom_score};

/// Most file operations at a time.
pub const MAX_FILE_OPS: usize = guest_proto::MAX_FILE_OPS;
/// Most watches at a time.
pub const MAX_WATCHES: usize = guest_proto::MAX_WATCHES;
/// Bytes that the host may send before they are read. The windows of all operations together fit into the host's send
/// buffer.
pub const WINDOW: u32 = 512 * 1024;
/// How long an abandoned file operation may take to clean up.
pub const GRACE: Duration = Duration::from_secs(10);
/// Capacity of its pipes, where that is permitted.
const PIPE: usize = 1024 * 1024;

/// Starts a file operation.
pub fn start(request: &FileRequest<'_>, user: Option<&str>, caps: &CapPlan) -> Result<Spawned, StartRefusal> {
    let failed = |step: &'static str| move |errno| (RefusalKind::Failed, format!("cannot {step}: {errno}"));
    let output = pipe().map_err(failed("create a pipe"))?;
    let input =
        if files::has_upload(request) { Some(pipe().map_err(failed("create a pipe"))?) } else { None };
    let nonblocking = |fd: &OwnedFd| rustix::io::ioctl_fionbio(fd, true).map_err(failed("set up a pipe"));
    nonblocking(&output.0)?;
    if let Some((_, writer)) = &input {
        nonblocking(writer)?;
    }
    // SAFETY: there is one thread, so the child's memory is consistent, and the child may call what its parent may.
    #[expect(unsafe_code, reason = "fork has no safe wrapper")]
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {
            let stdin = input.as_ref().map(|(reader, _)| reader.as_raw_fd());
            let code = child(request, user, caps, stdin, output.1.as_raw_fd());
            // SAFETY: ends this process without running destructors or flushing buffers of the agent.
            #[expect(unsafe_code, reason = "no destructor may run")]
            unsafe {
                libc::_exit(code)
            }
        }
        pid => match Pid::from_raw(pid.max(0)) {
            Some(pid) => {
                let stdin = input.map(|(_, writer)| writer);
                let kind = if matches!(request, FileRequest::Watch { .. }) {
                    ProgramKind::Watch
                } else {
                    ProgramKind::FileOp
                };
                Ok(Spawned { pid, stdin, stdout: output.0, stderr: None, kind })
            }
            None => Err(no_process(last_error())),
        },
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // For speed only: a failure does not matter.
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe.0, PIPE);
    Ok(pipe)
}

/// Runs the child; returns its exit code.
fn child(
    request: &FileRequest<'_>,
    user: Option<&str>,
    caps: &CapPlan,
    stdin: Option<c_int>,
    stdout: c_int,
) -> c_int {
    // The agent's own stderr is a log file on the host. In the child a file operation could open it as
    // `/proc/self/fd/2`, so the ends of a new pipe take its place.
    let Ok((empty_pipe, unread_pipe)) = pipe() else { return 1 };
    let stdin = stdin.unwrap_or_else(|| empty_pipe.as_raw_fd());
    for (from, to) in [(stdin, 0), (stdout, 1), (unread_pipe.as_raw_fd(), 2)] {
        // SAFETY: plain numbers of open descriptors; this process's table is its own.
        #[expect(unsafe_code, reason = "puts descriptors on given numbers")]
        let done = from == to || unsafe { libc::dup2(from, to) } >= 0;
        if !done {
            return 1;
        }
    }
    // The link, the connector and the pipes of commands must not stay open here, or their peers would not see their end.
    boot::close_others(None);
    raise_oom_score();
    let ready = rustix::process::setsid().map(drop).and_then(|()| caps.drop_rest());
    let ready = ready.and_then(|()| rustix::thread::set_no_new_privs(true));
    if ready.is_err() {
        return 1;
    }
    let mut open_files = rustix::process::getrlimit(Resource::Nofile);
    open_files.current = open_files.maximum;
    // Only deep archives need more than the soft limit.
    let _ = rustix::process::setrlimit(Resource::Nofile, open_files);
    c_int::from(!files::run(request, user))
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
