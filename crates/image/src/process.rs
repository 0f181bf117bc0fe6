//! Runs programs of the host (`mmdebstrap`, `npm`) that build images, with limits of time and output. They do not
//! outlive this process.
//!
//! Each runs in its own pid namespace: when it or this process is killed, the kernel ends all its processes and
//! mounts.

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;

use crate::fault::Fault;

const OUTPUT_BYTES: u64 = 64 * 1024;
const TAIL_BYTES: u64 = 4 * 1024;
const ERROR_CHARS: usize = 600;

/// A command whose life ends with this process, by `setpriv`, and whose descendants end with it, by `unshare`.
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

/// Whether a program is on the PATH, so that an error can name a missing one.
pub(crate) fn is_installed(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Kills the program when the caller stops waiting.
struct KillOnDrop(Option<OwnedFd>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            // Fails only if the process has ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// Runs a command to its end and returns its standard output, at most 64 KiB. Standard error is a file in `scratch`.
pub(crate) async fn run(
    what: &str,
    mut command: Command,
    scratch: &Path,
    limit: Duration,
) -> Result<String, Fault> {
    let output = scratch.join("stderr");
    let open = || std::fs::File::create(&output).map_err(Fault::io("create a work file"));
    let errors = open()?;
    command.stdout(Stdio::piped()).stderr(errors);
    let (tell_pid, pid) = oneshot::channel();
    let (tell_end, end) = oneshot::channel();
    // A dedicated thread starts and awaits the child, which dies when the thread that started it ends.
    let runner = move || {
        let ended = start(command, tell_pid).and_then(|mut child| {
            let mut out = Vec::new();
            if let Some(stdout) = child.stdout.as_mut() {
                stdout.take(OUTPUT_BYTES).read_to_end(&mut out)?;
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
        Ok(ended) => ended
            .map_err(Fault::io(what))?
            .map_err(|e| Fault::tool(format!("{what} cannot be run")).caused_by(e))?,
        Err(_) => return Err(Fault::tool(format!("{what} took longer than {} s", limit.as_secs()))),
    };
    running.0 = None;
    let (status, out) = ended;
    if status.success() {
        return Ok(String::from_utf8_lossy(&out).into_owned());
    }
    let errors = String::from_utf8_lossy(&tail(&output).unwrap_or_default()).into_owned();
    Err(Fault::tool(format!("{what} failed ({status}): {}", reason(&errors, &out))))
}

/// The end of what a failed program has printed on standard error, or else on standard output.
fn reason(errors: &str, out: &[u8]) -> String {
    let out = String::from_utf8_lossy(out);
    let printed = [errors.trim(), out.trim()].into_iter().find(|text| !text.is_empty());
    let Some(printed) = printed else { return "it has printed no reason".to_owned() };
    let skip = printed.chars().count().saturating_sub(ERROR_CHARS);
    printed.chars().skip(skip).collect()
}

fn start(mut command: Command, sender: oneshot::Sender<OwnedFd>) -> std::io::Result<std::process::Child> {
    let child = command.spawn()?;
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| std::io::Error::other("no pid"))?;
    // The child was not waited for yet, so its pid is not reused.
    if let Err(process) = sender.send(pidfd_open(pid, PidfdFlags::empty())?) {
        // The caller has stopped waiting.
        drop(KillOnDrop(Some(process)));
    }
    Ok(child)
}

/// The end of a program's standard error.
fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_has_a_reason() {
        assert_eq!(reason("E: no network\n", b"fetching"), "E: no network");
        assert_eq!(reason(" \n", b"fetching\n"), "fetching");
        assert_eq!(reason("", b""), "it has printed no reason");
        assert_eq!(reason(&"x".repeat(2 * ERROR_CHARS), b"").chars().count(), ERROR_CHARS);
    }
}
