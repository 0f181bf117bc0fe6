//! Pages of 20 sandboxes with exact totals over HTTPS, in a service with many records and in one with few.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use hyper::Method;
use rules::TimeMs;
use store::{Batch, MAX_WRITES, SandboxRecord, SqliteStore, Store as _, conformance};

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
const IMAGES: [&str; 3] = ["ubuntu:24.04", "node:22", "python:3.12"];
/// Records that share a user.
const RECORDS_PER_USER: u32 = 100;
/// The age of the records; shorter than the retention.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// The request of a round.
type Query = Box<dyn Fn(u32) -> String>;

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let many = if setup.scale == Scale::Full { MANY } else { MANY_SHORT };
    let mut rows = measure(OURS, many).await?;
    rows.extend(measure("10k", FEW).await?);
    Ok(rows)
}

async fn measure(subject: &'static str, records: u32) -> Result<Vec<Row>> {
    let fill = async move |store| fill(store, records).await;
    with_filled_service(ACCOUNT, fill, async |service: &Service| {
        let mut connection = service.target().connect().await?;
        let users = records / RECORDS_PER_USER;
        let lists: [(&str, u64, Query); 4] = [
            ("list", records.into(), Box::new(|_| String::new())),
            ("list-state", records.into(), Box::new(|_| "&state=terminated".to_owned())),
            ("list-image", (records / 3).into(), Box::new(|_| "&image=node:22".to_owned())),
            (
                "list-metadata",
                RECORDS_PER_USER.into(),
                Box::new(move |round| format!("&metadata.userId={}", round.wrapping_mul(7919) % users)),
            ),
        ];
        let mut rows = Vec::new();
        for (bench, total, query) in lists {
            let samples = list(&mut connection, total, query).await.context(bench)?;
            // Only the number of records matters here.
            let mut row = Row::times(bench, subject, &samples);
            row.n = records as usize;
            rows.push(row);
        }
        Ok(rows)
    })
    .await
}

async fn list(connection: &mut Connection, total: u64, query: Query) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        let path = format!("/v1/sandboxes?limit=20{}", query(round));
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

/// Records of terminated sandboxes, which have no resources on the host.
async fn fill(store: Arc<SqliteStore>, records: u32) -> Result<()> {
    let now = u64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis())?;
    let mut tasks = tokio::task::JoinSet::new();
    let numbers: Vec<u32> = (0..records).collect();
    for chunk in numbers.chunks(MAX_WRITES) {
        let batch = chunk.iter().fold(Batch::new(), |batch, number| batch.put(record(*number, now)));
        let store = Arc::clone(&store);
        tasks.spawn(async move { store.commit(batch).await.map(drop) });
        if tasks.len() > 8 {
            tasks.join_next().await.context("no task")???;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn record(number: u32, now: u64) -> SandboxRecord {
    let mut record = conformance::record(number);
    record.account = ACCOUNT.to_owned();
    record.config.image = IMAGES[(number % 3) as usize].to_owned();
    record.config.metadata.insert("userId".to_owned(), (number / RECORDS_PER_USER).to_string());
    record.created_at = TimeMs(now - DAY_MS + u64::from(number));
    conformance::terminated(&record, TimeMs(now))
}
