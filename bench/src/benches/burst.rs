//! Fifty concurrent creates against a pool of fifty. All are timed from the common start.

use std::time::Instant;

use anyhow::Result;
use e2e::{Rig, RigOptions};

use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::traces;
use crate::with_rig::with_rig;

const CREATES: u32 = 50;
const ROUNDS: usize = 6;

pub async fn run() -> Result<Vec<Row>> {
    with_rig(RigOptions { pool: CREATES, ..RigOptions::default() }, async |rig: &Rig| {
        let mut samples = Samples::default();
        let mut problems = Vec::new();
        for _ in 0..ROUNDS {
            rig.wait_for_full_pool().await;
            let begin = Instant::now();
            let creates: Vec<_> = (0..CREATES)
                .map(|_| {
                    let (engine, template) = (rig.engine.clone(), rig.template.clone());
                    tokio::spawn(async move {
                        let created = engine.create("test", e2e::config(), template, None).await;
                        (created, begin.elapsed())
                    })
                })
                .collect();
            for create in creates {
                let (created, took) = create.await?;
                samples.push(took);
                match created {
                    Ok(status) => {
                        rig.engine.sandbox("test", &status.record.id).terminate("request").await?;
                    }
                    Err(error) => problems.push(format!("a create failed: {error}")),
                }
            }
        }
        let mut row = Row::times("burst", OURS, &samples);
        row.problems = problems;
        rig.engine.shutdown().await;
        let left = traces::all_resources(rig)?;
        Ok(vec![if left.is_empty() { row } else { row.problem(format!("left behind: {}", left.join(", "))) }])
    })
    .await
}
