//! Runs the OCI runtime's commands. On failure the error is read from its log file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use api::SandboxId;
use driver::{AtStep, DriverError, DriverStep};
use driver_host::{Paths, Settings, runtime_root};
use rootfs::reset_oom_score;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal};

use crate::attribute_filter::{HostAttributes, refuse_attributes};

pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The number of the first preserved descriptor in a native runtime's container.
const PRESERVED_FD: i32 = 3;
/// Timeout of a runtime's command. A start takes about 30 ms, and a few seconds under gVisor and load.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of a restore, which reads all of the memory from the disk.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(300);

/// A runtime's program, and its arguments before the subcommand.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub attributes: HostAttributes,
}

/// How the host and the agent get a link.
#[derive(Debug)]
pub enum AgentChannel {
    /// A listening socket, inherited.
    Listener(OwnedFd),
    /// A token on its standard input, which it sends when it connects.
    Token(OwnedFd),
    /// It is stored in this directory with its token, and connects again.
    Stored(PathBuf),
}

/// Starts the container of a bundle and returns when its first process runs.
pub fn run(
    runtime: &Invocation,
    settings: &Settings,
    id: &SandboxId,
    paths: &Paths,
    agent_channel: AgentChannel,
    entry_files: &[PathBuf],
) -> Result<(), DriverError> {
    let mut command = base_command(runtime, settings, paths);
    let (subcommand, timeout) = match agent_channel {
        AgentChannel::Stored(_) => ("restore", RESTORE_TIMEOUT),
        _ => ("run", TIMEOUT),
    };
    command.arg(subcommand);
    // Stays open until the runtime is spawned: the child copies it.
    let mut listener = None;
    match agent_channel {
        AgentChannel::Listener(socket) => {
            let log = File::create(paths.agent_log()).at(DriverStep::RunRuntime)?;
            command.args(["--detach", "--preserve-fds", "1"]).stdin(Stdio::null());
            command.stdout(Stdio::from(log.try_clone().at(DriverStep::RunRuntime)?)).stderr(Stdio::from(log));
            listener = Some(socket);
        }
        AgentChannel::Token(reader) => {
            // No log file: under gVisor commands can open the agent's descriptors, and could fill the host's disk.
            command.arg("--detach").stdin(Stdio::from(reader)).stdout(Stdio::null()).stderr(Stdio::null());
        }
        AgentChannel::Stored(dir) => {
            command.arg("--detach").arg("--image-path").arg(dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    command.arg("--pid-file").arg(paths.first_process());
    command.arg("--bundle").arg(&paths.run).arg(id.as_str());
    let entries: Vec<File> = entry_files
        .iter()
        .map(|path| File::options().write(true).open(path))
        .collect::<Result<_, _>>()
        .at(DriverStep::RunRuntime)?;
    let inherited = listener.as_ref().map(AsRawFd::as_raw_fd);
    let (parent, attributes) = (rustix::process::getpid(), runtime.attributes);
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls (prctl, getppid, dup2, open, read, write and
    // seccomp).
    unsafe {
        command.pre_exec(move || {
            die_with(parent)?;
            reset_oom_score()?;
            // "0" stands for the writing process.
            entries.iter().try_for_each(|file| rustix::io::write(file, b"0").map(drop))?;
            inherited.map_or(Ok(()), inherit)?;
            match attributes {
                HostAttributes::Served => Ok(()),
                HostAttributes::Unsupported => refuse_attributes(),
            }
        });
    }
    match finish(command.spawn().at(DriverStep::RunRuntime)?, timeout).at(DriverStep::RunRuntime)? {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(DriverError::failed(DriverStep::StartSandbox, last_error(&paths.runtime_log()))),
        None => Err(DriverError::failed(DriverStep::StartSandbox, too_slow(timeout))),
    }
}

/// Waits for a runtime, and kills it after the timeout: a file of the sandbox that it reads, such as an `/etc/passwd`
/// that is a FIFO, may block it forever. The caller kills the processes that it started.
pub fn finish(mut child: Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = pidfd_open(child_pid(&child)?, PidfdFlags::empty())?;
    if is_readable_within(&ended, timeout)? {
        return child.wait().map(Some);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Waits until a descriptor is readable. False after the timeout.
pub fn is_readable_within(descriptor: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut wait = [PollFd::new(&descriptor, PollFlags::IN)];
    let deadline = Instant::now() + timeout;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
            .map_err(io::Error::other)?;
        match poll(&mut wait, Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub fn child_pid(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

pub fn too_slow(timeout: Duration) -> String {
    format!("the runtime did not end within {} s", timeout.as_secs())
}

/// Kills the runtime when the daemon dies. Otherwise it could create a sandbox that the next daemon has removed
/// already.
fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the line above, the signal never comes.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Moves a descriptor to the number that the runtime expects. A copy has no close-on-exec flag; one already there must lose it.
fn inherit(fd: i32) -> io::Result<()> {
    if fd == PRESERVED_FD {
        // SAFETY: the descriptor is open: the caller owns it until the spawn is over.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        return Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?);
    }
    // SAFETY: a system call on two numbers; the previous PRESERVED_FD is not used in this child.
    if unsafe { libc::dup2(fd, PRESERVED_FD) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn base_command(runtime: &Invocation, settings: &Settings, paths: &Paths) -> Command {
    // starts: runc, runsc
    let mut command = Command::new(&runtime.program);
    command.args(base_args(runtime, settings, paths));
    // The daemon's environment must not leak into the sandbox.
    command.env_clear().env("PATH", PATH);
    command
}

/// The arguments before the subcommand.
pub fn base_args(runtime: &Invocation, settings: &Settings, paths: &Paths) -> Vec<OsString> {
    let own: [OsString; 6] = [
        "--root".into(),
        runtime_root(settings).into(),
        "--log".into(),
        paths.runtime_log().into(),
        "--log-format".into(),
        "json".into(),
    ];
    own.into_iter().chain(runtime.args.iter().map(OsString::from)).collect()
}

/// The last message of the runtime's log, which is the cause of its failure.
pub fn last_error(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let message = text.lines().rev().find_map(|line| {
        let entry: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(entry.get("msg")?.as_str()?.to_owned())
    });
    message.unwrap_or_else(|| "the runtime failed and logged nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        last_error(file.path())
    }

    #[test]
    fn the_last_message_of_the_log_is_the_reason() {
        let log = "{\"level\":\"warning\",\"msg\":\"first\"}\n{\"level\":\"error\",\"msg\":\"last\"}\n";
        assert_eq!(logged(log), "last");
        // What the program printed besides, or could not finish.
        assert_eq!(logged(&format!("{log}panic: no json\n{{\"msg\":\"unfin")), "last");
        assert_eq!(logged(&format!("{log}{{\"msg\":7}}\n{{\"text\":\"other\"}}\n")), "last");
    }

    #[test]
    fn a_runtime_that_logs_nothing_failed_all_the_same() {
        let nothing = "the runtime failed and logged nothing";
        assert_eq!(logged(""), nothing);
        assert_eq!(last_error(Path::new("/missing/log")), nothing);
    }

    #[test]
    fn a_runtime_that_does_not_end_is_killed() {
        // starts: sh, sleep
        let spawn = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let begin = Instant::now();
        assert!(finish(spawn("exec sleep 60"), Duration::from_millis(20)).unwrap().is_none());
        assert!(begin.elapsed() < Duration::from_secs(30));
        let ended = finish(spawn("exit 3"), Duration::from_secs(30)).unwrap().unwrap();
        assert_eq!(ended.code(), Some(3));
    }

    #[test]
    fn a_pipe_is_readable_when_it_has_bytes_or_its_writer_is_gone() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!is_readable_within(&reader, Duration::from_millis(1)).unwrap());
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        assert!(is_readable_within(&reader, Duration::ZERO).unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert!(is_readable_within(&reader, Duration::from_secs(30)).unwrap());
    }
}
