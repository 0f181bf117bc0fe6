//! Throughput of a command's output to the engine's reader, and memory growth with a reader that stops.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use api::SandboxId;
use e2e::{Rig, RigOptions};
use engine::ExecutionEvent;
use tokio::io::AsyncReadExt as _;

use crate::host;
use crate::report::{Figure, OURS, Row};
use crate::samples::median;
use crate::with_rig::with_rig;

const BYTES: u64 = 2 << 30;
const COMMAND: &str = "head -c 2G /dev/zero";
const ROUNDS: usize = 5;
const STOPPED_FOR: Duration = Duration::from_secs(3);

pub async fn run() -> Result<Vec<Row>> {
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let id = rig.create().await?;
        let (mut ours, mut bash) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(rate(read_ours(rig, &id).await?));
            bash.push(rate(read_bash().await?));
        }
        let growth = stopped_reader(rig, &id).await?;
        Ok(vec![
            Row::new("output", OURS, Figure::MegabytesPerSecond(median(&ours)), ours.len()),
            Row::new("output", "bash", Figure::MegabytesPerSecond(median(&bash)), bash.len())
                .note("the same command on the host into a pipe, read by tokio"),
            Row::new("output", "stopped-reader", Figure::Megabytes(growth), 1)
                .note("growth of the daemon during an unread endless output"),
        ])
    })
    .await
}

/// Megabytes of a million bytes.
#[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
fn rate(took: Duration) -> f64 {
    BYTES as f64 / 1e6 / took.as_secs_f64()
}

async fn read_ours(rig: &Rig, id: &SandboxId) -> Result<Duration> {
    let begin = Instant::now();
    let mut execution = rig.engine.sandbox("test", id).execute(e2e::command(COMMAND)).await?;
    let mut received = 0;
    loop {
        match execution.next().await {
            ExecutionEvent::Stdout(bytes) => received += bytes.len() as u64,
            ExecutionEvent::Stderr(bytes) => {
                bail!("the command printed an error: {}", String::from_utf8_lossy(&bytes))
            }
            ExecutionEvent::Done(_) => break,
            ExecutionEvent::Failed(error) => return Err(error.into()),
        }
    }
    let took = begin.elapsed();
    ensure!(received == BYTES, "received {received} of {BYTES} bytes");
    Ok(took)
}

async fn read_bash() -> Result<Duration> {
    let begin = Instant::now();
    let mut child = tokio::process::Command::new("/bin/bash")
        .args(["-c", COMMAND])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("running bash")?;
    let mut stdout = child.stdout.take().context("bash has no stdout")?;
    let mut buffer = vec![0; 256 * 1024];
    let mut received = 0;
    loop {
        match stdout.read(&mut buffer).await? {
            0 => break,
            read => received += read as u64,
        }
    }
    child.wait().await?;
    ensure!(received == BYTES, "received {received} of {BYTES} bytes");
    Ok(begin.elapsed())
}

/// Growth of the daemon in megabytes while a command prints endlessly and nobody reads.
async fn stopped_reader(rig: &Rig, id: &SandboxId) -> Result<f64> {
    let mut execution = rig.engine.sandbox("test", id).execute(e2e::command("cat /dev/zero")).await?;
    let mut received = 0;
    while received < 64 << 20 {
        match execution.next().await {
            ExecutionEvent::Stdout(bytes) => received += bytes.len(),
            other => bail!("expected output, received {other:?}"),
        }
    }
    let before = host::resident_kb("self")?;
    let mut peak = before;
    let begin = Instant::now();
    while begin.elapsed() < STOPPED_FOR {
        tokio::time::sleep(Duration::from_millis(50)).await;
        peak = peak.max(host::resident_kb("self")?);
    }
    drop(execution);
    Ok(f64::from(u32::try_from(peak - before)?) / 1024.0)
}
