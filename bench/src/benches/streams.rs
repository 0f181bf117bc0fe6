//! Two thousand open streams, and as many idle connections: whether they are served, and the daemon's memory.

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::json;

use crate::host;
use crate::http::Connection;
use crate::report::{Figure, OURS, Row};
use crate::service::{Service, with_service};

const OPEN: usize = 2000;
const PER_SANDBOX: usize = 100;

pub async fn run() -> Result<Vec<Row>> {
    // In separate services, so that the allocator's state of one does not affect the other.
    let idle = with_service(async |service: &Service| idle(service).await).await?;
    Ok(vec![with_service(async |service: &Service| streams(service).await).await?, idle])
}

async fn idle(service: &Service) -> Result<Row> {
    let before = memory(service)?;
    let mut connections = Vec::new();
    for _ in 0..OPEN {
        connections.push(service.target().connect().await?);
    }
    let after = memory(service)?;
    let note = format!("{before:.0} MB before the first");
    let mut row = Row::new("streams", "idle-connections", Figure::Megabytes(after), OPEN).note(note);
    for connection in &mut connections {
        if let Err(error) = connection.bytes(Method::GET, "/v1/health", None).await {
            row = row.problem(format!("an idle connection is not served: {error:#}"));
        }
    }
    Ok(row)
}

async fn streams(service: &Service) -> Result<Row> {
    let mut connection = service.target().connect().await?;
    let mut open = Vec::new();
    for _ in 0..OPEN / PER_SANDBOX {
        let path = format!("/v1/sandboxes/{}/execute", service.create(&mut connection).await?);
        for _ in 0..PER_SANDBOX {
            open.push(Box::pin(stream(service, &path)).await?);
        }
    }
    let memory = memory(service)?;
    let row = Row::new("streams", OURS, Figure::Megabytes(memory), open.len());
    let health = connection.bytes(Method::GET, "/v1/health", None).await;
    Ok(match health {
        Ok(_) => row,
        Err(error) => row.problem(format!("requests beside the streams fail: {error:#}")),
    })
}

/// A stream after its first line, with its connection.
async fn stream(service: &Service, path: &str) -> Result<(Connection, hyper::body::Incoming)> {
    let mut connection = service.target().connect().await?;
    let body = json!({ "command": "echo open; exec sleep 300", "timeoutMs": 300_000 });
    let answer = connection.send(Method::POST, path, "text/event-stream", Some(&body)).await?;
    ensure!(answer.status().is_success(), "the stream answered {}", answer.status());
    let mut body = answer.into_body();
    let frame = body.frame().await.context("the stream ended")??;
    ensure!(frame.is_data(), "the stream has no first line");
    Ok((connection, body))
}

#[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
fn memory(service: &Service) -> Result<f64> {
    Ok(host::resident_kb(&service.pid().to_string())? as f64 / 1024.0)
}
