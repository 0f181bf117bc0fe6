//! Stores the processes of a container under gVisor.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use api::SandboxId;
use driver::{AtStep, DriverError, DriverStep};
use driver_host::{Hibernation, Paths, ProcessCopy, Settings, Standstill};
use rustix::process::Signal;

use crate::runtime::{
    Invocation, PATH, TIMEOUT, base_args, base_command, child_pid, finish, is_readable_within, last_error,
    too_slow,
};

/// Timeout for all of the memory to be written to the disk.
const STORE_TIMEOUT: Duration = Duration::from_secs(300);
/// The most that is shown of a message of gVisor.
const MESSAGE_CHARS: usize = 300;

/// Compression would take longer than the writing. Pages of zeros need no space.
const OPTIONS: &str = "--leave-running --compression none --exclude-committed-zero-pages";

/// Stores the processes of a container, which stand still from then on, or lets them go on if they cannot be stored: without
/// `--leave-running` gVisor would end those, too.
const STORE: &str = r#"
    "$@" pause "$ID" || exit 1
    "$@" checkpoint $OPTIONS --image-path "$UNFINISHED" "$ID" &&
        sync "$UNFINISHED"/* "$UNFINISHED" && mv -T "$UNFINISHED" "$COMPLETE" && exit 0
    "$@" resume "$ID"
    exit 1
"#;

/// Copies the processes of a container. They stand still until the standard input ends, which it does with the daemon.
const COPY: &str = r#"
    # Nobody reads the output of `echo` when the daemon is gone. The processes go on all the same.
    trap '' PIPE
    "$@" pause "$ID" || exit 1
    "$@" checkpoint $OPTIONS --image-path "$TARGET" "$ID" &&
        echo && read -r _
    "$@" resume "$ID"
"#;

/// Runs [`STORE`] in a process that survives the daemon.
pub fn checkpoint(
    runtime: &Invocation,
    settings: &Settings,
    id: &SandboxId,
    paths: &Paths,
    hibernation: Hibernation<'_>,
) -> Result<(), DriverError> {
    let Hibernation { unfinished, complete, lock } = hibernation;
    let mut command = surviving(STORE, lock);
    command.env("ID", id.as_str()).env("UNFINISHED", unfinished).env("COMPLETE", complete);
    command.arg(&runtime.program).args(base_args(runtime, settings, paths));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().at(DriverStep::StoreProcesses)?;
    let group = child_pid(&child).at(DriverStep::StoreProcesses)?;
    match finish(child, STORE_TIMEOUT).at(DriverStep::StoreProcesses)? {
        Some(status) if status.success() => Ok(()),
        Some(status) if status.code().is_none() => {
            let _ = resume(runtime, settings, id, paths);
            Err(DriverError::failed(DriverStep::StoreProcesses, status.to_string()))
        }
        Some(_) => Err(DriverError::NotStorable { reason: not_storable(&last_error(&paths.runtime_log())) }),
        None => {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            resume(runtime, settings, id, paths).at(DriverStep::StoreProcesses)?;
            Err(DriverError::failed(DriverStep::StoreProcesses, too_slow(STORE_TIMEOUT)))
        }
    }
}

/// A shell script in a process that survives the daemon and holds the lock.
fn surviving(script: &str, lock: OwnedFd) -> Command {
    // starts: sh, sync, mv
    let mut command = Command::new("sh");
    command
        .env_clear()
        .env("PATH", PATH)
        .env("OPTIONS", OPTIONS)
        .args(["-c", script, "sh"])
        .stderr(Stdio::null());
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls (setsid and fcntl).
    unsafe {
        command.pre_exec(move || {
            // Signals to the daemon's process group do not reach it.
            rustix::process::setsid()?;
            Ok(rustix::io::fcntl_setfd(&lock, rustix::io::FdFlags::empty())?)
        });
    }
    command
}

pub fn resume(runtime: &Invocation, settings: &Settings, id: &SandboxId, paths: &Paths) -> io::Result<()> {
    let mut resume = base_command(runtime, settings, paths);
    resume.args(["resume", id.as_str()]);
    finish(resume.spawn()?, TIMEOUT).map(drop)
}

/// Runs [`COPY`] until the processes are stored.
pub fn copy(
    runtime: &Invocation,
    settings: &Settings,
    id: &SandboxId,
    paths: &Paths,
    copy: ProcessCopy<'_>,
) -> Result<Box<dyn Standstill>, DriverError> {
    let mut command = surviving(COPY, copy.lock);
    command.env("ID", id.as_str()).env("TARGET", copy.target);
    command.arg(&runtime.program).args(base_args(runtime, settings, paths));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().at(DriverStep::CopyProcesses)?;
    // The command has a copy of the lock.
    drop(command);
    let output = child.stdout.take();
    let held = HeldContainer { child: Some(child) };
    match is_stored(output).at(DriverStep::CopyProcesses)? {
        Some(true) => Ok(Box::new(held)),
        Some(false) => {
            if !held.finish().at(DriverStep::CopyProcesses)? {
                // The script was killed, or could not continue the container. If it goes on, this fails.
                let _ = resume(runtime, settings, id, paths);
            }
            Err(DriverError::NotStorable { reason: not_storable(&last_error(&paths.runtime_log())) })
        }
        None => {
            held.kill().at(DriverStep::CopyProcesses)?;
            resume(runtime, settings, id, paths).at(DriverStep::CopyProcesses)?;
            Err(DriverError::failed(DriverStep::CopyProcesses, too_slow(STORE_TIMEOUT)))
        }
    }
}

/// Whether the script says that the processes are stored; `None` if it says nothing in time.
fn is_stored(output: Option<ChildStdout>) -> io::Result<Option<bool>> {
    let Some(mut output) = output else { return Ok(Some(false)) };
    if !is_readable_within(&output, STORE_TIMEOUT)? {
        return Ok(None);
    }
    Ok(Some(output.read(&mut [0])? == 1))
}

/// A container that stands still as long as the script waits for the end of its input.
struct HeldContainer {
    child: Option<Child>,
}

impl HeldContainer {
    /// Lets the processes go on. Whether they do.
    fn finish(mut self) -> io::Result<bool> {
        let Some(mut child) = self.child.take() else { return Ok(true) };
        drop(child.stdin.take());
        Ok(finish(child, TIMEOUT)?.is_some_and(|status| status.success()))
    }

    fn kill(mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let _ = rustix::process::kill_process_group(child_pid(&child)?, Signal::KILL);
        child.wait().map(drop)
    }
}

impl Standstill for HeldContainer {
    fn end(self: Box<Self>) -> Result<(), DriverError> {
        match self.finish() {
            Ok(true) => Ok(()),
            Ok(false) => Err(DriverError::failed(DriverStep::ContinueProcesses, "gVisor could not")),
            Err(error) => Err(DriverError::failed(DriverStep::ContinueProcesses, error)),
        }
    }
}

impl Drop for HeldContainer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            if let Err(error) = finish(child, TIMEOUT) {
                tracing::error!(%error, "could not wait until the processes of a sandbox continue");
            }
        }
    }
}

/// The reason in a message of gVisor, which goes on with the state of its kernel.
fn not_storable(message: &str) -> String {
    let deleted = message.split_once("gofer.dentry(\"").and_then(|(_, rest)| {
        let (name, rest) = rest.split_once("\").beforeSave: deleted")?;
        rest.starts_with(' ').then(|| format!("a process uses the deleted file '/{name}'"))
    });
    deleted
        .unwrap_or_else(|| message.lines().next().unwrap_or_default().chars().take(MESSAGE_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_the_deleted_file() {
        let message = "checkpoint failed: encoding error: gofer.dentry(\"workspace/gone\").beforeSave: deleted and \
                       invalidated dentries can't be restored:\ngoroutine 132 [running]:";
        assert_eq!(not_storable(message), "a process uses the deleted file '/workspace/gone'");
        assert_eq!(not_storable("checkpoint failed: no space\nmore"), "checkpoint failed: no space");
        assert_eq!(not_storable(""), "");
        assert_eq!(not_storable(&"x".repeat(1000)).len(), MESSAGE_CHARS);
    }
}
