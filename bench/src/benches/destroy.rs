//! Termination of a sandbox with a process: the time until the response (`destroy`), and from then until all resources on the host
//! are released (`destroy-gone`).

use std::time::Instant;

use anyhow::Result;
use async_trait::async_trait;
use e2e::{Rig, RigOptions};

use super::Setup;
use crate::baselines::docker::Docker;
use crate::report::{OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::traces::Traces;
use crate::with_rig::with_rig;

const ROUNDS: usize = 100;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![Box::new(Ours { rig })];
        if let Some(docker) = &setup.docker {
            subjects.push(Box::new(DockerRemove { docker }));
        }
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours<'a> {
    rig: &'a Rig,
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let id = self.rig.create().await?;
        self.rig.output(&id, "echo written > file; sleep 1000 >/dev/null 2>&1 &").await?;
        let traces = Traces::of(self.rig, &id)?;
        let begin = Instant::now();
        self.rig.engine.sandbox("test", &id).terminate("request").await?;
        let answered = begin.elapsed();
        traces.wait_for_removal(self.rig).await?;
        Ok(vec![("destroy", answered), ("destroy-gone", begin.elapsed().saturating_sub(answered))])
    }
}

struct DockerRemove<'a> {
    docker: &'a Docker,
}

#[async_trait]
impl Subject for DockerRemove<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let container = self.docker.create_and_start().await?;
        let begin = Instant::now();
        self.docker.remove(&container).await?;
        Ok(vec![("destroy", begin.elapsed())])
    }
}
