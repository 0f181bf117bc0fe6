//! Throughput of files over HTTPS and of directories as tar, compared with commands in the same sandbox on the same disk; and the
//! growth of the daemon's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::json;

use crate::host;
use crate::http::Connection;
use crate::report::{Figure, OURS, Row};
use crate::samples::{Samples, median};
use crate::service::{Service, with_service};

pub const PIECE: usize = 1 << 20;
const PIECES: u64 = 1000;
const ROUNDS: usize = 5;
const SMALL_FILES: u64 = 10_000;
/// A command that does the same inside the sandbox.
pub const INSIDE: &str = "inside";

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let mut connection = service.target().connect().await?;
        let id = service.create(&mut connection).await?;
        let mut bench = Bench { service, connection, base: format!("/v1/sandboxes/{id}") };
        let mut rows = bench.big().await.context("a big file")?;
        rows.extend(bench.small().await.context("small files")?);
        Ok(rows)
    })
    .await
}

struct Bench<'a> {
    service: &'a Service,
    connection: Connection,
    base: String,
}

impl Bench<'_> {
    /// Runs a command that must succeed; returns its duration.
    async fn command(&mut self, command: &str) -> Result<Duration> {
        let begin = Instant::now();
        let path = format!("{}/execute", self.base);
        let body = json!({ "command": command });
        let result = self.connection.json(Method::POST, &path, Some(&body)).await?;
        ensure!(result["exitCode"] == 0, "{command} ended with {result}");
        Ok(begin.elapsed())
    }

    /// Reads a response and returns its length.
    async fn get(&mut self, path: &str) -> Result<u64> {
        let answer = self.connection.send(Method::GET, path, "*/*", None).await?;
        ensure!(answer.status().is_success(), "{path} answered {}", answer.status());
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.into_data().map_or(0, |data| data.len() as u64);
        }
        Ok(bytes)
    }

    async fn big(&mut self) -> Result<Vec<Row>> {
        let total = PIECES * PIECE as u64;
        let piece: Bytes = (0..PIECE).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
        let path = format!("{}/files?path=big", self.base);
        let (mut rates, mut grown) = ([const { Vec::new() }; 4], 0.0f64);
        for round in 0..=ROUNDS {
            let watch = MemoryWatch::start(self.service.pid())?;
            let begin = Instant::now();
            let entry = self.service.target().put(&path, piece.clone(), PIECES).await?;
            let into = begin.elapsed();
            ensure!(entry["sizeBytes"] == total, "{entry}");
            let begin = Instant::now();
            ensure!(self.get(&path).await? == total, "the download has another length");
            let out = begin.elapsed();
            let growth = watch.stop();
            let write = self.command(&format!("head -c {total} /dev/zero > base && mv base base2")).await?;
            let read = self.command("cat big > /dev/null").await?;
            // The first round warms up the allocator and the disk.
            if round > 0 {
                grown = grown.max(growth);
                let all = [into, out, write, read];
                rates.iter_mut().zip(all).for_each(|(rates, took)| rates.push(rate(total, took)));
            }
        }
        self.command("rm big base2").await?;
        let row = |bench, subject, rates: &[f64]| {
            Row::new(bench, subject, Figure::MegabytesPerSecond(median(rates)), rates.len())
        };
        Ok(vec![
            row("files-in", OURS, &rates[0]),
            row("files-in", INSIDE, &rates[2])
                .note("a command that writes /dev/zero to a file on the same disk"),
            row("files-out", OURS, &rates[1]),
            row("files-out", INSIDE, &rates[3]).note("a command that reads the same file"),
            Row::new("files", "growth", Figure::Megabytes(grown), ROUNDS)
                .note("maximum growth of the daemon in a round"),
        ])
    }

    async fn small(&mut self) -> Result<Vec<Row>> {
        let make = format!("mkdir many && cd many && for i in $(seq {SMALL_FILES}); do echo $i > $i; done");
        self.command(&make).await?;
        let out = format!("{}/files/tar?path=many", self.base);
        let archive = self.connection.bytes(Method::GET, &out, None).await?;
        let mut samples = [const { Vec::new() }; 4];
        for round in 0..=ROUNDS {
            let path = format!("{}/files/tar?path=in", self.base);
            let begin = Instant::now();
            let unpacked = self.service.target().put(&path, archive.clone(), 1).await?;
            let into = begin.elapsed();
            ensure!(unpacked["files"] == SMALL_FILES, "{unpacked}");
            let begin = Instant::now();
            self.get(&out).await?;
            let packed = begin.elapsed();
            let tar_out = self.command("tar -C many -cf many.tar .").await?;
            let tar_in = self.command("mkdir inside && tar -C inside -xf many.tar").await?;
            self.command("rm -rf in inside many.tar").await?;
            if round > 0 {
                samples
                    .iter_mut()
                    .zip([into, packed, tar_in, tar_out])
                    .for_each(|(all, took)| all.push(took));
            }
        }
        let row = |bench, subject, n: usize| {
            Row::times(bench, subject, &samples[n].iter().copied().collect::<Samples>())
        };
        Ok(vec![
            row("files-tar-in", OURS, 0),
            row("files-tar-in", INSIDE, 2).note("a command that runs the image's tar"),
            row("files-tar-out", OURS, 1),
            row("files-tar-out", INSIDE, 3).note("a command that runs the image's tar into a file"),
        ])
    }
}

/// Megabytes of a million bytes.
#[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

/// Records the peak of the daemon's memory until it is stopped.
struct MemoryWatch {
    before: u64,
    peak: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl MemoryWatch {
    fn start(pid: u32) -> Result<Self> {
        let pid = pid.to_string();
        let before = host::resident_kb(&pid)?;
        let (peak, stopped) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let (task_peak, end) = (Arc::clone(&peak), Arc::clone(&stopped));
        tokio::spawn(async move {
            while !end.load(Ordering::Relaxed) {
                if let Ok(now) = host::resident_kb(&pid) {
                    task_peak.fetch_max(now, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(Self { before, peak, stopped })
    }

    /// The growth in megabytes.
    #[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
    fn stop(self) -> f64 {
        self.stopped.store(true, Ordering::Relaxed);
        self.peak.load(Ordering::Relaxed).saturating_sub(self.before) as f64 / 1024.0
    }
}
