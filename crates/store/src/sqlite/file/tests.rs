use super::*;

fn database() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sandboxd.db");
    (directory, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn refusal(path: &Path) -> String {
    open(path).unwrap_err().to_string()
}

#[test]
fn settings_provide_durability() {
    let (_directory, path) = database();
    let connection = open(&path).unwrap();
    let text = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("journal_mode"), "wal");
    // 2 is FULL.
    assert_eq!(pragma(&connection, "synchronous").unwrap(), 2);
    assert_eq!(pragma(&open_checkpointer(&path).unwrap(), "synchronous").unwrap(), 2);
    assert_eq!(pragma(&connection, "application_id").unwrap(), APPLICATION_ID);
    assert_eq!(pragma(&connection, "user_version").unwrap(), MIGRATIONS.len() as i64);
}

#[test]
fn only_the_owner_reads_the_files() {
    let (directory, path) = database();
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let connection = open(&path).unwrap();
    connection.execute_batch("CREATE TABLE something (a)").unwrap();
    let modes: Vec<u32> =
        fs::read_dir(directory.path()).unwrap().map(|entry| mode(&entry.unwrap().path())).collect();
    assert_eq!(modes, [OWNER_ONLY; 3], "the file, its WAL and the WAL's index");
}

#[test]
fn a_reader_cannot_write() {
    let (_directory, path) = database();
    let _writer = open(&path).unwrap();
    let reader = open_reader(&path).unwrap();
    let error = reader.execute_batch("DELETE FROM sandboxes").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
}

#[test]
fn a_missing_directory_is_named() {
    let (directory, _) = database();
    let path = directory.path().join("nowhere/s.db");
    let message = refusal(&path);
    assert!(message.contains("nowhere/s.db") && message.contains("No such file"), "{message}");
}

#[test]
fn a_newer_database_is_not_changed() {
    let (_directory, path) = database();
    let known = MIGRATIONS.len() as i64;
    let found = known + 1;
    open(&path).unwrap().pragma_update(None, "user_version", found).unwrap();
    let error = open(&path).unwrap_err();
    assert_eq!(error, StoreError::TooNew { path, found, known });
    assert!(error.to_string().contains(&format!(
        "has version {found} and this program knows up to {known}; run the newer program"
    )));
}

