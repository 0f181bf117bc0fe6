//! Pause and resume of a sandbox with a process in it.

use std::time::Instant;

use anyhow::Result;
use api::SandboxId;
use async_trait::async_trait;
use e2e::{Rig, RigOptions};

use super::Setup;
use crate::baselines::docker::Docker;
use crate::report::{OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

const ROUNDS: usize = 200;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let id = rig.create().await?;
        rig.output(&id, "sleep 1000 >/dev/null 2>&1 &").await?;
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![Box::new(Ours { rig, id })];
        if let Some(docker) = &setup.docker {
            // Its first process is also a sleep.
            subjects.push(Box::new(DockerPause { docker, container: docker.create_and_start().await? }));
        }
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours<'a> {
    rig: &'a Rig,
    id: SandboxId,
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.rig.engine.sandbox("test", &self.id).pause().await?;
        let pause = begin.elapsed();
        let begin = Instant::now();
        self.rig.engine.sandbox("test", &self.id).resume().await?;
        Ok(vec![("pause", pause), ("resume", begin.elapsed())])
    }
}

struct DockerPause<'a> {
    docker: &'a Docker,
    container: String,
}

#[async_trait]
impl Subject for DockerPause<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        self.docker.pause(&self.container).await?;
        let pause = begin.elapsed();
        let begin = Instant::now();
        self.docker.unpause(&self.container).await?;
        Ok(vec![("pause", pause), ("resume", begin.elapsed())])
    }
}
