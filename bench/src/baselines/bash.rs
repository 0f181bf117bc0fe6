//! A bare `bash -c` of the host with pipes: the minimal cost of a command.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;

use crate::subject::{Measured, Subject};

/// Spawned by the standard library on the measuring thread, the fastest way in Rust.
pub struct Bash {
    pub bench: &'static str,
    pub command: &'static str,
}

#[async_trait]
impl Subject for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let mut command = std::process::Command::new("/bin/bash");
        command.args(["-c", self.command]).stdin(Stdio::null());
        tokio::task::block_in_place(|| {
            let begin = Instant::now();
            let output = command.output().context("running bash")?;
            let took = begin.elapsed();
            ensure!(output.status.success(), "bash ended with {}", output.status);
            Ok(vec![(self.bench, took)])
        })
    }
}

/// Spawned by tokio, as an asynchronous service would.
pub struct BashTokio {
    pub bench: &'static str,
    pub command: &'static str,
}

#[async_trait]
impl Subject for BashTokio {
    fn name(&self) -> &'static str {
        "bash-tokio"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let mut command = tokio::process::Command::new("/bin/bash");
        command.args(["-c", self.command]).stdin(Stdio::null());
        let begin = Instant::now();
        let output = command.output().await.context("running bash")?;
        let took = begin.elapsed();
        ensure!(output.status.success(), "bash ended with {}", output.status);
        Ok(vec![(self.bench, took)])
    }
}