#[test]
fn a_failed_migration_keeps_the_version_and_can_be_repeated() {
    let (_directory, path) = database();
    let mut connection = open(&path).unwrap();
    let last = MIGRATIONS.len() as i64;
    let with = |more: &[&'static str]| [&MIGRATIONS, more].concat();
    let broken = with(&["CREATE TABLE two (a); CREATE TABLE two (a);"]);
    let error = migrate(&mut connection, &path, &broken).unwrap_err();
    assert!(error.to_string().contains("table two already exists"), "{error}");
    assert_eq!(pragma(&connection, "user_version").unwrap(), last);
    let mended = with(&["CREATE TABLE two (a);", "CREATE TABLE three (a);"]);
    migrate(&mut connection, &path, &mended).unwrap();
    assert_eq!(pragma(&connection, "user_version").unwrap(), last + 2);
    let older = migrate(&mut connection, &path, &MIGRATIONS);
    assert!(matches!(older, Err(StoreError::TooNew { found, .. }) if found == last + 2));
}

/// SQL of version 1: sandboxes of each state with metadata and events.
const OF_VERSION_1: &str = r#"
    INSERT INTO sandboxes (id, account, state, image, cpu, memory_mb, disk_mb, slot, created_at, started_at, paused_at,
        terminated_at, revision, ran_ms, phase, phase_since, reason, note, image_digest, layers, image_env, config)
    VALUES
    ('sb_0000000001', 'acme', 'running', 'ubuntu:24.04', 2, 4096, 10240, 1, 1000, 1030, NULL, NULL, 1, 0, 'running', 1030, NULL,
        NULL, 'sha256:1', '["sha256:aa","sha256:bb"]', '["PATH=/bin"]',
        '{"image":"ubuntu:24.04","resources":{"cpu":2,"memoryMb":4096,"diskMb":10240},"env":{"A":"1"},"workdir":"/workspace","timeoutMs":300000,"idleTimeoutMs":120000,"metadata":{"userId":"7"},"network":{"egress":{"allow":["example.com"],"default":"deny"}}}'),
    ('sb_0000000002', 'acme', 'terminated', 'node:22', 4, 2048, 5120, 1, 2000, 2030, NULL, 2500, 3, 470, 'ended', NULL, 'deleted',
        NULL, 'sha256:2', '[]', '[]',
        '{"image":"node:22","resources":{"cpu":4,"memoryMb":2048,"diskMb":5120},"env":{},"workdir":"/w","timeoutMs":1,"idleTimeoutMs":0,"metadata":{},"network":{"egress":{"allow":[],"default":"allow"}}}');
    INSERT INTO metadata VALUES ('acme', 'userId', '7', 1000, 1);
    INSERT INTO events (sandbox, account, at, kind, data) VALUES ('sb_0000000001', 'acme', 1000, 'sandbox.created', '{"image":"x"}'),
        ('sb_0000000002', 'acme', 2500, 'sandbox.terminated', '{}');
"#;

#[tokio::test]
async fn a_database_of_version_1_is_migrated() {
    use crate::conformance::{idempotency_record, key};
    use crate::{Batch, EventFilter, EventPage, Filter, PageRange, SqliteStore, Store, Write};

    let (_directory, path) = database();
    create(&path).unwrap();
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    set_up(&connection).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..1]).unwrap();
    connection.execute_batch(OF_VERSION_1).unwrap();
    assert_eq!(pragma(&connection, "user_version").unwrap(), 1);

    // The daemon of that version still runs and writes.
    let store = SqliteStore::open(&path).unwrap();
    connection.execute_batch("UPDATE sandboxes SET revision = 2 WHERE row = 1").unwrap();
    let event = "INSERT INTO events (sandbox, account, at, kind, data) VALUES ('sb_0000000001', 'acme', 1, 'sandbox.paused', '{}')";
    connection.execute_batch(event).unwrap();
    drop(connection);
    let [running] = store.living().await.unwrap().try_into().unwrap();
    assert_eq!(
        (running.id.as_str(), running.revision, running.config.timeout_ms),
        ("sb_0000000001", 2, 300_000)
    );
    assert_eq!(running.lifetime_ms, 300_000);
    assert_eq!((running.config.on_timeout, running.config.auto_resume), (api::OnTimeout::Terminate, true));
    assert_eq!(running.config.network.egress.allow, ["example.com"]);
    assert_eq!(running.config.network.ingress, None);
    assert_eq!((running.layers.len(), running.image_env.len()), (2, 1));
    for (metadata, ids) in [
        (Default::default(), &["sb_0000000002", "sb_0000000001"][..]),
        ([("userId".to_owned(), "7".to_owned())].into(), &["sb_0000000001"]),
    ] {
        let filter = Filter { account: "acme".to_owned(), metadata, ..Filter::default() };
        let listing = store.list(&filter, PageRange { limit: 9, offset: 0 }).await.unwrap();
        let found: Vec<_> = listing.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!((found, listing.total), (ids.to_vec(), ids.len() as u64));
    }
    assert_eq!(store.events(&running.id, 0, 9).await.unwrap()[0].kind, "sandbox.created");
    let filter = EventFilter { account: "acme".to_owned(), ..EventFilter::default() };
    let page = EventPage { limit: 9, ..EventPage::default() };
    let listing = store.list_events(&filter, page).await.unwrap();
    assert_eq!(
        (listing.total, listing.items[2].kind.as_str(), listing.items[0].run.as_str()),
        (3, "sandbox.paused", "")
    );
    // The new tables work.
    let batch = Batch::new().with(Write::PutKey(Box::new(key(1)))).idempotency_record(idempotency_record(1));
    store.commit(batch).await.unwrap();
    store.close().await;
    let connection = open(&path).unwrap();
    assert_eq!(pragma(&connection, "user_version").unwrap(), MIGRATIONS.len() as i64);
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.keys().await.unwrap(), [key(1)]);
    assert_eq!(store.living().await.unwrap(), [running]);
}

