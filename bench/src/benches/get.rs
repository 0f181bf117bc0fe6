//! GETs of one sandbox over 64 connections without limits, compared with a minimal server of axum and rustls in a separate process,
//! with the same client.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hyper::Method;

use crate::baselines::hello::Hello;
use crate::http::Target;
use crate::report::{Figure, OURS, Row};
use crate::service::{Service, with_service};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let hello = Hello::start(service).await?;
        let id = service.create(&mut service.target().connect().await?).await?;
        let path = format!("/v1/sandboxes/{id}");
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(load(service.target(), &path).await.context("the service")?);
            theirs.push(load(hello.target(), "/").await.context("hello")?);
        }
        let rounds = format!("median of {ROUNDS} rounds of {} s", ROUND.as_secs());
        let row = |subject, rates| {
            Row::new("get", subject, Figure::PerSecond(median(rates)), ROUNDS).note(rounds.clone())
        };
        Ok(vec![row(OURS, ours), row("axum", theirs)])
    })
    .await
}

/// Requests per second; each connection sends its next request after the response to the last.
async fn load(target: &Target, path: &str) -> Result<f64> {
    let mut tasks = tokio::task::JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(target.connect().await?);
    }
    let begin = Instant::now();
    for mut connection in connections {
        let path = path.to_owned();
        tasks.spawn(async move {
            let mut answered = 0_u32;
            while begin.elapsed() < ROUND {
                connection.bytes(Method::GET, &path, None).await?;
                answered += 1;
            }
            anyhow::Ok(answered)
        });
    }
    let mut total = 0.0;
    while let Some(answered) = tasks.join_next().await {
        total += f64::from(answered??);
    }
    Ok(total / begin.elapsed().as_secs_f64())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}
