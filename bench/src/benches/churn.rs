//! Continuous creates and deletes without a pool: cycles per second, failures and leaks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use e2e::{Rig, RigOptions};

use super::{Scale, Setup};
use crate::report::{Figure, OURS, Row};
use crate::traces;
use crate::with_rig::with_rig;

/// Numbers of concurrent clients to try; the best one is used for the measurement.
const CLIENTS: [usize; 4] = [2, 3, 4, 8];
const TRIAL: usize = 60;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let cycles = if setup.scale == Scale::Full { 5000 } else { 300 };
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let mut best = (0, 0.0);
        let mut tried = Vec::new();
        for clients in CLIENTS {
            let rate = churn(rig, clients, TRIAL).await?.0;
            tried.push(format!("{clients}: {rate:.1}"));
            if rate > best.1 {
                best = (clients, rate);
            }
        }
        let (rate, problems) = churn(rig, best.0, cycles).await?;
        let mut row = Row::new("churn", OURS, Figure::PerSecond(rate), cycles).note(format!(
            "{} concurrent clients; per second by clients: {}",
            best.0,
            tried.join(", ")
        ));
        row.problems = problems;
        let left = traces::all_resources(rig)?;
        Ok(vec![if left.is_empty() { row } else { row.problem(format!("left behind: {}", left.join(", "))) }])
    })
    .await
}

/// The rate, measured until all resources of the last sandbox are released, and the failures.
async fn churn(rig: &Rig, clients: usize, cycles: usize) -> Result<(f64, Vec<String>)> {
    let begun = AtomicUsize::new(0);
    let begin = Instant::now();
    let client = async || {
        let mut problems = Vec::new();
        while begun.fetch_add(1, Ordering::Relaxed) < cycles {
            let cycle = async {
                let id = rig.create().await?;
                rig.engine.sandbox("test", &id).terminate("request").await?;
                anyhow::Ok(())
            };
            if let Err(error) = cycle.await {
                problems.push(format!("{error:#}"));
            }
        }
        problems
    };
    let problems = futures_util::future::join_all((0..clients).map(|_| client())).await.concat();
    while !rig.driver.list().await?.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let rate = cycles as f64 / begin.elapsed().as_secs_f64();
    Ok((rate, problems))
}
