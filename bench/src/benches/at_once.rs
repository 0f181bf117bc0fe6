//! Many creates at the same moment: twenty with the default pool, each to the first output of a command, and two hundred without a
//! pool. All are timed from the common start.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::{Rig, RigOptions};

use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::traces;
use crate::with_rig::with_rig;

pub const NAMES: [&str; 2] = ["at-once", "at-once-cold"];
/// That of the default configuration.
const DEFAULT_POOL: u32 = 2;
const WITH_POOL: Crowd =
    Crowd { bench: NAMES[0], creates: 20, rounds: 5, pool: DEFAULT_POOL, has_command: true };
const WITHOUT_POOL: Crowd = Crowd { bench: NAMES[1], creates: 200, rounds: 1, pool: 0, has_command: false };

struct Crowd {
    bench: &'static str,
    creates: u32,
    rounds: usize,
    pool: u32,
    /// Whether a command must have printed something.
    has_command: bool,
}

pub async fn run() -> Result<Vec<Row>> {
    Ok(vec![crowd(&WITH_POOL).await?, crowd(&WITHOUT_POOL).await?])
}

async fn crowd(crowd: &Crowd) -> Result<Row> {
    with_rig(RigOptions { pool: crowd.pool, ..RigOptions::default() }, async |rig: &Rig| {
        let mut samples = Samples::default();
        let mut problems = Vec::new();
        for _ in 0..crowd.rounds {
            rig.wait_for_full_pool().await;
            for outcome in at_once(rig, crowd).await? {
                match outcome {
                    Ok(took) => samples.push(took),
                    Err(error) => problems.push(format!("a create failed: {error:#}")),
                }
            }
        }
        let mut row = Row::times(crowd.bench, OURS, &samples);
        row.problems = problems;
        rig.engine.shutdown().await;
        let left = traces::all_resources(rig)?;
        Ok(if left.is_empty() { row } else { row.problem(format!("left behind: {}", left.join(", "))) })
    })
    .await
}

async fn at_once(rig: &Rig, crowd: &Crowd) -> Result<Vec<Result<Duration>>> {
    let begin = Instant::now();
    let has_command = crowd.has_command;
    let creates: Vec<_> = (0..crowd.creates)
        .map(|_| {
            let (engine, template) = (rig.engine.clone(), rig.template.clone());
            tokio::spawn(async move {
                let created = engine.create("test", e2e::config(), template, None).await?;
                let id = created.record.id.clone();
                if has_command {
                    let execution = engine.sandbox("test", &id).execute(e2e::command("echo x")).await?;
                    ensure!(
                        execution.collect(1024).await?.stdout == "x\n",
                        "the command printed something else"
                    );
                }
                anyhow::Ok((id, begin.elapsed()))
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for create in creates {
        outcomes.push(create.await?);
    }
    let mut took = Vec::new();
    for outcome in outcomes {
        took.push(match outcome {
            Ok((id, elapsed)) => {
                rig.engine.sandbox("test", &id).terminate("request").await?;
                Ok(elapsed)
            }
            Err(error) => Err(error),
        });
    }
    Ok(took)
}
