//! The cost of a network for a create, through the whole service: two daemons in alternation, with and without a network.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::service::Service;
use rand::seq::SliceRandom as _;
use serde_json::json;

use super::machine::Machine;
use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::service::{metric, wait_for_pool};

const ROUNDS: usize = 100;
const WARM_UP: usize = 3;
/// A pause in which terminated sandboxes are removed and the pools are filled.
const PAUSE_BETWEEN_ROUNDS: Duration = Duration::from_millis(150);
/// The metric of creates from the pool.
const FROM_POOL: &str = "sandboxd_created_total{source=\"pool\"}";

pub async fn run(bench: &'static str, pool: u32) -> Result<Vec<Row>> {
    let mut sides = Vec::new();
    for (subject, network) in [(OURS, "nftables"), ("no-network", "none")] {
        sides.push((subject, Machine::start(network, pool).await?, Samples::default()));
    }
    for round in 0..ROUNDS + WARM_UP {
        sides.shuffle(&mut rand::rng());
        for (_, machine, samples) in &mut sides {
            machine.internet.enter()?;
            if pool > 0 {
                wait_for_pool(machine.service.metrics, pool).await?;
            }
            tokio::time::sleep(PAUSE_BETWEEN_ROUNDS).await;
            let client = &machine.client;
            client.get("/v1/sandboxes?limit=1").await?.is(200)?;
            let begin = Instant::now();
            let id = machine.create_default(Service::image(), &json!({ "default": "allow" })).await?;
            if round >= WARM_UP {
                samples.push(begin.elapsed());
            }
            machine.destroy(&id).await?;
            // Filling this pool must not overlap with the other side's turn.
            if pool > 0 {
                wait_for_pool(machine.service.metrics, pool).await?;
            }
        }
    }
    for (_, machine, _) in &sides {
        machine.internet.enter()?;
        let warm = metric(machine.service.metrics, FROM_POOL).await? as usize;
        let wanted = if pool > 0 { ROUNDS + WARM_UP } else { 0 };
        ensure!(warm == wanted, "{warm} of {} creates were from the pool", ROUNDS + WARM_UP);
    }
    sides.sort_by_key(|(subject, ..)| *subject != OURS);
    Ok(sides.iter().map(|(subject, _, samples)| Row::times(bench, subject, samples)).collect())
}
