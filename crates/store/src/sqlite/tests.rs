use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::EventKind;
use rusqlite::Connection;
use tokio::task::JoinSet;

use super::*;
use crate::conformance::{event, idempotency_record, key, record, terminated};

fn database() -> (tempfile::TempDir, Arc<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    (directory, Arc::new(path))
}

fn store_on(connection: Connection, path: &Arc<PathBuf>) -> SqliteStore {
    let followers = Arc::<Followers>::default();
    let writer =
        Writer::start(connection, Arc::clone(path), Arc::clone(&followers), QuotaTable::default(), None)
            .unwrap();
    SqliteStore {
        readers: Readers::new(Arc::clone(path)),
        commits: AccountPermits::new(COMMITS_PER_ACCOUNT),
        writer: Mutex::new(Some(writer)),
        followers,
    }
}

fn check(path: &PathBuf) -> String {
    let connection = Connection::open(path).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_reopened_store_has_all_data() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    let batch = Batch::new().put(record(1)).event(event(1, EventKind::SandboxCreated, TimeMs(1)));
    store.commit(batch).await.unwrap();
    let events = store.events(&record(1).id, 0, 9).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&*path).unwrap();
    assert_eq!(store.living().await.unwrap(), [record(1)]);
    assert_eq!(store.events(&record(1).id, 0, 9).await.unwrap(), events);
    drop(store);
    // A WAL that was moved into the file is removed.
    assert!(!path.with_extension("db-wal").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_finishes_queued_jobs() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    let queue = store.writer.lock().unwrap().as_ref().unwrap().queue();
    let permits = AccountPermits::new(500);
    let mut answers = Vec::new();
    for number in 0..500 {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let permit = permits.acquire("acme").await;
        let job = Job::Commit { batch: encoding::encode(Batch::new().put(record(number))), reply, permit };
        queue.send(job).await.map_err(|_| "closed").unwrap();
        answers.push(answer);
    }
    drop(queue);
    drop(store);
    for mut answer in answers {
        // The replies were sent before the drop returned.
        answer.try_recv().unwrap().unwrap();
    }
    assert_eq!(SqliteStore::open(&*path).unwrap().living().await.unwrap().len(), 500);
}

