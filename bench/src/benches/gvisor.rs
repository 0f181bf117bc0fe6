//! Sandboxes under gVisor beside containers: creating, a command, work that makes many system calls, and memory.

use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{Isolation, SandboxId};
use async_trait::async_trait;
use e2e::{Rig, RigOptions};

use super::create::Create;
use super::execute::Ours as Execute;
use super::pip;
use crate::host;
use crate::report::{Figure, OURS, Row};
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

const CREATES: usize = 15;
const COMMANDS: usize = 60;
const WORK: usize = 5;
const IDLE: u32 = 10;
const CONTAINER: &str = "container";

/// Bash scripts that print how many microseconds their work took.
const FORKS: (&str, &str) = ("gvisor-forks", "for n in {1..100}; do /bin/true; done");
const FILES: (&str, &str) = (
    "gvisor-files",
    "mkdir d; for n in {1..3000}; do echo content > d/$n; done; cat d/* > /dev/null; rm -r d",
);

pub async fn run() -> Result<Vec<Row>> {
    let under_gvisor = |pool| RigOptions { isolation: Isolation::Gvisor, pool, ..RigOptions::default() };
    let mut rows = with_rig(under_gvisor(1), async |warm: &Rig| {
        with_rig(under_gvisor(0), async |cold: &Rig| {
            with_rig(
                RigOptions { isolation: Isolation::Container, ..RigOptions::default() },
                async |beside: &Rig| {
                    let mut rows = create(warm, cold, beside).await?;
                    rows.extend(execute(cold).await?);
                    rows.extend(work(cold, beside).await?);
                    rows.push(memory(cold).await?);
                    Ok(rows)
                },
            )
            .await
        })
        .await
    })
    .await?;
    rows.extend(pip::run().await.context("pip")?);
    Ok(rows)
}

async fn create(warm: &Rig, cold: &Rig, beside: &Rig) -> Result<Vec<Row>> {
    let create = |bench, name, rig| Box::new(Create { bench, name, rig }) as Box<dyn Subject + '_>;
    let mut subjects = vec![
        create("gvisor-create-warm", OURS, warm),
        create("gvisor-create-cold", OURS, cold),
        create("gvisor-create-cold", CONTAINER, beside),
    ];
    interleave(CREATES, &mut subjects).await
}

/// A command through the engine, beside a program that bash starts inside.
async fn execute(rig: &Rig) -> Result<Vec<Row>> {
    let id = rig.create().await?;
    let inside =
        Work { bench: "gvisor-execute", name: "inside", rig, id: id.clone(), script: "/bin/bash -c true" };
    let mut subjects: Vec<Box<dyn Subject + '_>> =
        vec![Box::new(Execute { bench: "gvisor-execute", name: OURS, rig, id }), Box::new(inside)];
    interleave(COMMANDS, &mut subjects).await
}

async fn work(gvisor: &Rig, beside: &Rig) -> Result<Vec<Row>> {
    let mut subjects: Vec<Box<dyn Subject + '_>> = Vec::new();
    for (name, rig) in [(OURS, gvisor), (CONTAINER, beside)] {
        let id = rig.create().await?;
        for (bench, script) in [FORKS, FILES] {
            subjects.push(Box::new(Work { bench, name, rig, id: id.clone(), script }));
        }
    }
    interleave(WORK, &mut subjects).await
}

/// Work inside, timed inside.
struct Work<'a> {
    bench: &'static str,
    name: &'static str,
    rig: &'a Rig,
    id: SandboxId,
    script: &'static str,
}

#[async_trait]
impl Subject for Work<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let script =
            format!("begin=${{EPOCHREALTIME/./}}; {}; echo $((${{EPOCHREALTIME/./}} - begin))", self.script);
        let took = self.rig.output(&self.id, &script).await?;
        let took = Duration::from_micros(took.trim().parse().context("the work printed no time")?);
        Ok(vec![(self.bench, took)])
    }
}

async fn memory(rig: &Rig) -> Result<Row> {
    host::settle_memory().await?;
    let before = host::memory_kb()?;
    for _ in 0..IDLE {
        rig.create().await?;
    }
    host::settle_memory().await?;
    let available = |memory: &std::collections::BTreeMap<String, i64>| memory.get("MemAvailable").copied();
    let (before, after) = (available(&before), available(&host::memory_kb()?));
    let used = before.context("no MemAvailable")? - after.context("no MemAvailable")?;
    #[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
    let each = used as f64 / 1024.0 / f64::from(IDLE);
    Ok(Row::new("gvisor-memory", OURS, Figure::Megabytes(each), IDLE as usize))
}
