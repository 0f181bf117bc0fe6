//! One stream over TLS, and the first byte of many: on the machine itself, through the proxy, and past it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::internet::{self, Site};
use rand::seq::SliceRandom as _;
use serde_json::json;

use super::machine::Machine;
use crate::report::{Figure, OURS, Row};
use crate::samples::{Samples, median};

const STREAM_ROUNDS: usize = 9;
/// Each round asks so often, each time on a connection of its own.
const FIRST_BYTE_ROUNDS: usize = 10;
const REQUESTS: usize = 50;
/// Before the first that counts.
const WARM_UP: usize = 2;

/// Where the client is.
struct Place {
    subject: &'static str,
    sandbox: Option<String>,
}

async fn places(machine: &Machine) -> Result<Vec<Place>> {
    let deny = json!({ "default": "deny", "allow": [machine.site.name] });
    let strict = machine.create(internet::image::IMAGE, &deny).await?;
    let open = machine.create(internet::image::IMAGE, &json!({ "default": "allow" })).await?;
    Ok(vec![
        Place { subject: OURS, sandbox: Some(strict) },
        Place { subject: "allow", sandbox: Some(open) },
        Place { subject: "direct", sandbox: None },
    ])
}

async fn leave(machine: &Machine, places: Vec<Place>) -> Result<()> {
    for id in places.into_iter().filter_map(|place| place.sandbox) {
        machine.destroy(&id).await?;
    }
    Ok(())
}

/// The same client with the same answer to the name: only the way differs.
fn curl(site: &Site) -> String {
    let Site { name, address } = site;
    format!("curl -sS -k --max-time 50 --resolve {name}:443:{address} --http1.1")
}

pub async fn streams(machine: &Machine) -> Result<Vec<Row>> {
    let mut places = places(machine).await?;
    let command = format!(
        "{} -o /dev/null -w '%{{speed_download}}' https://{}/files/big",
        curl(&machine.site),
        machine.site.name
    );
    let mut speeds: Vec<(&'static str, Vec<f64>)> =
        places.iter().map(|place| (place.subject, vec![])).collect();
    for round in 0..STREAM_ROUNDS + WARM_UP {
        places.shuffle(&mut rand::rng());
        for place in &places {
            let speed: f64 = machine.output(place.sandbox.as_deref(), &command).await?.trim().parse()?;
            let found = speeds.iter_mut().find(|(subject, _)| *subject == place.subject);
            if round >= WARM_UP {
                found.context("a place without figures")?.1.push(speed / 1e6);
            }
        }
    }
    leave(machine, places).await?;
    let row = |(subject, speeds): &(&'static str, Vec<f64>)| {
        Row::new("egress-stream", subject, Figure::MegabytesPerSecond(median(speeds)), speeds.len())
    };
    Ok(speeds.iter().map(row).collect())
}

pub async fn first_bytes(machine: &Machine) -> Result<Vec<Row>> {
    let mut places = places(machine).await?;
    let urls = vec![format!("https://{}/hello", machine.site.name); REQUESTS].join(" -o /dev/null ");
    let command = format!(
        "{} -H 'Connection: close' -w '%{{time_starttransfer}}\\n' -o /dev/null {urls}",
        curl(&machine.site)
    );
    let mut found: Vec<(&'static str, Samples)> =
        places.iter().map(|place| (place.subject, Samples::default())).collect();
    for round in 0..FIRST_BYTE_ROUNDS + WARM_UP {
        places.shuffle(&mut rand::rng());
        for place in &places {
            let said = machine.output(place.sandbox.as_deref(), &command).await?;
            let samples = found.iter_mut().find(|(subject, _)| *subject == place.subject);
            let samples = &mut samples.context("a place without figures")?.1;
            for line in said.lines().filter(|_| round >= WARM_UP) {
                samples.push(Duration::from_secs_f64(line.trim().parse()?));
            }
        }
    }
    leave(machine, places).await?;
    Ok(found.iter().map(|(subject, samples)| Row::times("egress-first-byte", subject, samples)).collect())
}
