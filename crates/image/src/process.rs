//! Programs of the host (`mmdebstrap`, `npm`) that build images: bounded in time and in what they may say, and never
//! outliving this process.
//!
//! Each runs as process 1's child of a process-id namespace of its own: when it is killed, or this process is, every
//! process and mount it made goes with it.

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;

use crate::fault::Fault;

const SAID_BYTES: u64 = 64 * 1024;
const TAIL_BYTES: u64 = 4 * 1024;
const SHOWN_CHARS: usize = 600;

/// A command that runs alone: `setpriv` ties it to this process, `unshare` ties its children to it.
pub(crate) fn contained(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--fork",
        "--pid",
        "--mount",
        "--mount-proc",
        "--kill-child",
        "--",
    ]);
    command.arg(program).stdin(Stdio::null());
    command
}

/// Whether a program is on the path, so that a missing one is told by name.
pub(crate) fn is_installed(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Kills what runs when the caller stops waiting.
struct KillOnDrop(Option<OwnedFd>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            // It fails only if the process has ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// Runs a command to its end and gives what it wrote to standard output, 64 KiB at most. What it says goes to files in
/// `scratch`.
pub(crate) async fn run(
    what: &str,
    mut command: Command,
    scratch: &Path,
    limit: Duration,
) -> Result<String, Fault> {
    let said = scratch.join("said");
    let open = || std::fs::File::create(&said).map_err(Fault::io("make a work file"));
    let errors = open()?;
    command.stdout(Stdio::piped()).stderr(errors);
    let (tell_pid, pid) = oneshot::channel();
    let (tell_end, end) = oneshot::channel();
    // A thread of its own starts and awaits the child: the child dies when the thread that started it ends.
    let runner = move || {
        let ended = start(command, tell_pid).and_then(|mut child| {
            let mut out = Vec::new();
            if let Some(stdout) = child.stdout.as_mut() {
                stdout.take(SAID_BYTES).read_to_end(&mut out)?;
                std::io::copy(stdout, &mut std::io::sink())?;
            }
            Ok((child.wait()?, out))
        });
        let _ = tell_end.send(ended); // nobody waits any more: the child was killed
    };
    std::thread::Builder::new()
        .name("image-tool".to_owned())
        .spawn(runner)
        .map_err(Fault::io("start a thread"))?;
    let mut running = KillOnDrop(pid.await.ok());
    let ended = match tokio::time::timeout(limit, end).await {
        Ok(ended) => {
            ended.map_err(Fault::io(what))?.map_err(|e| Fault::tool(format!("{what} cannot be run: {e}")))?
        }
        Err(_) => return Err(Fault::tool(format!("{what} took longer than {} s", limit.as_secs()))),
    };
    running.0 = None;
    let (status, out) = ended;
    if status.success() {
        return Ok(String::from_utf8_lossy(&out).into_owned());
    }
    let mut errors = String::from_utf8_lossy(&tail(&said).unwrap_or_default()).trim().to_owned();
    let skip = errors.chars().count().saturating_sub(SHOWN_CHARS);
    errors = errors.chars().skip(skip).collect();
    Err(Fault::tool(format!("{what} failed ({status}): {errors}")))
}

fn start(mut command: Command, tell: oneshot::Sender<OwnedFd>) -> std::io::Result<std::process::Child> {
    let child = command.spawn()?;
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| std::io::Error::other("no pid"))?;
    // The child is not yet waited for, so the number is still its own.
    if let Err(process) = tell.send(pidfd_open(pid, PidfdFlags::empty())?) {
        // The caller is gone already.
        drop(KillOnDrop(Some(process)));
    }
    Ok(child)
}

/// The end of what a program said.
fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