#[test]
fn databases_of_other_programs_are_not_changed() {
    let (_directory, path) = database();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (a)").unwrap();
    assert!(refusal(&path).contains("is not a database of this service: it holds 1 tables or indexes"));
    other.pragma_update(None, "application_id", 7).unwrap();
    assert!(refusal(&path).contains("its application id is 0x7, expected is 0x73627864"));
    assert_eq!(pragma(&other, "user_version").unwrap(), 0);
}

#[test]
fn a_file_that_is_no_database_is_reported_as_damaged() {
    let (_directory, path) = database();
    fs::write(&path, "hello, this is some text file and no database at all".repeat(100)).unwrap();
    let message = refusal(&path);
    assert!(message.contains("is damaged: file is not a database"), "{message}");
    assert!(message.contains("restore it from a backup, or move it away"), "{message}");
    assert!(message.contains("'sandboxd serve --discard-orphans'"), "{message}");
}

#[test]
fn a_damaged_schema_is_found_at_once() {
    let (_directory, path) = database();
    drop(open(&path).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    // The content of the first page follows the header of 100 bytes.
    bytes[100..4096].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    assert!(matches!(open(&path), Err(StoreError::Damaged { .. })));
}

/// A database of version 6 has neither byte counts nor encodings. The migration counts its rows, and rows that a
/// daemon of that version still writes count too.
#[tokio::test]
async fn a_database_of_version_6_gets_its_bytes_counted() {
    use rules::{QuotaTable, Quotas, StoredQuotas, TimeMs};

    use crate::conformance::idempotency_record;
    use crate::{Batch, IdempotencyRecord, SqliteStore, Store};

    let (_directory, path) = database();
    create(&path).unwrap();
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    set_up(&connection).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..6]).unwrap();
    let rows = "INSERT INTO remembered (account, endpoint, key, request_hash, status, created_at, expires_at, content)
            VALUES ('acme', 'POST /x', 'old', zeroblob(32), 200, 1, 99, zeroblob(1000));
        INSERT INTO events (sandbox, account, at, kind, data) VALUES
            ('sb_0000000001', 'acme', 1, 'sandbox.paused', '{}'), ('sb_0000000001', 'acme', 1, 'agent.thinking', '{}')";
    connection.execute_batch(rows).unwrap();
    let stored = StoredQuotas { idempotency_bytes: Some(3000), ..StoredQuotas::default() };
    let quotas = QuotaTable { default: Quotas { stored, ..Quotas::default() }, ..QuotaTable::default() };
    let store = SqliteStore::open_with_quotas(&path, quotas).unwrap();
    let bytes = store.stored_bytes("acme").await.unwrap();
    assert_eq!((bytes.idempotency, bytes.events, bytes.posted_events), (1512, 514, 514));
    let old = store.idempotency_record("acme", "POST /x", "old").await.unwrap().unwrap();
    assert_eq!(old.content, [0; 1000]);
    // A daemon of that version still writes.
    connection.execute_batch(&rows.replace("'old'", "'later'")).unwrap();
    assert_eq!(store.stored_bytes("acme").await.unwrap().idempotency, 3024);
    let new = IdempotencyRecord {
        account: "acme".to_owned(),
        created_at: TimeMs(50),
        expires_at: TimeMs(60),
        ..idempotency_record(1)
    };
    store.commit(Batch::new().idempotency_record(new)).await.unwrap();
    assert!(store.stored_bytes("acme").await.unwrap().idempotency <= 3000);
    assert_eq!(store.idempotency_record("acme", "POST /x", "old").await.unwrap(), None);
    store.close().await;
}

