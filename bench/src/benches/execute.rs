//! The cost of running `true`: through engine and agent, as a bare process, through Docker.

use std::time::Instant;

use anyhow::{Result, ensure};
use api::SandboxId;
use async_trait::async_trait;
use e2e::{Rig, RigOptions};

use super::Setup;
use crate::baselines::bash::{Bash, BashTokio};
use crate::baselines::bwrap::Bwrap;
use crate::baselines::docker::Docker;
use crate::report::{OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

const BENCH: &str = "execute";
const ROUNDS: usize = 500;
const MAX_OUTPUT_BYTES: usize = 1 << 20;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let id = rig.create().await?;
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Ours { bench: BENCH, name: OURS, rig, id }),
            Box::new(Bash { bench: BENCH, command: "true" }),
            Box::new(BashTokio { bench: BENCH, command: "true" }),
        ];
        subjects.extend(Bwrap::find(BENCH, e2e::rootfs()?).map(|bwrap| Box::new(bwrap) as Box<dyn Subject>));
        if let Some(docker) = &setup.docker {
            subjects.push(Box::new(DockerExec { docker, container: docker.create_and_start().await? }));
        }
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

/// The engine in this process.
pub struct Ours<'a> {
    pub bench: &'static str,
    pub name: &'static str,
    pub rig: &'a Rig,
    pub id: SandboxId,
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let (engine, id) = (self.rig.engine.clone(), self.id.clone());
        // Runs on a task of the runtime like a server's handlers, not on the main thread.
        let executing = tokio::spawn(async move {
            let begin = Instant::now();
            let execution = engine.sandbox("test", &id).execute(e2e::command("true")).await?;
            let result = execution.collect(MAX_OUTPUT_BYTES).await?;
            anyhow::Ok((begin.elapsed(), result))
        });
        let (took, result) = executing.await??;
        ensure!(result.exit_code == Some(0), "true ended with {result:?}");
        Ok(vec![(self.bench, took)])
    }
}

struct DockerExec<'a> {
    docker: &'a Docker,
    container: String,
}

#[async_trait]
impl Subject for DockerExec<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.docker.exec(&self.container, "true").await?;
        Ok(vec![(BENCH, begin.elapsed())])
    }
}
