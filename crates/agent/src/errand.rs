//! Errands among files: a child of the agent's own that does one operation and ends. Started by `serve`, driven from then on as
//! a command whose program is [`files`].
//!
//! A child, because files can be slow, endless or stuck, and the loop never waits. It is a plain `fork`: nothing of the image is
//! run, so that it works in any, and there is one thread, so that all memory is whole. It has the rights of a command.
//!
//! It ends by itself when its host goes away, because its pipes do; what it had half made it takes away then.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use guest_proto::{FileRequest, RefusalKind};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Resource};

use crate::boot;
use crate::caps::CapPlan;
use crate::files;
use crate::spawn::{Kind, Refusal, Spawned, prefer_me_when_memory_ends};

/// Errands at a time.
pub const MOST: usize = 16;
/// What the host may feed before it is taken. All errands' together fit into what a host leaves unsent.
pub const WINDOW: u32 = 512 * 1024;
/// How long an errand that nobody waits for may tidy up.
pub const GRACE: Duration = Duration::from_secs(10);
/// Room in its pipes; where it is not permitted they are smaller.
const PIPE: usize = 1024 * 1024;

/// Starts an errand.
pub fn start(request: &FileRequest<'_>, caps: &CapPlan) -> Result<Spawned, Refusal> {
    let failed = |step: &'static str| move |errno| (RefusalKind::Failed, format!("cannot {step}: {errno}"));
    let output = pipe().map_err(failed("make a pipe"))?;
    let input = if files::is_fed(request) { Some(pipe().map_err(failed("make a pipe"))?) } else { None };
    let nonblocking = |fd: &OwnedFd| rustix::io::ioctl_fionbio(fd, true).map_err(failed("set up a pipe"));
    nonblocking(&output.0)?;
    if let Some((_, writer)) = &input {
        nonblocking(writer)?;
    }
    // SAFETY: there is one thread, so the child's memory is as whole as ours, and it may do what we may.
    #[expect(unsafe_code, reason = "no safe way to make a child of one's own")]
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {
            let stdin = input.as_ref().map(|(reader, _)| reader.as_raw_fd());
            let code = child(request, caps, stdin, output.1.as_raw_fd());
            // SAFETY: ends this process; nothing of the agent's is to be run or flushed in it.
            #[expect(unsafe_code, reason = "no destructor may run")]
            unsafe {
                libc::_exit(code)
            }
        }
        pid => match Pid::from_raw(pid.max(0)) {
            Some(pid) => {
                let stdin = input.map(|(_, writer)| writer);
                Ok(Spawned { pid, stdin, stdout: output.0, stderr: None, kind: Kind::Errand })
            }
            None => Err((RefusalKind::Failed, format!("cannot make a process: {}", last_error()))),
        },
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // Only for speed.
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe.0, PIPE);
    Ok(pipe)
}

/// The child's whole life; its exit code.
fn child(request: &FileRequest<'_>, caps: &CapPlan, stdin: Option<c_int>, stdout: c_int) -> c_int {
    // What the agent itself was started with, such as its log, is the host's. Held here it would be a file like others, as
    // `/proc/self/fd/2`: in its place are the ends of a pipe that nobody else has.
    let Ok((nothing, nobody)) = pipe() else { return 1 };
    let stdin = stdin.unwrap_or_else(|| nothing.as_raw_fd());
    for (from, to) in [(stdin, 0), (stdout, 1), (nobody.as_raw_fd(), 2)] {
        // SAFETY: plain numbers of open descriptors; this process's table is its own.
        #[expect(unsafe_code, reason = "puts descriptors on given numbers")]
        let done = from == to || unsafe { libc::dup2(from, to) } >= 0;
        if !done {
            return 1;
        }
    }
    // The link, the door and the pipes of commands are the agent's: held open here they would not end there.
    boot::close_others(None);
    prefer_me_when_memory_ends();
    let ready = rustix::process::setsid().map(drop).and_then(|()| caps.drop_rest());
    if ready.is_err() {
        return 1;
    }
    let mut open_files = rustix::process::getrlimit(Resource::Nofile);
    open_files.current = open_files.maximum;
    // With fewer it gets along too, but in deep archives.
    let _ = rustix::process::setrlimit(Resource::Nofile, open_files);
    c_int::from(!files::run(request))
}

fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}