#[tokio::test]
async fn a_full_disk_fails_only_commits() {
    let (_directory, path) = database();
    let connection = file::open(&path).unwrap();
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    connection.query_row(&format!("PRAGMA max_page_count = {}", pages + 40), [], |_| Ok(())).unwrap();
    let store = Arc::new(store_on(connection, &path));
    let mut kept = 0;
    let failure = loop {
        let mut large = record(kept);
        large.config.env.insert("A".to_owned(), "x".repeat(30_000));
        match store.put(large).await {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(
        kept > 0
            && matches!(&failure, StoreError::Failed { source, .. } if source.to_string().contains("full")),
        "{failure}"
    );
    assert_eq!(store.living().await.unwrap().len(), kept as usize);
    // Each job that shares a transaction with one that does not fit gets its own reply.
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        let mut next = record(1000 + number);
        if number % 2 == 0 {
            next.config.env.insert("A".to_owned(), "x".repeat(100_000));
        }
        tasks.spawn(
            async move { (store.put(next.clone()).await, store.get(&next.id).await.unwrap().is_some()) },
        );
    }
    while let Some(done) = tasks.join_next().await {
        let (result, is_there) = done.unwrap();
        assert_eq!(result.is_ok(), is_there);
    }
    store.commit(Batch::new().delete(record(0).id)).await.unwrap();
    assert_eq!(store.get(&record(0).id).await.unwrap(), None);
    store.close().await;
    assert_eq!(check(&path), "ok");
}

#[tokio::test]
async fn a_lock_timeout_is_reported() {
    let (_directory, path) = database();
    let connection = file::open(&path).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    let store = store_on(connection, &path);
    let other = Connection::open(&*path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.put(record(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot begin to write: database is locked");
    other.execute_batch("ROLLBACK").unwrap();
    store.put(record(1)).await.unwrap();
}

#[tokio::test]
async fn a_second_open_does_not_wait_or_disturb() {
    let (_directory, path) = database();
    let first = SqliteStore::open(&*path).unwrap();
    first.put(record(1)).await.unwrap();
    let other = Connection::open(&*path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = std::time::Instant::now();
    let second = SqliteStore::open_beside(&*path).unwrap();
    assert!(second.append(event(1, EventKind::ExecCompleted, TimeMs(1))).is_err());
    assert_eq!((second.living().await.unwrap(), second.keys().await.unwrap()), (vec![record(1)], vec![]));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    other.execute_batch("ROLLBACK").unwrap();
    let before = first.keys_version().await.unwrap();
    second.commit(Batch::new().with(crate::Write::PutKey(Box::new(key(1))))).await.unwrap();
    assert!(first.keys_version().await.unwrap() > before);
    assert_eq!(first.keys().await.unwrap(), [key(1)]);
    first.put(record(2)).await.unwrap();
    second.close().await;
    first.put(record(3)).await.unwrap();
    assert_eq!(first.living().await.unwrap().len(), 3);
}

#[tokio::test]
async fn invalid_rows_are_reported_as_damage() {
    for (column, value) in [
        ("id", "'no id'"),
        ("config", "'{'"),
        ("layers", "'x'"),
        ("created_at", "-1"),
        ("lifecycle", "'{}'"),
        ("slot", "-7"),
    ] {
        let (_directory, path) = database();
        let store = SqliteStore::open(&*path).unwrap();
        store.put(record(1)).await.unwrap();
        let other = Connection::open(&*path).unwrap();
        other.execute_batch(&format!("UPDATE sandboxes SET {column} = {value}")).unwrap();
        let error = store.living().await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{column}: {error:?}");
    }
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    store
        .commit(
            Batch::new()
                .with(crate::Write::PutKey(Box::new(key(1))))
                .idempotency_record(idempotency_record(1)),
        )
        .await
        .unwrap();
    let other = Connection::open(&*path).unwrap();
    other.execute_batch("UPDATE keys SET created_at = -1; UPDATE remembered SET expires_at = -1").unwrap();
    assert!(matches!(store.keys().await, Err(StoreError::Damaged { .. })));
    let crate::IdempotencyRecord { account, endpoint, key, .. } = idempotency_record(1);
    assert!(matches!(
        store.idempotency_record(&account, &endpoint, &key).await,
        Err(StoreError::Damaged { .. })
    ));
}

#[tokio::test]
async fn damaged_pages_are_reported() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    for number in 0..200 {
        store.put(record(number)).await.unwrap();
    }
    store.close().await;
    let mut bytes = std::fs::read(&*path).unwrap();
    let half = bytes.len() / 2 / 4096 * 4096;
    bytes[half..].fill(0x5A);
    std::fs::write(&*path, bytes).unwrap();
    // Recovery reads all living sandboxes, which may fail earlier.
    let error = match SqliteStore::open(&*path) {
        Ok(store) => store.living().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
}

/// Lists of a million records depend on this: no query sorts or scans the table.
#[tokio::test]
async fn lists_use_indexes() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    store.put(terminated(&record(1), TimeMs(9))).await.unwrap();
    let connection = Connection::open(&*path).unwrap();
    let metadata = [("a".to_owned(), "1".to_owned())].into();
    for (filter, walk) in [
        (Filter::default(), "SEARCH base USING COVERING INDEX sandboxes_newest (account=?)"),
        (
            Filter { state: Some(api::SandboxState::Paused), ..Filter::default() },
            "SEARCH base USING COVERING INDEX sandboxes_by_state (account=? AND state=?)",
        ),
        (
            Filter { image: Some("x".into()), ..Filter::default() },
            "SEARCH base USING COVERING INDEX sandboxes_by_image (account=? AND image=?)",
        ),
        (
            Filter { metadata, ..Filter::default() },
            "SEARCH base USING PRIMARY KEY (account=? AND key=? AND value=?)",
        ),
    ] {
        let plan = list::plan(&connection, &filter).unwrap();
        assert!(plan.contains(walk), "{plan}");
        let (sorts, scans) = (plan.matches("TEMP B-TREE").count(), plan.matches("SCAN").count());
        // Only the twenty rows of the page are sorted.
        assert_eq!((sorts, scans), (1, 0), "{plan}");
    }
}

/// Lists of a million events depend on this.
#[tokio::test]
async fn event_lists_use_indexes() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    store.commit(Batch::new().event(event(1, EventKind::SandboxPaused, TimeMs(1)))).await.unwrap();
    let connection = Connection::open(&*path).unwrap();
    let of = |kinds: &[EventKind]| EventFilter {
        account: "acme".to_owned(),
        kinds: kinds.iter().copied().collect(),
        ..EventFilter::default()
    };
    let timed = EventFilter { since: Some(TimeMs(1)), ..of(&[]) };
    let run = EventFilter {
        run: Some("run".to_owned()),
        ..of(&[EventKind::ExecStarted, EventKind::ExecCompleted])
    };
    for (filter, walk, merged) in [
        (of(&[]), "USING COVERING INDEX events_of_an_account (account=? AND sequence>?", 0),
        (timed, "USING COVERING INDEX events_of_an_account (account=? AND sequence>?", 0),
        (
            of(&[EventKind::ExecStarted]),
            "USING COVERING INDEX events_of_a_kind (account=? AND kind=? AND sequence>?",
            0,
        ),
        (
            of(&[EventKind::ExecStarted, EventKind::ExecCompleted]),
            "USING COVERING INDEX events_of_a_kind (account=? AND kind=? AND sequence>?",
            1,
        ),
        (
            EventFilter { sandbox: Some(record(1).id), ..of(&[]) },
            "events_of_a_sandbox (sandbox=? AND rowid>?",
            0,
        ),
        (
            EventFilter { sandbox: Some(record(1).id), ..of(&[EventKind::ExecStarted]) },
            "events_of_a_kind_of_a_sandbox (sandbox=? AND kind=? AND sequence>?",
            0,
        ),
        (run, "events_of_a_run (account=? AND run=? AND sequence>?", 0),
    ] {
        for order in [crate::EventOrder::OldestFirst, crate::EventOrder::NewestFirst] {
            let page = EventPage { limit: 20, order, ..EventPage::default() };
            let plan = events::plan(&connection, &filter, page).unwrap();
            assert!(plan.contains(walk), "{plan}");
            // No query scans or sorts all events; the results of two scans, at most a page each, are sorted and
            // merged.
            assert_eq!(plan.matches("MERGE").count(), merged, "{plan}");
            assert_eq!(plan.matches("TEMP B-TREE").count(), 2 * merged, "{plan}");
            assert!(!plan.contains("SCAN events"), "{plan}");
        }
    }
}

fn journal_path(path: &Path) -> PathBuf {
    journal::path_of(path)
}

async fn times(store: &SqliteStore) -> Vec<u64> {
    let events = store.events(&record(1).id, 0, 1000).await.unwrap();
    events.into_iter().map(|event| event.at.0).collect()
}

/// Journals of a process that was killed at each possible point.
#[tokio::test]
async fn journal_lines_of_a_dead_process_become_events_once() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    store.append(event(1, EventKind::ExecCompleted, TimeMs(1))).unwrap();
    store.close().await;
    let moved = std::fs::read(journal_path(&path)).unwrap();
    // Written and not moved; the last line is truncated.
    let journal = Journal::open(&path, 1).unwrap();
    journal.append(&event(1, EventKind::ExecCompleted, TimeMs(2))).unwrap();
    journal.append(&event(1, EventKind::ExecCompleted, TimeMs(3))).unwrap();
    drop(journal);
    let written = std::fs::read(journal_path(&path)).unwrap();
    assert!(written.starts_with(&moved));
    std::fs::write(journal_path(&path), &written[..written.len() - 5]).unwrap();
    let store = SqliteStore::open(&*path).unwrap();
    store.append(event(1, EventKind::ExecCompleted, TimeMs(4))).unwrap();
    let mut heard = store.follow(Topic::Sandbox(record(1).id));
    while times(&store).await.len() < 3 {
        heard.changed().await.unwrap();
    }
    assert_eq!(times(&store).await, [1, 2, 4]);
    store.close().await;
    // Moved, and the journal not truncated.
    let store = SqliteStore::open(&*path).unwrap();
    store.commit(Batch::new().event(event(1, EventKind::SandboxPaused, TimeMs(5)))).await.unwrap();
    assert_eq!(times(&store).await, [1, 2, 4, 5]);
    store.close().await;
    // After a power loss the journal has fewer bytes or other ones.
    for content in [&b""[..], b"\0\0\0\0\0\n\0", b"7 [1]\n", b"\xff\n", &moved] {
        std::fs::write(journal_path(&path), content).unwrap();
        let store = SqliteStore::open(&*path).unwrap();
        let before = times(&store).await.len();
        store.append(event(1, EventKind::ExecCompleted, TimeMs(9))).unwrap();
        store.commit(Batch::new().event(event(2, EventKind::SandboxPaused, TimeMs(9)))).await.unwrap();
        assert_eq!(times(&store).await.len(), before + 1, "{content:?}");
        store.close().await;
    }
}

/// A newer daemon may have appended kinds of events that this one does not know.
#[tokio::test]
async fn journal_lines_of_an_unknown_kind_become_events() {
    let (_directory, path) = database();
    let sandbox = record(1).id;
    let line = format!("1 [\"{sandbox}\",\"acme\",\"\",1,\"sandbox.unknown\",{{}},null]\n");
    std::fs::write(journal_path(&path), line).unwrap();
    let store = SqliteStore::open(&*path).unwrap();
    store.commit(Batch::new()).await.unwrap();
    assert_eq!(store.events(&sandbox, 0, 10).await.unwrap()[0].kind, "sandbox.unknown");
}

#[tokio::test]
async fn the_journal_stays_short_under_load() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    for number in 0..20_000 {
        store.append(event(1, EventKind::ExecCompleted, TimeMs(number))).unwrap();
        if number % 1000 == 999 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    store.commit(Batch::new().event(event(1, EventKind::SandboxPaused, TimeMs(20_000)))).await.unwrap();
    let length = std::fs::metadata(journal_path(&path)).unwrap().len();
    assert!(length < 1 << 20, "{length} bytes");
    let page = EventPage { limit: 1, ..EventPage::default() };
    let filter = EventFilter { account: "acme".to_owned(), ..EventFilter::default() };
    assert_eq!(store.list_events(&filter, page).await.unwrap().total, 20_001);
}

fn quotas(idempotency_bytes: u64, event_bytes: u64) -> QuotaTable {
    let stored = rules::StoredQuotas {
        idempotency_bytes: Some(idempotency_bytes),
        event_bytes: Some(event_bytes),
        posted_event_bytes: None,
    };
    QuotaTable { default: rules::Quotas { stored, ..Default::default() }, ..QuotaTable::default() }
}

fn file_bytes(path: &Path) -> u64 {
    let length = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    length(path.to_path_buf()) + length(path.with_extension("db-wal"))
}

/// Incompressible bytes.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Thirty large responses with a quota of four: the file stays near the quota, and the newest responses are stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_responses_stay_within_their_quota_and_the_file_reuses_its_pages() {
    const SIZE: usize = 4 << 20;
    let (_directory, path) = database();
    let store = SqliteStore::open_with_quotas(&*path, quotas(4 * (SIZE as u64 + 512), u64::MAX)).unwrap();
    let record = |number: u32| IdempotencyRecord {
        key: format!("key-{number}"),
        content: noise(number.into(), SIZE),
        created_at: TimeMs(1000 + u64::from(number)),
        expires_at: TimeMs(1_000_000),
        ..idempotency_record(1)
    };
    let mut sizes = Vec::new();
    for number in 0..30 {
        store.commit(Batch::new().idempotency_record(record(number))).await.unwrap();
        sizes.push(file_bytes(&path));
    }
    let used = store.stored_bytes(&record(0).account).await.unwrap().idempotency;
    assert!(used <= 4 * (SIZE as u64 + 512), "{used} bytes");
    // The database, and a WAL of one transaction and the rest of its checkpoint.
    assert!(sizes.iter().all(|bytes| *bytes < 64 << 20), "{sizes:?}");
    let kept = |number: u32| {
        let IdempotencyRecord { account, endpoint, key, .. } = record(number);
        let store = &store;
        async move { store.idempotency_record(&account, &endpoint, &key).await.unwrap() }
    };
    assert_eq!(kept(29).await, Some(record(29)));
    assert_eq!(kept(20).await, None);
    store.close().await;
    assert_eq!(check(&path), "ok");
}

/// Escaped output, six times as long as the output itself, takes little space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn escaped_output_is_compressed_and_reads_back() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    let content = b"\\u0001".repeat(8 << 20);
    let record = IdempotencyRecord { content, ..idempotency_record(1) };
    store.commit(Batch::new().idempotency_record(record.clone())).await.unwrap();
    let IdempotencyRecord { account, endpoint, key, .. } = &record;
    assert_eq!(store.idempotency_record(account, endpoint, key).await.unwrap(), Some(record.clone()));
    let used = store.stored_bytes(account).await.unwrap().idempotency;
    assert!(used < 1 << 20 && file_bytes(&path) < 2 << 20, "{used} bytes");
}

