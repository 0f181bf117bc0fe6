//! Fifty creates at once against a pool of fifty. Each is timed from the moment at which all were asked for.

use std::time::Instant;

use anyhow::Result;
use e2e::{Rig, RigOptions};

use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::traces;
use crate::with_rig::with_rig;

const AT_ONCE: u32 = 50;
const ROUNDS: usize = 6;

pub async fn run() -> Result<Vec<Row>> {
    with_rig(RigOptions { pool: AT_ONCE, ..RigOptions::default() }, async |rig: &Rig| {
        let mut samples = Samples::default();
        let mut problems = Vec::new();
        for _ in 0..ROUNDS {
            rig.pool_is_full().await;
            let begin = Instant::now();
            let creates: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    let (engine, template) = (rig.engine.clone(), rig.template.clone());
                    tokio::spawn(async move {
                        let made = engine.create("test", e2e::config(), template, None).await;
                        (made, begin.elapsed())
                    })
                })
                .collect();
            for create in creates {
                let (made, took) = create.await?;
                samples.push(took);
                match made {
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
        let left = traces::everything(rig)?;
        Ok(vec![if left.is_empty() { row } else { row.problem(format!("left behind: {}", left.join(", "))) }])
    })
    .await
}