/// A database of version 13 does not count the bytes of terminated sandboxes. The migration counts those that it has, and those that a
/// daemon of that version still ends count too.
#[tokio::test]
async fn a_database_of_version_13_gets_its_ended_sandboxes_counted() {
    use crate::{SqliteStore, Store};

    let (_directory, path) = database();
    create(&path).unwrap();
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    set_up(&connection).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..1]).unwrap();
    connection.execute_batch(OF_VERSION_1).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..13]).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let counted = |connection: &Connection| {
        let sql = "SELECT bytes FROM stored_bytes WHERE account = 'acme' AND kind = 'ended_sandboxes'";
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let one = counted(&connection);
    assert!((2048..4096).contains(&one), "{one}");
    // A daemon of that version still writes.
    let end = "UPDATE sandboxes SET state = 'terminated', terminated_at = 2600, revision = 2 WHERE row = 1";
    connection.execute_batch(end).unwrap();
    let both = counted(&connection);
    assert!((one + 2048..one + 4096).contains(&both), "{both}");
    assert_eq!(store.purge_beyond(u64::MAX).await.unwrap(), 0);
    assert_eq!(store.purge_beyond(u64::try_from(both).unwrap() - 1).await.unwrap(), 1);
    let ids = "SELECT group_concat(id) FROM sandboxes";
    assert_eq!(connection.query_row(ids, [], |row| row.get::<_, String>(0)).unwrap(), "sb_0000000001");
    assert_eq!(counted(&connection), both - one);
    store.close().await;
}

/// Keys of version 14 have no end and the limits of their account, and so have those that a daemon or a command line of that version
/// still creates.
#[tokio::test]
async fn keys_of_version_14_stay_valid() {
    use rules::KeyLimits;

    use crate::{SqliteStore, Store};

    let (_directory, path) = database();
    create(&path).unwrap();
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    set_up(&connection).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..14]).unwrap();
    let key = "INSERT INTO keys (id, hash, account, scopes, name, prefix_hint, created_at, revoked_at)
        VALUES ('key_1', zeroblob(32), 'acme', 'read', NULL, 'sbk_abcd', 1, NULL)";
    connection.execute_batch(key).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let version = store.keys_version().await.unwrap();
    connection
        .execute_batch(&key.replace("key_1", "key_2").replace("zeroblob(32)", "randomblob(32)"))
        .unwrap();
    assert!(store.keys_version().await.unwrap() > version);
    let keys = store.keys().await.unwrap();
    assert_eq!(keys.len(), 2);
    for key in keys {
        assert_eq!((key.revoked_at, key.expires_at, key.limits), (None, None, KeyLimits::OfAccount));
    }
    store.close().await;
}

/// The columns of a sandbox in version 15, as its daemon names them in each write.
const COLUMNS_OF_VERSION_15: &str = "id, account, state, image, cpu, memory_mb, disk_mb, slot, created_at, started_at, \
    paused_at, terminated_at, revision, ran_ms, phase, phase_since, reason, note, image_digest, layers, image_env, config, ports, \
    lifetime_ms, has_prepared_disk, hibernated_at";

/// The values of a row of version 15, which was created at 1000 and started at 1030. `times` are `paused_at` and `terminated_at`, `run` is
/// from `ran_ms` to `phase_since`, `texts` are `reason` and `note`, `disk` is from `has_prepared_disk`.
fn row_of_version_15(number: u32, state: &str, [times, run, texts, disk]: [&str; 4]) -> String {
    let config = r#"{"image":"node:22","resources":{"cpu":2,"memoryMb":4096,"diskMb":10240},"env":{},"workdir":"/w",
        "timeoutMs":300000,"idleTimeoutMs":0,"metadata":{},"network":{"egress":{"allow":[],"default":"allow"}}}"#;
    format!(
        "('sb_{number:010}', 'acme', '{state}', 'node:22', 2, 4096, 10240, {number}, 1000, 1030, {times}, 1, {run}, {texts}, \
         'sha256:1', '[]', '[]', '{config}', '[]', 300000, {disk})"
    )
}

const LOST: &str = "its processes ended unexpectedly; its disk is unchanged";
const ROLLED_BACK: &str = "rolled back to snap_a; it has the processes of then";