#[tokio::test]
async fn a_response_above_the_quota_evicts_the_others_of_its_account() {
    let (_directory, path) = database();
    let store = SqliteStore::open_with_quotas(&*path, quotas(10_000, u64::MAX)).unwrap();
    let record = |account: &str, key: &str, at: u64, length: usize| IdempotencyRecord {
        account: account.to_owned(),
        key: key.to_owned(),
        content: noise(at, length),
        created_at: TimeMs(at),
        expires_at: TimeMs(1_000_000),
        ..idempotency_record(1)
    };
    let kept = async |record: &IdempotencyRecord| {
        store.idempotency_record(&record.account, &record.endpoint, &record.key).await.unwrap().is_some()
    };
    let (first, other) = (record("acme", "a", 1, 5_000), record("other", "a", 1, 9_000));
    let large = record("acme", "b", 2, 50_000);
    for record in [&first, &other, &large] {
        store.commit(Batch::new().idempotency_record(record.clone())).await.unwrap();
    }
    assert!(!kept(&first).await && kept(&other).await && kept(&large).await);
    let last = record("acme", "c", 3, 100);
    store.commit(Batch::new().idempotency_record(last.clone())).await.unwrap();
    assert!(!kept(&large).await && kept(&last).await);
    assert_eq!(store.stored_bytes("acme").await.unwrap().idempotency, 612);
    store.purge_idempotency_records(TimeMs(u64::MAX)).await.unwrap();
    assert_eq!(store.stored_bytes("acme").await.unwrap(), StoredBytes::default());
}

