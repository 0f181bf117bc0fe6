//! Measures the store: `cargo run --release -p store --features testing --example measure -- DIRECTORY [RECORDS]`.
//!
//! Prints single puts, 50 at once, reads, and lists of 20 with exact totals over RECORDS (1,000,000 unless given) records.
//! The database stays in DIRECTORY only while it runs.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{EventKind, SandboxState};
use rules::{PausedProcesses, TimeMs};
use store::conformance::{event, id, record, terminated};
use store::{Batch, Filter, MAX_WRITES, PageRange, SandboxRecord, SqliteStore, Store};

type MeasureResult<T> = Result<T, Box<dyn Error>>;

#[tokio::main(worker_threads = 2)]
async fn main() -> MeasureResult<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: measure DIRECTORY [RECORDS]")?);
    let records: u32 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let path = directory.join(format!("measure-{}.db", std::process::id()));
    let result = measure(&path, records).await;
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        // Closing the store has removed the WAL.
        let _ = std::fs::remove_file(file);
    }
    result
}

async fn measure(path: &PathBuf, records: u32) -> MeasureResult<()> {
    let store = Arc::new(SqliteStore::open(path)?);
    puts(&store).await?;
    notes(&store).await?;
    let began = Instant::now();
    fill(&store, records).await?;
    let per_second = f64::from(records) / began.elapsed().as_secs_f64();
    println!("filled with {records} records, {per_second:.0} a second");
    println!("file: {} MB", std::fs::metadata(path)?.len() / 1_000_000);
    lists(&store, records).await?;
    puts(&store).await?;
    let began = Instant::now();
    let living = store.living().await?.len();
    println!("living: {living} in {:.1} ms", millis(began.elapsed()));
    store.close().await;
    let began = Instant::now();
    let store = SqliteStore::open(path)?;
    println!("open: {:.1} ms", millis(began.elapsed()));
    store.close().await;
    Ok(())
}

async fn puts(store: &Arc<SqliteStore>) -> MeasureResult<()> {
    let mut times = Vec::new();
    for number in 0..1000 {
        let record = tagged(u32::MAX - number);
        let began = Instant::now();
        store.put(record).await?;
        times.push(began.elapsed());
    }
    report("put, one after the other", times);
    let (mut times, mut rounds) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (store, record) = (Arc::clone(store), tagged(u32::MAX - 1000 - round * 50 - number));
            tasks.spawn(async move { store.put(record).await.map(|()| began.elapsed()) });
        }
        while let Some(done) = tasks.join_next().await {
            times.push(done??);
        }
        rounds.push(began.elapsed());
    }
    report("put, 50 at once, each", times);
    report("put, 50 at once, all", rounds);
    let mut times = Vec::new();
    for number in 0..2000 {
        let began = Instant::now();
        store.get(&id(u32::MAX - number)).await?.ok_or("a record is missing")?;
        times.push(began.elapsed());
    }
    report("get", times);
    for number in 0..3000 {
        store.commit(Batch::new().delete(id(u32::MAX - number))).await?;
    }
    Ok(())
}

