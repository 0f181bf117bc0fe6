//! An unnamed network namespace. A child process holds it open and exits when its standard input closes, so it ends with
//! this process in any case.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace with a loopback interface only.
pub struct Namespace {
    holder: Child,
    file: File,
}

impl Namespace {
    pub fn new() -> Result<Self> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting unshare")?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("no output")?).read_line(&mut line)?;
        let file = File::open(format!("/proc/{}/ns/net", holder.id()));
        let namespace = Self { file: file.context("opening a network namespace")?, holder };
        ensure!(line == "ready\n", "could not create a network namespace");
        Ok(namespace)
    }

    /// The process that holds it, for tools that identify a namespace by a process.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Moves the calling thread into it permanently. Children of the thread are inside too.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .context("entering a network namespace")
    }

    /// Calls `work` on a thread in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                work()
            });
            worker.join().map_err(|_| anyhow::anyhow!("a thread in a namespace panicked"))?
        })
    }

    /// Runs a shell script in it; returns the output.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.inside(|| {
            let mut child = Command::new("sh")
                .args(["-eu", "-s"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            child.stdin.take().context("no input")?.write_all(script.as_bytes())?;
            let output = child.wait_with_output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{script}\nended with {}: {stderr}", output.status);
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