/// The oldest events of the service are evicted; those of other accounts and posted ones stay.
#[tokio::test]
async fn events_of_the_service_stay_within_their_quota() {
    let (_directory, path) = database();
    let store = SqliteStore::open_with_quotas(&*path, quotas(u64::MAX, 100_000)).unwrap();
    let named = |account: &str, kind: EventKind, at: u64| NewEvent {
        account: account.to_owned(),
        ..event(1, kind, TimeMs(at))
    };
    store.commit(Batch::new().event(named("other", EventKind::ExecCompleted, 0))).await.unwrap();
    store.commit(Batch::new().event(named("acme", EventKind::AgentThinking, 0))).await.unwrap();
    for at in 1..=1000 {
        // Committed with other writes, and appended to the journal.
        if at % 2 == 0 {
            store.commit(Batch::new().event(named("acme", EventKind::SandboxPaused, at))).await.unwrap();
        } else {
            store.append(named("acme", EventKind::ExecCompleted, at)).unwrap();
        }
    }
    store.commit(Batch::new().event(named("acme", EventKind::SandboxPaused, 1001))).await.unwrap();
    let used = store.stored_bytes("acme").await.unwrap();
    assert!((80_000..=100_000).contains(&used.events) && used.posted_events > 512, "{used:?}");
    let all = EventFilter { account: "acme".to_owned(), ..EventFilter::default() };
    let page = EventPage { limit: 1000, ..EventPage::default() };
    let listed = store.list_events(&all, page).await.unwrap();
    let times: Vec<u64> = listed.items.iter().map(|event| event.at.0).collect();
    assert_eq!((times[0], *times.last().unwrap()), (0, 1001), "posted events stay");
    assert_eq!(times[1..], (times[1]..=1001).collect::<Vec<_>>(), "the rest is without gaps");
    assert!(times.len() < 200);
    assert_eq!(store.stored_bytes("other").await.unwrap().posted_events, 0);
    assert!(store.stored_bytes("other").await.unwrap().events > 512);
}

