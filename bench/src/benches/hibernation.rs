//! Hibernation under gVisor: a sandbox with 256 MB of memory, compared with writing and syncing a file of that size; an idle one; and
//! the host's cost of many.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use api::{Isolation, SandboxId};
use async_trait::async_trait;
use e2e::{Rig, RigOptions};
use engine::Processes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use store::{Filter, PageRange};
use tokio::io::AsyncWriteExt as _;

use super::{Scale, Setup};
use crate::host;
use crate::report::{Figure, OURS, Row};
use crate::samples::Samples;
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::{with, with_rig};

pub const NAMES: [&str; 3] = ["hibernate", "wake", "hibernated"];
const ACCOUNT: &str = "test";
const LARGE_ROUNDS: usize = 7;
const SMALL_ROUNDS: usize = 20;
pub(super) const LARGE_MB: usize = 256;
/// Different in each page, so that neither zeros nor equal pages save anything.
pub(super) const FILL: &str = "setsid perl -e 'open(R, \"<\", \"/dev/urandom\"); read(R, $x, 256 << 20); open(F, \">\", \"full\"); close F; sleep 9999' \
     > /dev/null 2>&1 < /dev/null & until [ -e full ]; do sleep 0.1; done";
const CONCURRENT: usize = 2;
const LISTS: usize = 200;

pub(super) fn under_gvisor() -> RigOptions {
    RigOptions { isolation: Isolation::Gvisor, ..RigOptions::default() }
}

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if setup.wants(&["hibernate", "wake"]) {
        rows.extend(with_rig(under_gvisor(), one).await?);
    }
    if setup.wants(&["hibernated"]) {
        rows.extend(many(if setup.scale == Scale::Full { 1000 } else { 100 }).await?);
    }
    Ok(rows)
}

async fn one(rig: &Rig) -> Result<Vec<Row>> {
    let large = rig.create().await?;
    rig.output(&large, FILL).await?;
    let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
        Box::new(Ours { rig, id: large, names: ("hibernate-256-mb", "wake-256-mb") }),
        Box::new(WriteFile::new(rig, "hibernate-256-mb")),
    ];
    let mut rows = interleave(LARGE_ROUNDS, &mut subjects).await?;
    drop(subjects);
    let id = rig.create().await?;
    let idle = Ours { rig, id, names: ("hibernate", "wake") };
    rows.extend(interleave(SMALL_ROUNDS, &mut [Box::new(idle) as Box<dyn Subject + '_>]).await?);
    Ok(rows)
}

fn random(bytes: usize) -> Vec<u8> {
    use rand::Rng as _;
    let mut content = vec![0; bytes];
    rand::rng().fill_bytes(&mut content);
    content
}

/// The names are those of the rows.
struct Ours<'a> {
    rig: &'a Rig,
    id: SandboxId,
    names: (&'static str, &'static str),
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        hibernate(self.rig, &self.id).await?;
        let hibernated = begin.elapsed();
        let begin = Instant::now();
        self.rig.output(&self.id, "true").await?;
        Ok(vec![(self.names.0, hibernated), (self.names.1, begin.elapsed())])
    }
}

async fn hibernate(rig: &Rig, id: &SandboxId) -> Result<()> {
    rig.engine.sandbox(ACCOUNT, id).pause_with(Processes::Stored).await?;
    Ok(())
}

/// What the disk alone takes.
pub(super) struct WriteFile {
    bench: &'static str,
    path: PathBuf,
    content: Vec<u8>,
}

impl WriteFile {
    pub fn new(rig: &Rig, bench: &'static str) -> Self {
        Self { bench, path: rig.data.join("written"), content: random(LARGE_MB << 20) }
    }
}

#[async_trait]
impl Subject for WriteFile {
    fn name(&self) -> &'static str {
        "write"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        let mut file = tokio::fs::File::create(&self.path).await?;
        file.write_all(&self.content).await?;
        file.sync_all().await?;
        let took = begin.elapsed();
        tokio::fs::remove_file(&self.path).await?;
        Ok(vec![(self.bench, took)])
    }
}

async fn many(count: usize) -> Result<Vec<Row>> {
    let rig = Rig::new(under_gvisor()).await?;
    // The first sandbox also allocates shared resources.
    hibernate(&rig, &rig.create().await?).await?;
    let list_before = list(&rig, 1).await?;
    let before = available_kb().await?;
    futures_util::stream::iter(1..count)
        .map(async |_| hibernate(&rig, &rig.create().await?).await)
        .buffer_unordered(CONCURRENT)
        .try_collect::<()>()
        .await?;
    let used_kb = before - available_kb().await?;
    let list_after = list(&rig, count as u64).await?;
    let halted = rig.halt().await;
    let begin = Instant::now();
    let rig = halted.start().await?;
    let restart = begin.elapsed();
    with(rig, async |rig: &Rig| {
        ensure!(rig.recovered.hibernated == count, "recovered {:?} instead of {count}", rig.recovered);
        let some = rig.driver.list().await?.into_iter().next().context("no sandbox is left")?;
        ensure!(rig.output(&some, "echo here").await? == "here\n", "a sandbox does not wake");
        Ok(())
    })
    .await?;
    #[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
    let memory = Row::new("hibernated-memory", OURS, Figure::Megabytes(used_kb as f64 / 1024.0), count);
    let restart = Row::times("hibernated-restart", OURS, &[restart].into_iter().collect());
    Ok(vec![
        memory.note("more memory of the host in use than with one, in all"),
        restart.note(format!("with {count} hibernated sandboxes, until the engine is ready")),
        Row::times("hibernated-list", OURS, &list_after),
        Row::times("hibernated-list", "one", &list_before),
    ])
}

async fn available_kb() -> Result<i64> {
    host::settle_memory().await?;
    host::memory_kb()?.get("MemAvailable").copied().context("no MemAvailable")
}

async fn list(rig: &Rig, total: u64) -> Result<Samples> {
    let filter =
        Filter { account: ACCOUNT.to_owned(), state: None, image: None, metadata: Default::default() };
    let mut times = Vec::new();
    for _ in 0..LISTS {
        let begin = Instant::now();
        let page = rig.store.list(&filter, PageRange { limit: 1, offset: 0 }).await?;
        times.push(begin.elapsed());
        ensure!(page.total == total, "{} sandboxes instead of {total}", page.total);
    }
    Ok(times.into_iter().collect())
}
