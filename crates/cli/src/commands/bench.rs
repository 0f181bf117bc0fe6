//! `sbx bench`: measures latencies including the connection. It stays within the default rate limits of the service and removes its
//! sandboxes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use sandboxd_client::{Client, Output};
use serde_json::json;

use crate::cli::BenchArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat};
use crate::style::{Paint, Tone};
use crate::table::{plain, table};

/// The service's default limit is ten creates per minute.
const MAX_CREATES: u32 = 5;
/// Each round is two writes; the service's default limit is sixty per minute.
const MAX_PAUSES: u32 = 20;
const LIFETIME: Duration = Duration::from_secs(300);

struct Measurement {
    name: &'static str,
    samples: Vec<Duration>,
}

/// Prints the percentiles of each operation. After a signal it prints nothing; the sandbox is removed in any case.
pub async fn bench(client: &Client, format: OutputFormat, arguments: &BenchArguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0, "--rounds must be at least 1");
    let interrupt = Interrupt::listen()?;
    let sandbox = client.create(&arguments.image).timeout(LIFETIME).await?.terminate_on_drop();
    let measured = tokio::select! {
        rows = measure(client, &sandbox, arguments) => Some(rows),
        _ = interrupt.first() => None,
    };
    sandbox.terminate().await?;
    let Some(rows) = measured else { return Ok(ExitCode::from(crate::interrupt::EXIT_CODE_SIGINT)) };
    let rows = rows?;
    match format {
        OutputFormat::Plain => output::text(&render(&rows))?,
        OutputFormat::Json => {
            for row in &rows {
                let (p50, p99) = (row.percentile(50), row.percentile(99));
                output::json(
                    &json!({"bench": row.name, "p50_ms": p50, "p99_ms": p99, "n": row.samples.len()}),
                )?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    client: &Client,
    sandbox: &sandboxd_client::Sandbox,
    arguments: &BenchArguments,
) -> Result<Vec<Measurement>> {
    let n = arguments.rounds;
    let mut rows = vec![
        measure_row("health", n, async || client.health().await.map(drop)).await?,
        measure_row("get", n, async || sandbox.refresh().await.map(drop)).await?,
        measure_row("execute true", n, async || sandbox.execute("true").await.map(drop)).await?,
    ];
    let mut first_line = Measurement { name: "first line", samples: Vec::new() };
    for _ in 0..n {
        let begin = Instant::now();
        let mut stream = sandbox.execute("echo").stream().await?;
        let first = stream.next().await.context("the stream contains no events")??;
        first_line.samples.push(begin.elapsed());
        ensure!(matches!(first, Output::Stdout(_)), "echo printed nothing");
        stream.done().await?;
    }
    rows.push(first_line);
    let (mut pauses, mut resumes) = (Vec::new(), Vec::new());
    for _ in 0..n.min(MAX_PAUSES) {
        pauses.push(elapsed(async || sandbox.pause().await.map(drop)).await?);
        resumes.push(elapsed(async || sandbox.resume().await.map(drop)).await?);
    }
    rows.push(Measurement { name: "pause", samples: pauses });
    rows.push(Measurement { name: "resume", samples: resumes });
    let (mut creates, mut terminates) = (Vec::new(), Vec::new());
    for _ in 0..n.min(MAX_CREATES) {
        let begin = Instant::now();
        let created = client.create(&arguments.image).timeout(LIFETIME).await?.terminate_on_drop();
        creates.push(begin.elapsed());
        let begin = Instant::now();
        created.terminate().await?;
        terminates.push(begin.elapsed());
    }
    rows.push(Measurement { name: "create", samples: creates });
    rows.push(Measurement { name: "terminate", samples: terminates });
    Ok(rows)
}

async fn measure_row(
    name: &'static str,
    n: u32,
    call: impl AsyncFn() -> sandboxd_client::Result<()>,
) -> Result<Measurement> {
    let mut samples = Vec::new();
    for _ in 0..n {
        samples.push(elapsed(&call).await?);
    }
    Ok(Measurement { name, samples })
}

async fn elapsed(call: impl AsyncFn() -> sandboxd_client::Result<()>) -> Result<Duration> {
    let begin = Instant::now();
    call().await?;
    Ok(begin.elapsed())
}

impl Measurement {
    /// The percentile in ms, by nearest rank: a measured value, not an interpolated one.
    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(rank).map_or(0.0, |sample| (sample.as_secs_f64() * 1e6).round() / 1e3)
    }
}

fn render(rows: &[Measurement]) -> String {
    let cells = rows.iter().map(|row| {
        let ms = |percent| plain(format!("{:.2} ms", row.percentile(percent)));
        [(row.name.to_owned(), Tone::Bold), ms(50), ms(99), plain(row.samples.len().to_string())]
    });
    table(["OPERATION", "P50", "P99", "N"], cells, Paint::of(&std::io::stdout()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank_of_the_samples() {
        let of = |ms: &[u64], percent| {
            let samples = ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
            Measurement { name: "get", samples }.percentile(percent)
        };
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!([1, 50, 99, 100].map(|percent| of(&hundred, percent)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!([50, 99].map(|percent| of(&[3, 1], percent)), [1.0, 3.0]);
        assert_eq!([50, 99].map(|percent| of(&[7], percent)), [7.0, 7.0]);
        assert_eq!(of(&[], 50), 0.0);
    }

    #[test]
    fn a_sample_is_rounded_to_microseconds() {
        let samples = vec![Duration::from_nanos(1_234_567)];
        assert_eq!(Measurement { name: "get", samples }.percentile(50), 1.235);
    }
}