/// The latency of one append or commit without load.
async fn notes(store: &Arc<SqliteStore>) -> MeasureResult<()> {
    let event = || event(u32::MAX, EventKind::ExecCompleted, TimeMs(1));
    for noted in [true, false] {
        let mut times = Vec::new();
        for _ in 0..1000 {
            let began = Instant::now();
            if noted {
                store.append(event())?;
            } else {
                store.commit(Batch::new().event(event())).await?;
            }
            times.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        report(if noted { "event, noted" } else { "event, committed" }, times);
    }
    store.purge(TimeMs(2)).await?;
    Ok(())
}

fn tagged(number: u32) -> SandboxRecord {
    let mut record = record(number);
    record.config.metadata.insert("userId".to_owned(), (number / 100).to_string());
    record.config.metadata.insert("team".to_owned(), (number % 7).to_string());
    record
}

/// Records like those of a service after years: a thousand living sandboxes, the others terminated; three images; a
/// hundred sandboxes per user.
async fn fill(store: &Arc<SqliteStore>, records: u32) -> MeasureResult<()> {
    let mut tasks = tokio::task::JoinSet::new();
    let mut number = 0;
    while number < records {
        let mut batch = Batch::new();
        for number in number..records.min(number + MAX_WRITES as u32) {
            let mut next = tagged(number);
            next.config.image = ["ubuntu:24.04", "node:22", "python:3.12"][(number % 3) as usize].to_owned();
            next.config.env.insert("GREETING".to_owned(), "hello".repeat(10));
            if number % (records / 1000).max(1) == 0 {
                let at = next.created_at.after(1_000);
                next.lifecycle = next.lifecycle.paused(at, PausedProcesses::Frozen);
            } else {
                next = terminated(&next, TimeMs(u64::from(number)));
            }
            batch = batch.put(next);
        }
        number += MAX_WRITES as u32;
        let store = Arc::clone(store);
        tasks.spawn(async move { store.commit(batch).await.map(drop) });
        if tasks.len() > 8 {
            tasks.join_next().await.ok_or("no task")???;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A name, and the filter for each of its calls.
type NamedFilter<'a> = (&'a str, Box<dyn Fn(u32) -> Filter + 'a>);

async fn lists(store: &Arc<SqliteStore>, records: u32) -> MeasureResult<()> {
    let all = Filter { account: "acme".to_owned(), ..Filter::default() };
    let state = |state| Filter { state: Some(state), ..all.clone() };
    let image = || Filter { image: Some("node:22".to_owned()), ..all.clone() };
    let user = |number: u32| {
        let metadata = [("userId".to_owned(), (number * 7919 % (records / 100).max(1)).to_string())].into();
        Filter { metadata, ..all.clone() }
    };
    let rows: [NamedFilter<'_>; 8] = [
        ("list, no filter", Box::new(|_| all.clone())),
        ("list, state paused", Box::new(|_| state(SandboxState::Paused))),
        ("list, state terminated", Box::new(|_| state(SandboxState::Terminated))),
        ("list, image", Box::new(|_| image())),
        (
            "list, state and image",
            Box::new(|_| Filter { image: image().image, ..state(SandboxState::Paused) }),
        ),
        ("list, metadata of 100", Box::new(&user)),
        (
            "list, metadata of 100 and state",
            Box::new(|n| Filter { metadata: user(n).metadata, ..state(SandboxState::Terminated) }),
        ),
        (
            "list, a seventh has it, state paused",
            Box::new(|n| {
                let metadata = [("team".to_owned(), (n % 7).to_string())].into();
                Filter { metadata, ..state(SandboxState::Paused) }
            }),
        ),
    ];
    for (name, filter) in rows {
        let mut times = Vec::new();
        let mut total = 0;
        for number in 0..1000 {
            let filter = filter(number);
            let began = Instant::now();
            total = store.list(&filter, PageRange { limit: 20, offset: 0 }).await?.total;
            times.push(began.elapsed());
        }
        report(&format!("{name} ({total})"), times);
    }
    for (name, offset) in [("list, page in the middle", records / 2), ("list, last page", records - 20)] {
        let page = PageRange { limit: 20, offset: offset.into() };
        let mut times = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            store.list(&all, page).await?;
            times.push(began.elapsed());
        }
        report(name, times);
    }
    let metadata = [("team".to_owned(), "3".to_owned())].into();
    let seventh = Filter { metadata, ..all.clone() };
    let began = Instant::now();
    store.list(&seventh, PageRange { limit: 20, offset: 0 }).await?;
    println!("{:<46} once {:.2} ms", "list, a seventh has it", millis(began.elapsed()));
    Ok(())
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| millis(times[(times.len() - 1) * share / 100]);
    println!("{name:<46} p50 {:.3} ms  p99 {:.3} ms  max {:.3} ms", at(50), at(99), at(100));
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