/// While the disk is full, appended events wait in the journal; none is lost.
#[tokio::test]
async fn appended_events_wait_for_a_full_disk() {
    let (_directory, path) = database();
    let connection = file::open(&path).unwrap();
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    connection.query_row(&format!("PRAGMA max_page_count = {}", pages + 5), [], |_| Ok(())).unwrap();
    let journal = Arc::new(Journal::open(&path, 0).unwrap());
    let followers = Arc::<Followers>::default();
    let writer = Writer::start(
        connection,
        Arc::clone(&path),
        followers,
        QuotaTable::default(),
        Some(Arc::clone(&journal)),
    )
    .unwrap();
    for number in 0..2000 {
        writer.append(&event(1, EventKind::ExecCompleted, TimeMs(number))).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!journal.is_empty());
    drop(writer);
    let store = SqliteStore::open(&*path).unwrap();
    store.commit(Batch::new().event(event(2, EventKind::SandboxPaused, TimeMs(1)))).await.unwrap();
    let filter = EventFilter { account: "acme".to_owned(), ..EventFilter::default() };
    let page = EventPage { limit: 1, ..EventPage::default() };
    assert_eq!(store.list_events(&filter, page).await.unwrap().total, 2001);
}

#[tokio::test]
async fn the_wal_stays_short_under_load() {
    let (_directory, path) = database();
    let store = SqliteStore::open(&*path).unwrap();
    for revision in 1..=3000 {
        store.put(SandboxRecord { revision, ..record(1) }).await.unwrap();
    }
    let log = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    assert!(log < 32 * 1024 * 1024, "{log} bytes");
}