/// A row of each kind that a daemon of version 15 writes, and the lifecycle that it becomes.
fn lifecycles_of_version_15() -> Vec<(String, rules::Lifecycle)> {
    use rules::{Lifecycle, NextDisk, PausedProcesses, Runs, TimeMs};

    let runs = |finished_ms| Runs { started_at: TimeMs(1030), finished_ms };
    let paused = |processes, next_disk| Lifecycle::Paused {
        since: TimeMs(2000),
        runs: runs(970),
        processes,
        next_disk,
    };
    let ended = |paused_since| Lifecycle::Terminated {
        at: TimeMs(2500),
        reason: "deleted".to_owned(),
        paused_since,
        runs: Some(runs(970)),
    };
    let lost = PausedProcesses::Ended { note: LOST.to_owned() };
    let stored =
        |note: Option<&str>| PausedProcesses::Stored { at: TimeMs(2100), note: note.map(str::to_owned) };
    let (alive, at_2000) = ("NULL, NULL", "2000, NULL");
    let (run, pause, end) = ("970, 'running', 2200", "970, 'paused', 2000", "970, 'ended', NULL");
    let (none, lost_note) = ("NULL, NULL", format!("NULL, '{LOST}'"));
    let rolled_back = format!("NULL, '{ROLLED_BACK}'");
    let rows = [
        ("running", [alive, "0, 'running', 1030", none, "0, NULL"], Lifecycle::started(TimeMs(1030))),
        (
            "running",
            [alive, run, none, "0, NULL"],
            Lifecycle::Running { since: TimeMs(2200), runs: runs(970) },
        ),
        ("paused", [at_2000, pause, none, "0, NULL"], paused(PausedProcesses::Frozen, NextDisk::Own)),
        ("paused", [at_2000, pause, none, "0, 2100"], paused(stored(None), NextDisk::Own)),
        ("paused", [at_2000, pause, &lost_note, "0, NULL"], paused(lost.clone(), NextDisk::Own)),
        ("paused", [at_2000, pause, &lost_note, "1, NULL"], paused(lost, NextDisk::Prepared)),
        (
            "paused",
            [at_2000, pause, &rolled_back, "1, 2100"],
            paused(stored(Some(ROLLED_BACK)), NextDisk::Prepared),
        ),
        ("terminated", ["NULL, 2500", end, "'deleted', NULL", "0, NULL"], ended(None)),
        ("terminated", ["2000, 2500", end, "'deleted', NULL", "0, NULL"], ended(Some(TimeMs(2000)))),
    ];
    let numbered = (1..).zip(rows);
    numbered
        .map(|(number, (state, values, lifecycle))| (row_of_version_15(number, state, values), lifecycle))
        .collect()
}

/// Records of version 15 have their lifecycle in seven columns. The migration converts them, and those that a daemon of that version
/// still writes are converted, too.
#[tokio::test]
async fn records_of_version_15_get_their_lifecycle() {
    use crate::conformance::record;
    use crate::{SqliteStore, Store};

    let (_directory, path) = database();
    create(&path).unwrap();
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    set_up(&connection).unwrap();
    migrate(&mut connection, &path, &MIGRATIONS[..15]).unwrap();
    let rows = lifecycles_of_version_15();
    let (earlier, later) = rows.split_at(5);
    let insert = |connection: &Connection, row: &str| {
        connection
            .execute_batch(&format!("INSERT INTO sandboxes ({COLUMNS_OF_VERSION_15}) VALUES {row}"))
            .unwrap();
    };
    for (row, _) in earlier {
        insert(&connection, row);
    }
    let store = SqliteStore::open(&path).unwrap();
    // A daemon of that version still writes.
    for (row, _) in later {
        insert(&connection, row);
    }
    for (number, (_, lifecycle)) in (1..).zip(&rows) {
        let found = store.get(&crate::conformance::id(number)).await.unwrap().unwrap();
        assert_eq!((&found.lifecycle, found.lifetime_ms), (lifecycle, 300_000), "{number}");
    }
    // The daemon changes the first one into each of them.
    for (values, lifecycle) in &rows {
        let values = values.replacen(&values[1..16], "'sb_0000000001'", 1);
        // The last value of a column counts: the slot of another one is taken.
        let update =
            format!("UPDATE sandboxes SET ({COLUMNS_OF_VERSION_15}) = {values}, slot = 99 WHERE row = 1");
        connection.execute_batch(&update).unwrap();
        let found = store.get(&crate::conformance::id(1)).await.unwrap().unwrap();
        assert_eq!(found.lifecycle, *lifecycle);
    }
    // What this version writes stays as it is.
    let new = crate::SandboxRecord { revision: 2, slot: 99, ..record(1) };
    store.put(new.clone()).await.unwrap();
    assert_eq!(store.get(&new.id).await.unwrap(), Some(new));
    store.close().await;
}
