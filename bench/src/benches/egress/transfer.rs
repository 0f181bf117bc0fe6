//! Throughput of one TLS stream, and first bytes of many requests: directly from the host, through the proxy, and forwarded.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::internet::{self, Site};
use rand::seq::SliceRandom as _;
use serde_json::json;

use super::machine::Machine;
use crate::report::{Figure, OURS, Row};
use crate::samples::{Samples, median};

const STREAM_ROUNDS: usize = 9;
/// Each round sends `REQUESTS` requests on new connections.
const FIRST_BYTE_ROUNDS: usize = 10;
const REQUESTS: usize = 50;
/// Rounds before the first that counts.
const WARM_UP: usize = 2;

/// Where the client runs.
struct ClientSite {
    subject: &'static str,
    sandbox: Option<String>,
}

async fn client_sites(machine: &Machine) -> Result<Vec<ClientSite>> {
    let deny = json!({ "default": "deny", "allow": [machine.site.name] });
    let strict = machine.create(internet::image::IMAGE, &deny).await?;
    let open = machine.create(internet::image::IMAGE, &json!({ "default": "allow" })).await?;
    Ok(vec![
        ClientSite { subject: OURS, sandbox: Some(strict) },
        ClientSite { subject: "allow", sandbox: Some(open) },
        ClientSite { subject: "direct", sandbox: None },
    ])
}

async fn remove_clients(machine: &Machine, clients: Vec<ClientSite>) -> Result<()> {
    for id in clients.into_iter().filter_map(|client| client.sandbox) {
        machine.destroy(&id).await?;
    }
    Ok(())
}

/// The same client with the same resolution of the name: only the route differs.
fn curl(site: &Site) -> String {
    let Site { name, address } = site;
    format!("curl -sS -k --max-time 50 --resolve {name}:443:{address} --http1.1")
}

pub async fn streams(machine: &Machine) -> Result<Vec<Row>> {
    let mut clients = client_sites(machine).await?;
    let command = format!(
        "{} -o /dev/null -w '%{{speed_download}}' https://{}/files/big",
        curl(&machine.site),
        machine.site.name
    );
    let mut speeds: Vec<(&'static str, Vec<f64>)> =
        clients.iter().map(|client| (client.subject, vec![])).collect();
    for round in 0..STREAM_ROUNDS + WARM_UP {
        clients.shuffle(&mut rand::rng());
        for client in &clients {
            let speed: f64 = machine.output(client.sandbox.as_deref(), &command).await?.trim().parse()?;
            let found = speeds.iter_mut().find(|(subject, _)| *subject == client.subject);
            if round >= WARM_UP {
                found.context("no samples for this subject")?.1.push(speed / 1e6);
            }
        }
    }
    remove_clients(machine, clients).await?;
    let row = |(subject, speeds): &(&'static str, Vec<f64>)| {
        Row::new("egress-stream", subject, Figure::MegabytesPerSecond(median(speeds)), speeds.len())
    };
    Ok(speeds.iter().map(row).collect())
}

pub async fn first_bytes(machine: &Machine) -> Result<Vec<Row>> {
    let mut clients = client_sites(machine).await?;
    let urls = vec![format!("https://{}/hello", machine.site.name); REQUESTS].join(" -o /dev/null ");
    let command = format!(
        "{} -H 'Connection: close' -w '%{{time_starttransfer}}\\n' -o /dev/null {urls}",
        curl(&machine.site)
    );
    let mut found: Vec<(&'static str, Samples)> =
        clients.iter().map(|client| (client.subject, Samples::default())).collect();
    for round in 0..FIRST_BYTE_ROUNDS + WARM_UP {
        clients.shuffle(&mut rand::rng());
        for client in &clients {
            let times = machine.output(client.sandbox.as_deref(), &command).await?;
            let samples = found.iter_mut().find(|(subject, _)| *subject == client.subject);
            let samples = &mut samples.context("no samples for this subject")?.1;
            for line in times.lines().filter(|_| round >= WARM_UP) {
                samples.push(Duration::from_secs_f64(line.trim().parse()?));
            }
        }
    }
    remove_clients(machine, clients).await?;
    Ok(found.iter().map(|(subject, samples)| Row::times("egress-first-byte", subject, samples)).collect())
}
