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
        node.arg(file("typescript/benchmarks/overhead.mjs")).arg(ROUNDS);
        let mut rows = measure(service, node, &[("sdk-typescript", "fetch")]).await?;
        // starts: target/venv-sdk/bin/python
        let mut python = Command::new(file("../target/venv-sdk/bin/python"));
        python.arg(file("python/benchmarks/overhead.py")).args(["--json", "--count", ROUNDS]);
        python.env("PYTHONPATH", file("python/src")).env("PYTHONDONTWRITEBYTECODE", "1");
        let peers = [("sdk-python", "httpx"), ("sdk-python-asyncio", "httpx")];
        rows.extend(measure(service, python, &peers).await?);
        Ok(rows)
    })
    .await
}

fn file(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").join(path)
}

/// Runs a program that prints the milliseconds of each call as JSON: for each bench a list for `sandboxd` and one for its peer.
pub async fn measure(
    service: &Service,
    mut program: Command,
    benches: &[(&'static str, &'static str)],
) -> Result<Vec<Row>> {
    let environment = service.environment()?;
    let [_, _, (_, certificate)] = &environment;
    // For bare fetch.
    program.env("NODE_EXTRA_CA_CERTS", certificate);
    let output = program.envs(environment).kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{benches:?}: {}", String::from_utf8_lossy(&output.stderr));
    let found: BTreeMap<String, BTreeMap<String, Vec<f64>>> = serde_json::from_slice(&output.stdout)?;
    let row = |bench: &'static str, subject: &'static str| -> Result<Row> {
        let times = found.get(bench).and_then(|times| times.get(subject));
        let times = times.with_context(|| format!("{bench}: no times of {subject}"))?;
        let samples: Samples = times.iter().map(|ms| Duration::from_secs_f64(ms / 1000.0)).collect();
        Ok(Row::times(bench, subject, &samples))
    };
    benches.iter().flat_map(|(bench, peer)| [row(bench, OURS), row(bench, peer)]).collect()
}
