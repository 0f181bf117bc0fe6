//! Snapshots and forks with processes under gVisor, of a sandbox with 256 MB of memory, compared with writing and syncing a file of that
//! size.

use std::time::Instant;

use anyhow::{Result, ensure};
use api::{Isolation, SandboxConfig, SandboxId};
use async_trait::async_trait;
use e2e::Rig;
use rules::{ForkRequest, SnapshotRequest};

use super::hibernation::{FILL, WriteFile, under_gvisor};
use super::snapshot::frozen;
use crate::report::{OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

pub const NAMES: [&str; 2] = ["memory-snapshot", "memory-fork"];
const ACCOUNT: &str = "test";
const ROUNDS: usize = 7;
const FORKS: u32 = 10;

pub async fn run() -> Result<Vec<Row>> {
    with_rig(under_gvisor(), async |rig: &Rig| {
        let id = rig.create().await?;
        rig.output(&id, FILL).await?;
        let mut subjects: Vec<Box<dyn Subject + '_>> =
            vec![Box::new(Ours { rig, id }), Box::new(WriteFile::new(rig, "memory-snapshot"))];
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Ours<'a> {
    rig: &'a Rig,
    id: SandboxId,
}

impl Ours<'_> {
    /// Asks all for the process of the source, then terminates them.
    async fn check(&self, copies: &[SandboxId]) -> Result<()> {
        let asked = copies.iter().map(|id| self.rig.output(id, "pgrep -c perl"));
        let counts = futures_util::future::try_join_all(asked).await?;
        ensure!(counts.iter().all(|count| count == "1\n"), "a copy lacks the process: {counts:?}");
        Ok(())
    }

    async fn terminate(&self, copies: &[SandboxId]) -> Result<()> {
        for id in copies {
            self.rig.engine.sandbox(ACCOUNT, id).terminate("request").await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Subject for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let engine = &self.rig.engine;
        let source = engine.sandbox(ACCOUNT, &self.id);
        let request = SnapshotRequest { memory: true, ..SnapshotRequest::default() };
        let begin = Instant::now();
        let snapshot = source.take_snapshot(request, None).await?;
        let taken = begin.elapsed();
        let frozen = frozen(self.rig, &self.id).await?;

        let (template, _) = engine.snapshot_template(ACCOUNT, &snapshot.id).await?;
        let config = SandboxConfig { isolation: Isolation::Gvisor, ..e2e::config() };
        let begin = Instant::now();
        let copy = [engine.create(ACCOUNT, config, template, None).await?.record.id.clone()];
        self.check(&copy).await?;
        let created = begin.elapsed();
        self.terminate(&copy).await?;

        let request = ForkRequest {
            count: FORKS,
            env: Default::default(),
            name: None,
            metadata: None,
            memory: true,
            isolation: Default::default(),
        };
        let begin = Instant::now();
        let forks = source.fork(request, None).await?;
        let forks: Vec<SandboxId> = forks.iter().map(|fork| fork.record.id.clone()).collect();
        self.check(&forks).await?;
        let forked = begin.elapsed();
        self.terminate(&forks).await?;
        engine.delete_snapshot(ACCOUNT, &snapshot.id).await?;
        // Removals must not overlap with the next subject.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        Ok(vec![
            ("memory-snapshot", taken),
            ("memory-snapshot-frozen", frozen),
            ("create-from-memory-snapshot", created),
            ("memory-fork", forked),
        ])
    }
}
