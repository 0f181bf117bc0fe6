//! Sequential creates: from the pool, without a pool, and with the peers.

use std::time::Instant;

use anyhow::Result;
use async_trait::async_trait;
use e2e::{Rig, RigOptions};

use super::Setup;
use crate::baselines::bwrap::Bwrap;
use crate::baselines::docker::Docker;
use crate::baselines::runc::{RUNC, Runc};
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
    let with_runc = RigOptions { runtime: Some(RUNC.into()), ..RigOptions::default() };
    with_rig(RigOptions { pool, ..RigOptions::default() }, async |warm: &Rig| {
        with_rig(RigOptions::default(), async |cold: &Rig| {
            with_rig(with_runc, async |runc: &Rig| measure(setup, warm, cold, runc).await).await
        })
        .await
    })
    .await
}

async fn measure(setup: &Setup, warm: &Rig, cold: &Rig, runc: &Rig) -> Result<Vec<Row>> {
    let mut subjects: Vec<Box<dyn Subject + '_>> = Vec::new();
    if setup.wants(&["create-warm"]) {
        subjects.push(Box::new(Create { bench: "create-warm", name: OURS, rig: warm }));
    }
    if setup.wants(&["create-cold"]) {
        subjects.push(Box::new(Create { bench: "create-cold", name: OURS, rig: cold }));
    }
    subjects.push(Box::new(Runc::start(PEERS, runc).await?));
    subjects.extend(Bwrap::find(PEERS, e2e::rootfs()?).map(|bwrap| Box::new(bwrap) as Box<dyn Subject>));
    if let Some(docker) = &setup.docker {
        subjects.push(Box::new(DockerCreate { docker }));
    }
    interleave(ROUNDS, &mut subjects).await
}

/// A create by a rig, whose sandbox is then removed.
pub struct Create<'a> {
    pub bench: &'static str,
    pub name: &'static str,
    pub rig: &'a Rig,
}

#[async_trait]
impl Subject for Create<'_> {
    fn name(&self) -> &'static str {
        self.name
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
