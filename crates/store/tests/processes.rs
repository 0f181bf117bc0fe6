//! A daemon that writes continuously, and command lines that create and revoke keys in the same database: two at
//! once, in sequence, and some that are killed. No commit may fail, and the daemon sees each key as soon as its
//! creation was acknowledged.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::EventKind;
use rules::TimeMs;
use store::conformance::{event, id, key, record};
use store::{Batch, SandboxRecord, SqliteStore, Store, Write};

const DATABASE: &str = "STORE_TEST_DATABASE";
const FIRST_KEY: &str = "STORE_TEST_FIRST_KEY";
const KEYS: u32 = 25;
const WRITERS: u32 = 4;
const REVOKED_AT: TimeMs = TimeMs(1_800_000_000_000);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    match std::env::var_os(DATABASE) {
        Some(path) => runtime.block_on(command_line(PathBuf::from(path))),
        None => runtime.block_on(daemon()),
    }
}

/// Creates and revokes each key, and prints a line for each acknowledgement.
async fn command_line(path: PathBuf) {
    let first: u32 = std::env::var(FIRST_KEY).unwrap().parse().unwrap();
    for number in first..first + KEYS {
        let store = SqliteStore::open_beside(&path).unwrap();
        store.commit(Batch::new().with(Write::PutKey(Box::new(key(number))))).await.unwrap();
        print_line("put", number);
        let revocation = Write::RevokeKey { id: key(number).id, at: REVOKED_AT };
        store.commit(Batch::new().with(revocation)).await.unwrap();
        print_line("revoked", number);
        store.close().await;
    }
}

fn print_line(what: &str, number: u32) {
    // A short line is one write, which a kill does not truncate.
    std::io::stdout().write_all(format!("{what} {number}\n").as_bytes()).unwrap();
}

async fn daemon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            tokio::spawn(write(Arc::clone(&store), number, Arc::clone(&stop), Arc::clone(&commits)))
        })
        .collect();
    let mut first = 0;
    let mut start = || {
        first += KEYS;
        (first, spawn(&path, first))
    };
    for kills in [[None, None], [None, Some(7)], [Some(1), Some(30)], [Some(12), Some(13)]] {
        let watched: Vec<_> = kills
            .into_iter()
            .map(|kill_after| {
                let (number, child) = start();
                (number, tokio::spawn(watch(Arc::clone(&store), child, kill_after)), kill_after)
            })
            .collect();
        for (number, task, kill_after) in watched {
            let lines = task.await.unwrap();
            match kill_after {
                None => assert_eq!(lines, 2 * KEYS, "of the one from {number}"),
                Some(least) => assert!(lines >= least, "{lines} of the one from {number}"),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let revisions: Vec<u64> = {
        let mut all = Vec::new();
        for writer in writers {
            all.push(writer.await.unwrap());
        }
        all
    };
    for (number, revision) in (0..).zip(revisions) {
        assert_eq!(store.get(&id(number)).await.unwrap().unwrap().revision, revision);
    }
    store.close().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    println!("8 command lines beside {} commits of a daemon, none failed", commits.load(Ordering::Relaxed));
}

async fn write(store: Arc<SqliteStore>, number: u32, stop: Arc<AtomicBool>, commits: Arc<AtomicU64>) -> u64 {
    let mut revision = 0;
    while !stop.load(Ordering::Relaxed) {
        revision += 1;
        let batch = Batch::new().put(SandboxRecord { revision, ..record(number) }).event(event(
            number,
            EventKind::SandboxPaused,
            TimeMs(revision),
        ));
        store.commit(batch).await.unwrap();
        commits.fetch_add(1, Ordering::Relaxed);
    }
    revision
}

fn spawn(path: &Path, first: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env(DATABASE, path)
        .env(FIRST_KEY, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Checks the keys after each line, optionally kills the child after some lines, and returns the number of lines.
async fn watch(store: Arc<SqliteStore>, mut child: Child, kill_after: Option<u32>) -> u32 {
    let (lines, mut printed) = tokio::sync::mpsc::channel(1);
    let output = BufReader::new(child.stdout.take().unwrap());
    let reading = tokio::task::spawn_blocking(move || {
        for line in output.lines() {
            lines.blocking_send(line.unwrap()).unwrap();
        }
    });
    let (mut count, mut last_version) = (0, 0);
    while let Some(line) = printed.recv().await {
        let (what, number) = line.split_once(' ').unwrap();
        count += 1;
        // The version counts changes of all processes.
        let version = store.keys_version().await.unwrap();
        assert!(version >= u64::from(count) && version >= last_version, "{version} after '{line}'");
        last_version = version;
        let expected = key(number.parse().unwrap());
        let keys = store.keys().await.unwrap();
        let found = keys.iter().find(|key| key.id == expected.id).unwrap();
        assert!(what == "put" || found.revoked_at == Some(REVOKED_AT), "{found:?} after '{line}'");
        if kill_after == Some(count) {
            child.kill().unwrap();
        }
    }
    reading.await.unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.success(), kill_after.is_none(), "{status}");
    count
}
