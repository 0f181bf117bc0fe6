//! `sbx run IMAGE -- true` as a process, from start to end, compared with the same operations over Docker's socket, without the
//! start of Docker's client.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use e2e::service::Service as Process;
use tokio::process::Command;

use super::Setup;
use crate::baselines::docker::Docker;
use crate::report::{OURS, Row};
use crate::service::{Service, with_service};
use crate::subject::{Measured, Subject, interleave};

const BENCH: &str = "sbx-run";
const ROUNDS: usize = 50;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    with_service(async |service| {
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![Box::new(Ours { service })];
        if let Some(docker) = &setup.docker {
            subjects.push(Box::new(Theirs { docker }));
        }
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours<'a> {
    service: &'a Service,
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        self.service.wait_for_full_pool().await?;
        // starts: sbx
        let mut command = Command::new(self.service.sbx()?);
        command.args(["run", Process::image(), "--", "true"]).envs(self.service.environment()?);
        let begin = Instant::now();
        let status = command.stdin(Stdio::null()).status().await.context("running sbx")?;
        let took = begin.elapsed();
        ensure!(status.success(), "sbx run ended with {status}");
        Ok(vec![(BENCH, took)])
    }
}

struct Theirs<'a> {
    docker: &'a Docker,
}

#[async_trait]
impl Subject for Theirs<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        let container = self.docker.create_and_start().await?;
        self.docker.exec(&container, "true").await?;
        self.docker.remove(&container).await?;
        Ok(vec![(BENCH, begin.elapsed())])
    }
}
