//! Stores the processes of a container under gVisor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use api::SandboxId;
use driver::DriverError;
use driver_host::{Hibernation, Paths, Settings};
use rustix::process::Signal;

use crate::runtime::{
    Invocation, PATH, TIMEOUT, base_args, base_command, child_pid, finish, last_error, too_slow,
};

/// Timeout for all of the memory to be written to the disk.
const STORE_TIMEOUT: Duration = Duration::from_secs(300);
/// The most that is shown of a message of gVisor.
const MESSAGE_CHARS: usize = 300;

/// Stores the processes of a container, which stand still from then on, or lets them go on if they cannot be stored: without
/// `--leave-running` gVisor would end those, too.
const STORE: &str = r#"
    "$@" pause "$ID" || exit 1
    # Compression would take longer than the writing. Pages of zeros need no space.
    "$@" checkpoint --leave-running --compression none --exclude-committed-zero-pages --image-path "$UNFINISHED" "$ID" &&
        sync "$UNFINISHED"/* "$UNFINISHED" && mv -T "$UNFINISHED" "$COMPLETE" && exit 0
    "$@" resume "$ID"
    exit 1
"#;

/// Runs [`STORE`] in a process that survives the daemon.
pub fn checkpoint(
    runtime: &Invocation,
    settings: &Settings,
    id: &SandboxId,
    paths: &Paths,
    hibernation: Hibernation<'_>,
) -> Result<(), DriverError> {
    let failed = |error: io::Error| DriverError::failed("store the processes", error);
    let Hibernation { unfinished, complete, lock } = hibernation;
    // starts: sh, sync, mv
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", PATH).env("ID", id.as_str());
    command.env("UNFINISHED", unfinished).env("COMPLETE", complete);
    command.args(["-c", STORE, "sh"]).arg(&runtime.program).args(base_args(runtime, settings, paths));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let lock_fd = lock.as_raw_fd();
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls (setsid and fcntl).
    unsafe {
        command.pre_exec(move || {
            // Signals to the daemon's process group do not reach it.
            rustix::process::setsid()?;
            // SAFETY: the descriptor is open: the caller owns it until the spawn is over.
            let lock = BorrowedFd::borrow_raw(lock_fd);
            Ok(rustix::io::fcntl_setfd(lock, rustix::io::FdFlags::empty())?)
        });
    }
    let child = command.spawn().map_err(failed)?;
    let group = child_pid(&child).map_err(failed)?;
    match finish(child, STORE_TIMEOUT).map_err(failed)? {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(DriverError::NotStorable { reason: not_storable(&last_error(&paths.runtime_log())) }),
        None => {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let mut resume = base_command(runtime, settings, paths);
            resume.args(["resume", id.as_str()]);
            finish(resume.spawn().map_err(failed)?, TIMEOUT).map_err(failed)?;
            Err(DriverError::failed("store the processes", too_slow(STORE_TIMEOUT)))
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
