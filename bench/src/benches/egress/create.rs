//! What a network adds to a create, through the whole service: two daemons take turns, one with and one without.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::service::Service;
use rand::seq::SliceRandom as _;
use serde_json::json;

use super::machine::Machine;
use crate::report::{OURS, Row};
use crate::samples::Samples;

const ROUNDS: usize = 100;
const WARM_UP: usize = 3;
/// The pool fills again, and what was destroyed is cleared away.
const BETWEEN: Duration = Duration::from_millis(150);

pub async fn run(bench: &'static str, pool: u32) -> Result<Vec<Row>> {
    let mut sides = Vec::new();
    for (subject, network) in [(OURS, "nftables"), ("no-network", "none")] {
        sides.push((subject, Machine::start(network, pool).await?, Samples::default()));
    }
    if pool > 0 {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    for round in 0..ROUNDS + WARM_UP {
        sides.shuffle(&mut rand::rng());
        for (_, machine, samples) in &mut sides {
            machine.internet.enter()?;
            let client = &machine.client;
            client.get("/v1/sandboxes?limit=1").await?.is(200)?;
            let begin = Instant::now();
            let id = machine.create(Service::image(), &json!({ "default": "allow" })).await?;
            if round >= WARM_UP {
                samples.push(begin.elapsed());
            }
            machine.destroy(&id).await?;
            tokio::time::sleep(BETWEEN).await;
        }
    }
    sides.sort_by_key(|(subject, ..)| *subject != OURS);
    Ok(sides.iter().map(|(subject, _, samples)| Row::times(bench, subject, samples)).collect())
}
