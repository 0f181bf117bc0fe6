<<<<<<< HEAD:e2e/src/internet/tether.rs
//! A server process that ends with this process in any case: a shell waits for the end of its input and then kills the
//! server.
=======
//! A server process that ends with this one, however it ends: a shell waits for the end of its standard input and then ends
//! the server.
>>>>>>> 805f943 (e2e: describe the network tests and the simulated internet in plain terms):e2e/src/internet/server_process.rs

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

const WAIT_AND_KILL: &str = r#""$@" & server=$!; exec 2>/dev/null; cat >&2; kill "$server"; wait "$server""#;

/// A running server.
pub struct ServerProcess {
    shell: Child,
}

<<<<<<< HEAD:e2e/src/internet/tether.rs
impl Tether {
    /// Starts it where the calling thread is.
    pub fn new<S: AsRef<OsStr>>(command_line: impl IntoIterator<Item = S>) -> Result<Self> {
=======
impl ServerProcess {
    /// Starts it in the namespace of the calling thread.
    pub fn new<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Result<Self> {
>>>>>>> 805f943 (e2e: describe the network tests and the simulated internet in plain terms):e2e/src/internet/server_process.rs
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
