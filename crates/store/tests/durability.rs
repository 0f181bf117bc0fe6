//! After a SIGKILL at any moment, acknowledged batches are stored, and each other batch is stored completely or not
//! at all.
//!
//! This program starts itself as the writer, reads the acknowledged batches from its standard output, kills it, opens
//! the database and compares. All rounds use the same database.
#![expect(clippy::unwrap_used, reason = "a test program of its own, without the harness")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use api::EventKind;
use rules::TimeMs;
use store::conformance::{event, id, idempotency_record, record, terminated};
use store::{Batch, Filter, IdempotencyRecord, MAX_PAGE, PageRange, SandboxRecord, SqliteStore, Store};

const ROUNDS: u32 = 25;
const WRITERS: u32 = 12;
const DATABASE: &str = "STORE_TEST_DATABASE";
const FIRST_REVISION: &str = "STORE_TEST_FIRST_REVISION";

fn main() {
    if let Some(path) = std::env::var_os(DATABASE) {
        return write_forever(PathBuf::from(path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    let mut safe = HashMap::new();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        acknowledged += one_round(&path, round, &mut safe);
        runtime().block_on(compare(&path, &safe));
    }
    assert!(safe.len() as u32 == WRITERS && acknowledged > u64::from(ROUNDS) * 10);
    println!("{ROUNDS} kills, {acknowledged} acknowledged batches, none lost");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Each writer updates one sandbox: a batch is a revision of its record, an event and an idempotency record.
fn write_forever(path: PathBuf) {
    let first: u64 = std::env::var(FIRST_REVISION).unwrap().parse().unwrap();
    let store = Arc::new(SqliteStore::open(path).unwrap());
    runtime().block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..WRITERS {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                for revision in first.. {
                    store.commit(step(number, revision)).await.unwrap();
                    // A short line is one write, which a kill does not truncate.
                    std::io::stdout().write_all(format!("{number} {revision}\n").as_bytes()).unwrap();
                }
            });
        }
        tasks.join_next().await.unwrap().unwrap();
    });
}

fn step(number: u32, revision: u64) -> Batch {
    let mut next = record(number);
    next.config.metadata.insert("revision".to_owned(), revision.to_string());
    if revision.is_multiple_of(5) {
        next = terminated(&next, TimeMs(revision));
    }
    let stored_response =
        IdempotencyRecord { key: format!("{number} {revision}"), ..idempotency_record(number) };
    let event = event(number, EventKind::SandboxPaused, TimeMs(revision));
    Batch::new().put(SandboxRecord { revision, ..next }).event(event).idempotency_record(stored_response)
}

/// Returns the number of acknowledged batches.
fn one_round(path: &Path, round: u32, safe: &mut HashMap<u32, u64>) -> u64 {
    let highest = safe.values().max().copied().unwrap_or(0);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(DATABASE, path)
        // Above the revisions that a writer may have written without a reply.
        .env(FIRST_REVISION, (highest + 1000).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let kill_after = u64::from(round * 37 % 301) + u64::from(WRITERS);
    let mut count = 0;
    for line in lines {
        let line = line.unwrap();
        let (number, revision) = line.split_once(' ').unwrap();
        safe.insert(number.parse().unwrap(), revision.parse().unwrap());
        count += 1;
        if count == kill_after {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(count >= kill_after && status.code().is_none(), "the writer ended by itself: {status}");
    count
}

async fn compare(path: &Path, safe: &HashMap<u32, u64>) {
    let store = SqliteStore::open(path).unwrap();
    let mut stored = 0;
    for number in 0..WRITERS {
        let found = store.get(&id(number)).await.unwrap();
        let revision = found.as_ref().map_or(0, |record| record.revision);
        assert!(
            revision >= safe.get(&number).copied().unwrap_or(0),
            "sandbox {number} lost an acknowledged write"
        );
        for (revision, kept) in [(revision, revision > 0), (revision + 1, false)] {
            let IdempotencyRecord { account, endpoint, .. } = idempotency_record(number);
            let stored =
                store.idempotency_record(&account, &endpoint, &format!("{number} {revision}")).await.unwrap();
            assert_eq!(stored.is_some(), kept, "sandbox {number} and its record of revision {revision}");
        }
        // Record, event and side tables are of one revision.
        let mut last = 0;
        let mut after = 0;
        loop {
            let events = store.events(&id(number), after, MAX_PAGE).await.unwrap();
            let Some(newest) = events.last() else { break };
            (last, after) = (newest.at.0, newest.sequence);
        }
        assert_eq!(last, revision, "sandbox {number}");
        if let Some(found) = found {
            stored += 1;
            let metadata = [("revision".to_owned(), revision.to_string())].into();
            let filter = Filter { account: "acme".into(), state: Some(found.state()), image: None, metadata };
            let listing = store.list(&filter, PageRange { limit: 100, offset: 0 }).await.unwrap();
            assert!(listing.items.iter().any(|item| item.id == found.id), "sandbox {number}");
        }
    }
    let all = Filter { account: "acme".into(), ..Filter::default() };
    assert_eq!(store.list(&all, PageRange { limit: 100, offset: 0 }).await.unwrap().total, stored);
    store.close().await;
    let connection = rusqlite::Connection::open(path).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
