//! Streams: latency of a line, throughput of many lines, and the cost of a reader that stops.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde_json::json;

use crate::host;
use crate::http::Connection;
use crate::report::{Figure, OURS, Row};
use crate::samples::Samples;
use crate::service::{Service, with_service};

const STREAM: &str = "text/event-stream";
const FIRST_LINES: usize = 100;
const MANY: usize = 100_000;
const MANY_ROUNDS: usize = 5;
const STOPPED: Duration = Duration::from_secs(5);

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let mut connection = service.target().connect().await?;
        let path = format!("/v1/sandboxes/{}/execute", service.create(&mut connection).await?);
        let first = first_lines(&mut connection, &path).await.context("first lines")?;
        let many = many_lines(&mut connection, &path).await.context("many lines")?;
        let growth = stopped_reader(service, &path).await.context("a reader that stops")?;
        Ok(vec![
            Row::times("sse-first-line", OURS, &first)
                .note("from the write by bash until the client received it"),
            Row::times("sse", OURS, &many).note(format!("{MANY} lines of 100 bytes")),
            Row::new("sse", "stopped-reader", Figure::Megabytes(growth), 1),
        ])
    })
    .await
}

async fn start(connection: &mut Connection, path: &str, command: &str) -> Result<Response<Incoming>> {
    let answer = connection.send(Method::POST, path, STREAM, Some(&json!({ "command": command }))).await?;
    ensure!(answer.status().is_success(), "the stream answered {}", answer.status());
    Ok(answer)
}

/// Bash prints the time; its clock is the host's.
async fn first_lines(connection: &mut Connection, path: &str) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..FIRST_LINES {
        let mut answer = start(connection, path, "sleep 0.02; echo $EPOCHREALTIME; sleep 0.02").await?;
        let mut latency = None;
        while let Some(frame) = answer.body_mut().frame().await {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            if let Ok(data) = frame?.into_data()
                && latency.is_none()
                && let Some(written) = line_of(std::str::from_utf8(&data)?)
            {
                latency = Some(now.saturating_sub(Duration::from_secs_f64(written.parse()?)));
            }
        }
        samples.push(latency.context("the line was not received")?);
    }
    Ok(samples)
}

fn line_of(text: &str) -> Option<&str> {
    text.split_once("event: stdout\ndata: ")?.1.lines().next()
}

async fn many_lines(connection: &mut Connection, path: &str) -> Result<Samples> {
    let command = format!("yes {} | head -n {MANY}", "x".repeat(99));
    let mut samples = Samples::default();
    for _ in 0..MANY_ROUNDS {
        let begin = Instant::now();
        let body = start(connection, path, &command).await?.into_body().collect().await?.to_bytes();
        samples.push(begin.elapsed());
        let lines = body.windows(13).filter(|window| window == b"event: stdout").count();
        ensure!(lines == MANY, "received {lines} lines");
    }
    Ok(samples)
}

/// The growth of the daemon during a stream of endless output that is not read.
async fn stopped_reader(service: &Service, path: &str) -> Result<f64> {
    let mut connection = service.target().connect().await?;
    let daemon = service.pid().to_string();
    let answer = start(&mut connection, path, "yes").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = host::resident_kb(&daemon)?;
    tokio::time::sleep(STOPPED).await;
    let after = host::resident_kb(&daemon)?;
    drop(answer);
    #[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
    Ok(after.saturating_sub(before) as f64 / 1024.0)
}