/// Starts many calls of an account, then one of another; returns how many of the many were over before that one.
async fn over_before<F: Future<Output = ()> + Send + 'static>(
    many: usize,
    call: impl Fn(&'static str, u32) -> F,
) -> usize {
    let over = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..many {
        let (over, call) = (Arc::clone(&over), call("acme", u32::try_from(number).unwrap()));
        tasks.spawn(async move {
            call.await;
            over.fetch_add(1, Ordering::SeqCst);
        });
    }
    // Until all of them wait.
    while over.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    call("other", 1_000_000).await;
    let before = over.load(Ordering::SeqCst);
    tasks.join_all().await;
    before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_an_account_do_not_delay_those_of_another() {
    let (_directory, path) = database();
    let store = Arc::new(SqliteStore::open(&*path).unwrap());
    for part in 0..40u32 {
        let records = (part * 500..part * 500 + 500).map(|number| terminated(&record(number), TimeMs(7)));
        store.commit(records.fold(Batch::new(), Batch::put)).await.unwrap();
    }
    let before = over_before(400, |account, _| {
        let store = Arc::clone(&store);
        async move {
            let filter = Filter { account: account.to_owned(), ..Filter::default() };
            let listing = store.list(&filter, PageRange { limit: 100, offset: 19_900 }).await.unwrap();
            assert_eq!(listing.items.len(), if account == "acme" { 100 } else { 0 });
        }
    });
    let before = before.await;
    assert!(before < 300, "{before} of 400 reads came first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_an_account_do_not_delay_those_of_another() {
    let (_directory, path) = database();
    let store = Arc::new(SqliteStore::open(&*path).unwrap());
    let before = over_before(2000, |account, number| {
        let store = Arc::clone(&store);
        async move {
            let data = serde_json::json!({ "text": "x".repeat(50_000) });
            let event = NewEvent {
                account: account.to_owned(),
                data,
                ..event(number, EventKind::SandboxPaused, TimeMs(1))
            };
            store.commit(Batch::new().event(event)).await.unwrap();
        }
    });
    let before = before.await;
    assert!(before < 1500, "{before} of 2000 commits came first");
}
