//! Pages of 20 events with exact totals over HTTPS, in a service with many events and in one with few.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use api::{EventKind, Timestamp};
use hyper::Method;
use rules::TimeMs;
use store::{Batch, MAX_WRITES, NewEvent, SqliteStore, Store as _, conformance};

use super::{Scale, Setup};
use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::service::{Service, with_filled_service};

const FEW: u32 = 10_000;
const MANY: u32 = 1_000_000;
const MANY_SHORT: u32 = 100_000;
const ROUNDS: u32 = 500;
const ACCOUNT: &str = "acme";
/// Events that share a sandbox, and a run.
const EVENTS_PER_SANDBOX: u32 = 1000;
const EVENTS_PER_RUN: u32 = 100;
/// The period of the events; shorter than the retention.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// The request of a round.
type Query = Box<dyn Fn(u32) -> String>;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let many = if setup.scale == Scale::Full { MANY } else { MANY_SHORT };
    let mut rows = measure(OURS, many).await?;
    rows.extend(measure("10k", FEW).await?);
    Ok(rows)
}

fn now_ms() -> Result<u64> {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(u64::try_from(since_epoch.as_millis())?)
}

async fn measure(subject: &'static str, events: u32) -> Result<Vec<Row>> {
    let now = now_ms()?;
    let fill = async move |store| fill(store, events, now).await;
    with_filled_service(ACCOUNT, fill, async |service: &Service| {
        let mut connection = service.target().connect().await?;
        let (sandboxes, runs) = (events / EVENTS_PER_SANDBOX, events / EVENTS_PER_RUN);
        let at = move |ms: u64| Timestamp(now - DAY_MS + ms);
        // A period that is not aligned to hours and not on the first page.
        let (since, until) = (at(DAY_MS / 2 + 1_234_567), at(DAY_MS / 2 + 1_234_567 + DAY_MS / 100));
        let lists: [(&str, u64, Query); 6] = [
            ("events", events.into(), Box::new(|_| String::new())),
            ("events-type", (events / 2).into(), Box::new(|_| "&type=exec.completed".to_owned())),
            ("events-types", events.into(), Box::new(|_| "&type=exec.*&order=desc".to_owned())),
            (
                "events-sandbox",
                EVENTS_PER_SANDBOX.into(),
                Box::new(move |round| {
                    format!("&sandboxId={}", conformance::id(round.wrapping_mul(7919) % sandboxes))
                }),
            ),
            (
                "events-run",
                EVENTS_PER_RUN.into(),
                Box::new(move |round| format!("&runId=run-{}", round.wrapping_mul(7919) % runs)),
            ),
            (
                "events-time",
                (events / 100).into(),
                Box::new(move |_| format!("&since={since}&until={until}")),
            ),
        ];
        let mut rows = Vec::new();
        for (bench, total, query) in lists {
            let samples = list(&mut connection, total, query).await.context(bench)?;
            // Only the number of events matters here.
            let mut row = Row::times(bench, subject, &samples);
            row.n = events as usize;
            rows.push(row);
        }
        Ok(rows)
    })
    .await
}

async fn list(connection: &mut Connection, total: u64, query: Query) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        let path = format!("/v1/events?limit=20{}", query(round));
        let begin = Instant::now();
        let list = connection.json(Method::GET, &path, None).await?;
        samples.push(begin.elapsed());
        let found = list["pagination"]["total"].as_u64().context("a list without a total")?;
        ensure!(found.abs_diff(total) <= 1, "{path}: the total is {found} instead of {total}");
        ensure!(
            list["data"].as_array().is_some_and(|page| page.len() == 20),
            "the page does not have 20 items"
        );
    }
    Ok(samples)
}

async fn fill(store: Arc<SqliteStore>, events: u32, now: u64) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    let numbers: Vec<u32> = (0..events).collect();
    for chunk in numbers.chunks(MAX_WRITES) {
        let batch = chunk.iter().fold(Batch::new(), |batch, number| batch.event(event(*number, events, now)));
        let store = Arc::clone(&store);
        tasks.spawn(async move { store.commit(batch).await.map(drop) });
        // One batch at a time, so that ids and times have the same order.
        tasks.join_next().await.context("no task")???;
    }
    Ok(())
}

fn event(number: u32, events: u32, now: u64) -> NewEvent {
    let kind = [EventKind::ExecStarted, EventKind::ExecCompleted][(number % 2) as usize];
    let at = TimeMs(now - DAY_MS + DAY_MS * u64::from(number) / u64::from(events));
    NewEvent {
        sandbox: conformance::id(number / EVENTS_PER_SANDBOX),
        account: ACCOUNT.to_owned(),
        run: format!("run-{}", number / EVENTS_PER_RUN),
        data: serde_json::json!({ "command": "cargo test --release", "durationMs": number % 1000, "exitCode": 0 }),
        ..conformance::event(number, kind, at)
    }
}
