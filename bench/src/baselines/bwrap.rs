//! `bwrap`: namespaces over the same root file system, without limits, disk, seccomp or persistence.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;

use crate::subject::{Measured, Subject};

pub struct Bwrap {
    pub bench: &'static str,
    pub rootfs: PathBuf,
}

impl Bwrap {
    /// `None` if it is not installed.
    pub fn find(bench: &'static str, rootfs: PathBuf) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).any(|dir| dir.join("bwrap").exists()).then_some(Self { bench, rootfs })
    }
}

#[async_trait]
impl Subject for Bwrap {
    fn name(&self) -> &'static str {
        "bwrap"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let mut command = std::process::Command::new("bwrap");
        command.args(["--unshare-all", "--die-with-parent", "--ro-bind"]).arg(&self.rootfs).arg("/");
        command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "bash", "-c", "true"]);
        command.stdin(Stdio::null());
        tokio::task::block_in_place(|| {
            let begin = Instant::now();
            let output = command.output().context("running bwrap")?;
            let took = begin.elapsed();
            ensure!(output.status.success(), "bwrap: {}", String::from_utf8_lossy(&output.stderr));
            Ok(vec![(self.bench, took)])
        })
    }
}
