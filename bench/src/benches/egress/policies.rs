//! Policy changes with many sandboxes with long lists: the latency through the whole service, and the effect on other sandboxes.

use std::time::Instant;

use anyhow::Result;
use e2e::internet;
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::machine::Machine;
use crate::report::{OURS, Row};
use crate::samples::Samples;

const DOMAINS: usize = 50;
const ROUNDS: usize = 200;
const CONCURRENT_CREATES: usize = 3;

/// A unique list.
fn policy(site: &str, of: usize) -> Value {
    let listed = (1..DOMAINS).map(|n| format!("host-{n}.of-{of}.example")).chain([site.to_owned()]);
    json!({ "default": "deny", "allow": listed.collect::<Vec<_>>() })
}

pub async fn run(machine: &Machine, count: usize) -> Result<Vec<Row>> {
    let site = &machine.site.name;
    let one = machine.create(internet::image::IMAGE, &policy(site, 0)).await?;
    let alone = changes(machine, &one).await?;
    let others: Vec<String> = futures_util::stream::iter(1..count)
        .map(|n| async move { machine.create(e2e::service::Service::image(), &policy(site, n)).await })
        .buffer_unordered(CONCURRENT_CREATES)
        .try_collect()
        .await?;
    let among = changes(machine, &one).await?;
    let listener = machine.create(internet::image::IMAGE, &policy(site, count)).await?;
    let calm = reach(machine, &listener).await?;
    let meanwhile = {
        let changing = async {
            loop {
                changes(machine, &one).await?;
            }
        };
        tokio::select! {
            failed = changing => { let never: Result<Samples> = failed; never? }
            reached = reach(machine, &listener) => reached?,
        }
    };
    for id in others.iter().chain([&one, &listener]) {
        machine.destroy(id).await?;
    }
    let note = format!("among {count} sandboxes with {DOMAINS} domains each; `alone` is without the others");
    Ok(vec![
        Row::times("policy-apply", OURS, &among).note(note),
        Row::times("policy-apply", "alone", &alone),
        Row::times("policy-apply", "another-calm", &calm).note("first byte of another sandbox"),
        Row::times("policy-apply", "another-meanwhile", &meanwhile)
            .note("the same during continuous policy changes"),
    ])
}

async fn changes(machine: &Machine, id: &str) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        let policy = policy(&machine.site.name, round);
        let begin = Instant::now();
        machine.set_policy(id, &policy).await?;
        samples.push(begin.elapsed());
    }
    Ok(samples)
}

async fn reach(machine: &Machine, id: &str) -> Result<Samples> {
    let url = format!("http://{}/hello", machine.site.name);
    let command = format!(
        "for n in $(seq 100); do curl -sS --max-time 10 -o /dev/null -w '%{{time_starttransfer}}\\n' {url}; done"
    );
    let times = machine.output(Some(id), &command).await?;
    let mut samples = Samples::default();
    for line in times.lines() {
        samples.push(std::time::Duration::from_secs_f64(line.trim().parse()?));
    }
    Ok(samples)
}
