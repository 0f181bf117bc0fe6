//! Snapshots of a sandbox with 100 MB of new data, creates from them, and forks. The peers commit a container with as much data and
//! run the result, and copy a file of that size.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::SandboxId;
use async_trait::async_trait;
use e2e::{Rig, RigOptions};
use rules::{ForkRequest, SnapshotRequest};

use super::Setup;
use super::create::Create;
use crate::baselines::docker::Docker;
use crate::report::{OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

pub const NAMES: [&str; 3] = ["snapshot", "create-from-snapshot", "fork"];
const ROUNDS: usize = 20;
const ACCOUNT: &str = "test";
const FORKS: u32 = 20;
/// Not compressible, and different in each sandbox.
const WRITE: &str = "head -c 100M /dev/urandom > data";

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let copied = rig.data.join("copied");
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Ours { rig }),
            Box::new(Create { bench: "create-cold", name: OURS, rig }),
            Box::new(CopyFile::new(copied).await?),
        ];
        if let Some(docker) = &setup.docker {
            subjects.push(Box::new(DockerCommit { docker }));
        }
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours<'a> {
    rig: &'a Rig,
}

impl Ours<'_> {
    async fn terminate(&self, id: &SandboxId) -> Result<()> {
        self.rig.engine.sandbox(ACCOUNT, id).terminate("request").await?;
        Ok(())
    }
}

/// How long the processes were frozen in the last snapshot of a sandbox, from its event.
pub(super) async fn frozen(rig: &Rig, id: &SandboxId) -> Result<Duration> {
    let events = rig.store.events(id, 0, 1000).await?;
    let taken = events.iter().rev().find(|event| event.kind == "snapshot.created");
    let ms = taken.and_then(|event| event.data["frozenMs"].as_u64()).context("no event of the snapshot")?;
    Ok(Duration::from_millis(ms))
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let engine = &self.rig.engine;
        let id = self.rig.create().await?;
        self.rig.output(&id, WRITE).await?;
        // A process that goes on writing.
        self.rig.output(&id, "(while true; do echo x >> log; sleep 0.001; done) >/dev/null 2>&1 &").await?;
        let begin = Instant::now();
        let snapshot = engine.sandbox(ACCOUNT, &id).take_snapshot(SnapshotRequest::default(), None).await?;
        let taken = begin.elapsed();
        let frozen = frozen(self.rig, &id).await?;

        let config = e2e::config();
        let (template, _) = engine.snapshot_template(ACCOUNT, &snapshot.id).await?;
        let begin = Instant::now();
        let created = engine.create(ACCOUNT, config, template, None).await?;
        let create = begin.elapsed();
        self.terminate(&created.record.id).await?;

        let request = ForkRequest {
            memory: false,
            count: FORKS,
            env: Default::default(),
            name: None,
            metadata: None,
            isolation: Default::default(),
        };
        let begin = Instant::now();
        let forks = engine.sandbox(ACCOUNT, &id).fork(request, None).await?;
        let ids: Vec<SandboxId> = forks.iter().map(|fork| fork.record.id.clone()).collect();
        let outputs = ids.iter().map(|id| self.rig.output(id, "stat -c %s data"));
        let outputs = futures_util::future::try_join_all(outputs).await?;
        let forked = begin.elapsed();
        ensure!(outputs.iter().all(|size| size == "104857600\n"), "a fork has other data: {outputs:?}");
        for id in ids.iter().chain([&id]) {
            self.terminate(id).await?;
        }
        engine.delete_snapshot(ACCOUNT, &snapshot.id).await?;
        // Removals must not overlap with the next subject.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(vec![
            ("snapshot", taken),
            ("snapshot-frozen", frozen),
            ("create-from-snapshot", create),
            ("fork", forked),
        ])
    }
}

/// `cp --reflink=auto` of a file with as much data, and a sync of the copy.
struct CopyFile {
    from: PathBuf,
    to: PathBuf,
}

impl CopyFile {
    async fn new(to: PathBuf) -> Result<Self> {
        let from = to.with_extension("original");
        let written = bash(&format!("head -c 100M /dev/urandom > {0} && sync {0}", from.display())).await;
        written.map(|()| Self { from, to })
    }
}

async fn bash(command: &str) -> Result<()> {
    let mut bash = tokio::process::Command::new("bash");
    let ended = bash.args(["-c", command]).stdin(Stdio::null()).kill_on_drop(true).status().await?;
    ensure!(ended.success(), "{command}: {ended}");
    Ok(())
}

#[async_trait]
impl Subject for CopyFile {
    fn name(&self) -> &'static str {
        "cp"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let (from, to) = (self.from.display(), self.to.display());
        let begin = Instant::now();
        bash(&format!("cp --reflink=auto {from} {to} && sync {to}")).await?;
        let took = begin.elapsed();
        std::fs::remove_file(&self.to)?;
        Ok(vec![("snapshot", took)])
    }
}

struct DockerCommit<'a> {
    docker: &'a Docker,
}

#[async_trait]
impl Subject for DockerCommit<'_> {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let source = self.docker.create_and_start().await?;
        self.docker.exec(&source, WRITE).await?;
        let begin = Instant::now();
        let image = self.docker.commit(&source).await?;
        let taken = begin.elapsed();
        let begin = Instant::now();
        let created = self.docker.create_and_start_from(&image).await?;
        let create = begin.elapsed();
        for container in [&created, &source] {
            self.docker.remove(container).await?;
        }
        self.docker.remove_image(&image).await?;
        Ok(vec![("snapshot", taken), ("create-from-snapshot", create)])
    }
}
