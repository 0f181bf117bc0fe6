//! The overhead of the client libraries in other languages: GETs of one sandbox, compared with the bare HTTP client of the
//! language. Each library has a program that calls both in alternation and prints the times.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::service::{Service, with_service};

const ROUNDS: &str = "500";

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service| {
        let mut node = Command::new("node");
        node.arg(file("typescript/benchmarks/overhead.mjs"));
        measure(service, node, ["sdk-typescript", "fetch"]).await
    })
    .await
}

fn file(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").join(path)
}

/// Runs a program that prints the milliseconds of each call as JSON: a list for `sandboxd` and one for its peer.
async fn measure(
    service: &Service,
    mut program: Command,
    [bench, peer]: [&'static str; 2],
) -> Result<Vec<Row>> {
    let environment = service.environment()?;
    if let [_, _, (_, certificate)] = &environment {
        program.env("NODE_EXTRA_CA_CERTS", certificate);
    }
    let output = program.arg(ROUNDS).envs(environment).kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{bench}: {}", String::from_utf8_lossy(&output.stderr));
    let found: BTreeMap<String, Vec<f64>> = serde_json::from_slice(&output.stdout)?;
    let row = |subject: &'static str| -> Result<Row> {
        let times = found.get(subject).with_context(|| format!("{bench}: no times of {subject}"))?;
        let samples: Samples = times.iter().map(|ms| Duration::from_secs_f64(ms / 1000.0)).collect();
        Ok(Row::times(bench, subject, &samples))
    };
    Ok(vec![row(OURS)?, row(peer)?])
}
