//! A server process that ends with this process in any case: a shell waits for the end of its input and then kills the
//! server.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

const WAIT_AND_KILL: &str = r#""$@" & server=$!; exec 2>/dev/null; cat >&2; kill "$server"; wait "$server""#;

/// A running server.
pub struct ServerProcess {
    shell: Child,
}

impl ServerProcess {
    /// Starts it in the network namespace of the calling thread.
    pub fn new<S: AsRef<OsStr>>(command_line: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", WAIT_AND_KILL, "sh"])
            .args(command_line)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Ok(Self { shell: command.spawn().context("starting a server")? })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
