//! Sequential creates: from the pool, without a pool, and with the peers.

use std::time::Instant;

use anyhow::Result;
use async_trait::async_trait;
use e2e::{Rig, RigOptions};

use super::Setup;
use crate::baselines::bwrap::Bwrap;
use crate::baselines::docker::Docker;
use crate::baselines::runc::Runc;
use crate::report::{OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::traces::Traces;
use crate::with_rig::with_rig;

const ROUNDS: usize = 100;
const POOL: u32 = 4;
/// The bench of the peers' rows, which have no pool.
const PEERS: &str = "create";

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let pool = if setup.wants(&["create-warm"]) { POOL } else { 0 };
    with_rig(RigOptions { pool, ..RigOptions::default() }, async |warm: &Rig| {
        with_rig(RigOptions::default(), async |cold: &Rig| {
            let mut subjects: Vec<Box<dyn Subject + '_>> = Vec::new();
            if setup.wants(&["create-warm"]) {
                subjects.push(Box::new(Ours { bench: "create-warm", rig: warm }));
            }
            if setup.wants(&["create-cold"]) {
                subjects.push(Box::new(Ours { bench: "create-cold", rig: cold }));
            }
            subjects.push(Box::new(Runc::start(PEERS, cold).await?));
            subjects
                .extend(Bwrap::find(PEERS, e2e::rootfs()?).map(|bwrap| Box::new(bwrap) as Box<dyn Subject>));
            if let Some(docker) = &setup.docker {
                subjects.push(Box::new(DockerCreate { docker }));
            }
            interleave(ROUNDS, &mut subjects).await
        })
        .await
    })
    .await
}

struct Ours<'a> {
    bench: &'static str,
    rig: &'a Rig,
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        self.rig.wait_for_full_pool().await;
        let begin = Instant::now();
        let id = self.rig.create().await?;
        let took = begin.elapsed();
        let traces = Traces::of(self.rig, &id)?;
        self.rig.engine.sandbox("test", &id).terminate("request").await?;
        // Cleanup and refilling of the pool must not overlap with the next subject.
        traces.wait_for_removal(self.rig).await?;
        self.rig.wait_for_full_pool().await;
        Ok(vec![(self.bench, took)])
    }
}

struct DockerCreate<'a> {
    docker: &'a Docker,
}

#[async_trait]
impl Subject for DockerCreate<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        let container = self.docker.create_and_start().await?;
        let took = begin.elapsed();
        self.docker.remove(&container).await?;
        Ok(vec![(PEERS, took)])
    }
}
