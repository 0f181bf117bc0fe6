//! Copies of snapshots in an object store, which is a directory here: other hosts read them, nothing is left of deleted ones, and a store
//! that is away or damaged costs no data.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Isolation, SandboxConfig, SandboxId, SnapshotId, SnapshotStorage};
use archive::{Archive, ArchiveError, Location, Manifest, S3Options, Secrets, Unauthentic, WithoutCode};
use driver::Disks;
use driver::fake::{DriverOp, FakeDriver, Fault};
use engine::{
    DetachedRequest, DetachedSettings, EngineError, EngineSettings, ExecutionId, ExecutionState, Processes,
    SandboxError, SnapshotCopies, SnapshotError,
};
use rules::{IsolationLevels, IsolationPolicy, IsolationRules, SnapshotRequest};
use store::{EventFilter, MemoryStore, SnapshotRecord, Store};
use tempfile::TempDir;

use crate::harness::{DAY, HOUR, Harness, MINUTE, START, config, pass, settings, template};

/// Directories of an object store and of the hosts that use it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn copies(&self, host: &str, local_for_ms: u64) -> SnapshotCopies {
        self.copies_with('a', host, local_for_ms)
    }

    /// `digit` stands for the secret of the host.
    fn copies_with(&self, digit: char, host: &str, local_for_ms: u64) -> SnapshotCopies {
        let location = Location::Directory(self.store());
        let stored = self.0.path().join(host).join("stored");
        let archive = Archive::open(&location, &S3Options::default(), &stored, secrets(digit)).unwrap();
        let find_digest = |digest: &str| Some(template()).filter(|template| template.digest == digest);
        SnapshotCopies { archive, local_for_ms, find_digest: Arc::new(find_digest) }
    }

    fn settings(&self, host: &str) -> EngineSettings {
        let executions = self.0.path().join(host).join("executions");
        EngineSettings { detached: DetachedSettings::in_dir(executions), ..settings() }
    }

    async fn host(&self, name: &str) -> Harness {
        self.host_that_keeps(name, 0).await
    }

    async fn host_that_keeps(&self, name: &str, local_for_ms: u64) -> Harness {
        let (driver, store) = (FakeDriver::new(), MemoryStore::new());
        let copies = self.copies(name, local_for_ms);
        Harness::with_copies(driver, store, self.settings(name), START, copies).await
    }

    /// The next daemon of a host.
    async fn restart(&self, harness: &Harness, name: &str, local_for_ms: u64) -> Harness {
        let (driver, store) = (harness.driver.clone(), harness.store.clone());
        let (now, copies) = (harness.clock.now(), self.copies(name, local_for_ms));
        Harness::with_copies(driver, store, self.settings(name), now, copies).await
    }

    /// All objects.
    fn objects(&self) -> Vec<PathBuf> {
        fn visit(dir: &Path, all: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { visit(&path, all) } else { all.push(path) }
            }
        }
        let mut all = Vec::new();
        visit(&self.store(), &mut all);
        all
    }
}

fn secrets(digit: char) -> Secrets {
    Secrets::parse(&digit.to_string().repeat(64), WithoutCode::Refuse).unwrap()
}

/// Those of an account that may use any isolation.
fn rules() -> IsolationRules {
    IsolationRules::default()
}

async fn take_with(harness: &Harness, id: &SandboxId, memory: bool) -> Arc<SnapshotRecord> {
    let request = SnapshotRequest { memory, ..SnapshotRequest::default() };
    harness.engine.sandbox("test", id).take_snapshot(request, None).await.unwrap()
}

async fn stored(harness: &Harness, record: &SnapshotRecord) {
    is_at(harness, record, SnapshotStorage::Stored).await;
}

async fn is_at(harness: &Harness, record: &SnapshotRecord, storage: SnapshotStorage) {
    for _ in 0..1000 {
        if harness.engine.snapshot_storage(record) == storage {
            return;
        }
        pass(10).await;
    }
    panic!("the snapshot is {}", harness.engine.snapshot_storage(record));
}

async fn create_from(harness: &Harness, snapshot: &SnapshotId) -> Result<SandboxId, EngineError> {
    let (template, record) = harness.engine.snapshot_template("test", snapshot).await?;
    let config = SandboxConfig { isolation: record.isolation, ..config() };
    Ok(harness.engine.create("test", config, template, None).await?.record.id.clone())
}

/// A sandbox whose file says `old`, with a snapshot that is stored.
async fn with_snapshot(harness: &Harness) -> (SandboxId, Arc<SnapshotRecord>) {
    let id = harness.create().await;
    harness.output(&id, "echo old > file").await;
    let snapshot = take_with(harness, &id, false).await;
    stored(harness, &snapshot).await;
    (id, snapshot)
}

#[tokio::test(start_paused = true)]
async fn another_host_creates_from_what_this_one_has_stored() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let (id, first) = with_snapshot(&one).await;
    // Above the first one, which is deleted.
    let above = create_from(&one, &first.id).await.unwrap();
    one.output(&above, "echo newer > other").await;
    let second = take_with(&one, &above, false).await;
    stored(&one, &second).await;
    assert!(one.kinds(&id).await.contains(&"snapshot.stored".to_owned()));
    one.engine.delete_snapshot("test", &first.id).await.unwrap();
    pass(100).await;
    assert!(matches!(
        create_from(&two, &first.id).await,
        Err(EngineError::Snapshot(SnapshotError::NotFound { .. }))
    ));

    let found = two.engine.snapshot("test", &second.id).await.unwrap();
    assert_eq!(
        (&found.metadata, found.bytes, &found.sandbox),
        (&second.metadata, second.bytes, &second.sandbox)
    );
    assert_eq!(two.engine.snapshot_storage(&found), SnapshotStorage::Remote);
    let copy = create_from(&two, &second.id).await.unwrap();
    assert_eq!(two.output(&copy, "cat file").await, "old\n");
    assert_eq!(two.output(&copy, "cat other").await, "newer\n");
    // It stays as long as a sandbox needs it.
    let calls = two.engine.metrics().counts.snapshots_fetched;
    let again = create_from(&two, &second.id).await.unwrap();
    assert_eq!((calls, two.engine.metrics().counts.snapshots_fetched), (1, 1));
    for sandbox in [copy, again] {
        two.engine.sandbox("test", &sandbox).terminate("test").await.unwrap();
    }
    pass(1000).await;
    assert_eq!(two.driver.list_snapshots().await.unwrap(), []);
    // Only its own host deletes it, and other accounts do not see it.
    let refused = two.engine.delete_snapshot("test", &second.id).await.unwrap_err();
    assert!(matches!(refused, EngineError::Snapshot(SnapshotError::OfOtherHost { .. })), "{refused}");
    for harness in [&one, &two] {
        let unseen = harness.engine.snapshot("other", &second.id).await.unwrap_err();
        assert!(matches!(unseen, EngineError::Snapshot(SnapshotError::NotFound { .. })), "{unseen}");
    }
    one.assert_clean().await;
    two.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn processes_and_executions_continue_on_another_host() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let id = one.create_with(SandboxConfig { isolation: Isolation::Gvisor, ..config() }).await.unwrap();
    one.run(&id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
    let request = DetachedRequest {
        command: "cat".to_owned(),
        stdin: Some("one\n".to_owned()),
        open_stdin: true,
        timeout_ms: Some(60_000),
        ..DetachedRequest::default()
    };
    let execution = one.engine.sandbox("test", &id).start_detached(request).await.unwrap().id;
    pass(10).await;
    let snapshot = take_with(&one, &id, true).await;
    stored(&one, &snapshot).await;
    // The processes of a snapshot are removed with the last sandbox, and fetched again.
    for _ in 0..2 {
        let copy = create_from(&two, &snapshot.id).await.unwrap();
        assert_eq!(two.output(&copy, "pgrep -c sleep").await, "1\n");
        let status = two.engine.sandbox("test", &copy).execution(&execution).await.unwrap();
        assert_eq!((status.state, status.output.stdout), (ExecutionState::Running, 4));
        two.engine.sandbox("test", &copy).terminate("test").await.unwrap();
        pass(1000).await;
    }
    assert_eq!(two.engine.metrics().counts.snapshots_fetched, 2);
}

/// A hibernated sandbox with a process and a detached `cat` that has printed `one`.
async fn hibernated(harness: &Harness) -> (SandboxId, ExecutionId) {
    let config = SandboxConfig { isolation: Isolation::Gvisor, ..config() };
    let id = harness.create_with(SandboxConfig { timeout_ms: 10 * HOUR, ..config }).await.unwrap();
    harness.output(&id, "echo kept > file").await;
    harness.run(&id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
    let request = DetachedRequest {
        command: "cat".to_owned(),
        stdin: Some("one\n".to_owned()),
        open_stdin: true,
        ..DetachedRequest::default()
    };
    let execution = harness.engine.sandbox("test", &id).start_detached(request).await.unwrap().id;
    pass(HOUR).await;
    harness.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
    (id, execution)
}

async fn sandboxes_stored(harness: &Harness, count: u64) {
    for _ in 0..1000 {
        if harness.engine.metrics().counts.sandboxes_stored == count {
            return;
        }
        pass(10).await;
    }
    panic!("{} sandboxes are stored", harness.engine.metrics().counts.sandboxes_stored);
}

fn manifests(place: &Place) -> usize {
    place.objects().iter().filter(|path| path.parent().is_some_and(|dir| dir.ends_with("snapshots"))).count()
}

#[tokio::test(start_paused = true)]
async fn a_hibernated_sandbox_wakes_on_another_host_and_its_own_gives_it_up() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let (id, execution) = hibernated(&one).await;
    sandboxes_stored(&one, 1).await;
    let before = one.store.get(&id).await.unwrap().unwrap();
    pass(HOUR).await;
    let refused = two.engine.adopt("other", &id, &rules()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Sandbox(SandboxError::NotFound { .. })), "{refused}");
    let resumed = two.engine.adopt("test", &id, &rules()).await.unwrap();
    assert!(resumed.paused_duration_ms >= HOUR, "{resumed:?}");
    assert_eq!(two.output(&id, "cat file; pgrep -c sleep").await, "kept\n1\n");
    let status = two.engine.sandbox("test", &id).execution(&execution).await.unwrap();
    assert_eq!((status.state, status.output.stdout), (ExecutionState::Running, 4));
    let after = two.engine.sandbox("test", &id).status().await.unwrap().record;
    assert_eq!((after.created_at, after.lifetime_ms), (before.created_at, before.lifetime_ms));
    assert_eq!(after.config, before.config);
    // The hour that it ran on the other host counts.
    assert!(after.lifecycle.running_ms(two.clock.now()) >= HOUR);
    assert_eq!(two.kinds(&id).await[0], "sandbox.resumed");
    // It exists once: nobody else gets it, and its former host gives it up.
    let three = place.host("three").await;
    let refused = three.engine.adopt("test", &id, &rules()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Sandbox(SandboxError::NotFound { .. })), "{refused}");
    let one = place.restart(&one, "one", 0).await;
    pass(MINUTE).await;
    assert_eq!(one.ended(&id).await.1, "adopted");
    assert_eq!(place.objects(), Vec::<PathBuf>::new());
    // From its new host it can move on.
    two.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
    sandboxes_stored(&two, 1).await;
    two.engine.shutdown().await;
    three.engine.adopt("test", &id, &rules()).await.unwrap();
    assert_eq!(three.output(&id, "cat file; pgrep -c sleep").await, "kept\n1\n");
    three.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_a_sandbox_that_wakes_is_removed() {
    let place = Place::new();
    let one = place.host("one").await;
    let (id, _) = hibernated(&one).await;
    sandboxes_stored(&one, 1).await;
    assert_eq!(manifests(&place), 1);
    assert_eq!(one.output(&id, "cat file").await, "kept\n");
    pass(100).await;
    assert_eq!(place.objects(), Vec::<PathBuf>::new());
    // The next hibernation is another one.
    one.output(&id, "echo newer > file").await;
    one.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
    sandboxes_stored(&one, 2).await;
    let one = place.restart(&one, "one", 0).await;
    pass(MINUTE).await;
    assert_eq!((manifests(&place), one.engine.metrics().counts.sandboxes_stored), (1, 0));
    let two = place.host("two").await;
    one.engine.sandbox("test", &id).terminate("test").await.unwrap();
    pass(100).await;
    assert_eq!(place.objects(), Vec::<PathBuf>::new());
    let gone = two.engine.adopt("test", &id, &rules()).await.unwrap_err();
    assert!(matches!(gone, EngineError::Sandbox(SandboxError::NotFound { .. })), "{gone}");
    assert_eq!(one.driver.list_snapshots().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn an_adoption_that_fails_leaves_the_copy_to_the_next_attempt() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let (id, _) = hibernated(&one).await;
    sandboxes_stored(&one, 1).await;
    for fault in [Fault::Before, Fault::After] {
        for op in [DriverOp::Create, DriverOp::Wake, DriverOp::Connect] {
            two.driver.fail_next(op, fault);
            two.engine.adopt("test", &id, &rules()).await.unwrap_err();
            assert_eq!(two.engine.living(), 0, "{op:?}");
        }
    }
    two.fail_next_commit();
    two.engine.adopt("test", &id, &rules()).await.unwrap_err();
    // Its former host is back, twice.
    two.driver.fail_next(DriverOp::Create, Fault::Before);
    let former = {
        let hold = two.driver.hold(DriverOp::Create);
        let engine = two.engine.clone();
        let adopting = tokio::spawn({
            let id = id.clone();
            async move { engine.adopt("test", &id, &rules()).await }
        });
        pass(100).await;
        let former = place.restart(&one, "one", 0).await;
        pass(MINUTE).await;
        assert_eq!(former.ended(&id).await.1, "adopted");
        drop(hold);
        adopting.await.unwrap().unwrap_err();
        former
    };
    place.restart(&former, "one", 0).await;
    pass(MINUTE).await;
    // A third host may try, too, and its result counts.
    let three = place.host("three").await;
    three.engine.adopt("test", &id, &rules()).await.unwrap();
    assert_eq!(three.output(&id, "cat file").await, "kept\n");
    two.engine.adopt("test", &id, &rules()).await.unwrap_err();
    two.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn unused_snapshots_leave_the_host_and_come_back() {
    let place = Place::new();
    let harness = place.host_that_keeps("one", DAY).await;
    let (id, snapshot) = with_snapshot(&harness).await;
    let above = create_from(&harness, &snapshot.id).await.unwrap();
    harness.engine.sandbox("test", &id).terminate("test").await.unwrap();
    pass(3 * DAY).await;
    // A sandbox needs it.
    stored(&harness, &snapshot).await;
    harness.engine.sandbox("test", &above).terminate("test").await.unwrap();
    pass(HOUR).await;
    is_at(&harness, &snapshot, SnapshotStorage::Remote).await;
    assert_eq!(harness.driver.list_snapshots().await.unwrap(), []);
    // A later daemon knows it as well.
    let harness = place.restart(&harness, "one", DAY).await;
    is_at(&harness, &snapshot, SnapshotStorage::Remote).await;
    let copy = create_from(&harness, &snapshot.id).await.unwrap();
    assert_eq!(harness.output(&copy, "cat file").await, "old\n");
    stored(&harness, &snapshot).await;
    // A snapshot above it, of which only the new part is stored.
    let next = take_with(&harness, &copy, false).await;
    stored(&harness, &next).await;
    harness.engine.sandbox("test", &copy).terminate("test").await.unwrap();
    pass(12 * HOUR).await;
    stored(&harness, &snapshot).await;
    pass(DAY).await;
    is_at(&harness, &next, SnapshotStorage::Remote).await;
    harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
    pass(MINUTE).await;
    let copy = create_from(&harness, &next.id).await.unwrap();
    assert_eq!(harness.output(&copy, "cat file").await, "old\n");
    harness.engine.delete_snapshot("test", &next.id).await.unwrap();
    pass(MINUTE).await;
    assert_eq!(place.objects(), Vec::<PathBuf>::new());
    assert_eq!(harness.output(&copy, "cat file").await, "old\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_snapshot_survives_what_the_store_has_lost_as_far_as_possible() {
    let place = Place::new();
    let harness = place.host_that_keeps("one", DAY).await;
    let (id, snapshot) = with_snapshot(&harness).await;
    harness.engine.sandbox("test", &id).terminate("test").await.unwrap();
    pass(2 * DAY).await;
    is_at(&harness, &snapshot, SnapshotStorage::Remote).await;
    // The manifest is known here, too.
    let manifest = place.store().join("snapshots").join(snapshot.id.as_str());
    fs::remove_file(&manifest).unwrap();
    let harness = place.restart(&harness, "one", DAY).await;
    pass(MINUTE).await;
    assert!(manifest.exists());
    // A lost chunk is not, and what is left of the snapshot stays for its repair.
    let chunk = place.objects().into_iter().find(|path| *path != manifest).unwrap();
    let content = fs::read(&chunk).unwrap();
    fs::remove_file(&chunk).unwrap();
    let harness = place.restart(&harness, "one", DAY).await;
    pass(MINUTE).await;
    let failed = create_from(&harness, &snapshot.id).await.unwrap_err();
    assert!(
        matches!(failed, EngineError::Snapshot(SnapshotError::Archive(ArchiveError::Missing { .. }))),
        "{failed}"
    );
    fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    fs::write(&chunk, content).unwrap();
    let copy = create_from(&harness, &snapshot.id).await.unwrap();
    assert_eq!(harness.output(&copy, "cat file").await, "old\n");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_that_the_store_has_lost() {
    let place = Place::new();
    let harness = place.host_that_keeps("one", DAY).await;
    let (id, snapshot) = with_snapshot(&harness).await;
    harness.engine.sandbox("test", &id).terminate("test").await.unwrap();
    fs::remove_dir_all(place.store().join("hosts")).unwrap();
    pass(2 * DAY).await;
    // It was stored again before.
    is_at(&harness, &snapshot, SnapshotStorage::Remote).await;
    assert_eq!(harness.engine.metrics().counts.snapshots_stored, 2);
    let copy = create_from(&harness, &snapshot.id).await.unwrap();
    assert_eq!(harness.output(&copy, "cat file").await, "old\n");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_delays_copies_and_loses_nothing() {
    let place = Place::new();
    let harness = place.host("one").await;
    let (id, first) = with_snapshot(&harness).await;
    // Nothing can be written or listed below a file.
    let away = place.0.path().join("away");
    fs::rename(place.store(), &away).unwrap();
    fs::write(place.store(), "").unwrap();
    let second = take_with(&harness, &id, false).await;
    harness.engine.delete_snapshot("test", &first.id).await.unwrap();
    pass(10 * MINUTE).await;
    assert_eq!(harness.engine.snapshot_storage(&second), SnapshotStorage::Uploading);
    assert!(harness.engine.metrics().counts.snapshot_uploads_failed > 3);
    // The deleted one is gone at once, and snapshots on this host work.
    let gone = harness.engine.snapshot("test", &first.id).await.unwrap_err();
    assert!(matches!(gone, EngineError::Snapshot(SnapshotError::NotFound { .. })), "{gone}");
    let copy = create_from(&harness, &second.id).await.unwrap();
    assert_eq!(harness.output(&copy, "cat file").await, "old\n");
    fs::remove_file(place.store()).unwrap();
    fs::rename(&away, place.store()).unwrap();
    pass(2 * MINUTE).await;
    stored(&harness, &second).await;
    let left = place.objects();
    assert!(!left.iter().any(|path| path.ends_with(first.id.as_str())), "{left:?}");
}

/// The accounts of the uploads, in order.
async fn uploads(harness: &Harness, accounts: &[&'static str]) -> Vec<&'static str> {
    let mut uploads = Vec::new();
    for account in accounts {
        let filter = EventFilter { account: (*account).to_owned(), ..EventFilter::default() };
        let (events, _) = harness.store.events_after(&filter, 0, store::MAX_PAGE).await.unwrap();
        let stored = events.into_iter().filter(|event| event.kind == "snapshot.stored");
        uploads.extend(stored.map(|event| (event.sequence, *account)));
    }
    uploads.sort_unstable();
    uploads.into_iter().map(|(_, account)| account).collect()
}

#[tokio::test(start_paused = true)]
async fn accounts_upload_in_turn_however_much_one_of_them_has() {
    let place = Place::new();
    let harness = place.host("one").await;
    let (many, _) = with_snapshot(&harness).await;
    let away = place.0.path().join("away");
    fs::rename(place.store(), &away).unwrap();
    fs::write(place.store(), "").unwrap();
    for _ in 0..20 {
        take_with(&harness, &many, false).await;
    }
    let created = harness.engine.create("few", config(), template(), None).await.unwrap();
    let few = harness.engine.sandbox("few", &created.record.id);
    let mut last = None;
    for _ in 0..2 {
        last = Some(few.take_snapshot(SnapshotRequest::default(), None).await.unwrap());
    }
    pass(MINUTE).await;
    fs::remove_file(place.store()).unwrap();
    fs::rename(&away, place.store()).unwrap();
    pass(2 * MINUTE).await;
    stored(&harness, &last.unwrap()).await;
    let uploads = uploads(&harness, &["test", "few"]).await;
    assert_eq!(uploads.len(), 23);
    // The first one was stored before.
    let at: Vec<usize> = (0..uploads.len()).filter(|at| uploads[*at] == "few").collect();
    assert!(at == [1, 3] || at == [2, 4], "{uploads:?}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_copy_is_never_used_and_its_repair_is_enough() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let (_, snapshot) = with_snapshot(&one).await;
    let objects = place.objects();
    assert_eq!(objects.len(), 2);
    for object in objects {
        let content = fs::read(&object).unwrap();
        let mut damaged = content.clone();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&object, damaged).unwrap();
        let failed = create_from(&two, &snapshot.id).await.unwrap_err();
        assert!(
            matches!(failed, EngineError::Snapshot(SnapshotError::Archive(ArchiveError::Damaged { .. }))),
            "{failed}"
        );
        fs::remove_file(&object).unwrap();
        let failed = create_from(&two, &snapshot.id).await.unwrap_err();
        let is_missing = matches!(
            failed,
            EngineError::Snapshot(
                SnapshotError::Archive(ArchiveError::Missing { .. }) | SnapshotError::NotFound { .. }
            )
        );
        assert!(is_missing && two.engine.living() == 0, "{failed}");
        fs::write(&object, content).unwrap();
    }
    let copy = create_from(&two, &snapshot.id).await.unwrap();
    assert_eq!(two.output(&copy, "cat file").await, "old\n");
    // What the store has lost is stored again by the next daemon that has it.
    fs::remove_dir_all(place.store().join("hosts")).unwrap();
    let one = place.restart(&one, "one", 0).await;
    pass(MINUTE).await;
    stored(&one, &snapshot).await;
    assert_eq!(place.objects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_the_image_says_so() {
    let place = Place::new();
    let one = place.host("one").await;
    let (_, snapshot) = with_snapshot(&one).await;
    let copies = SnapshotCopies { find_digest: Arc::new(|_| None), ..place.copies("two", 0) };
    let (driver, store) = (FakeDriver::new(), MemoryStore::new());
    let two = Harness::with_copies(driver, store, place.settings("two"), START, copies).await;
    assert_eq!(two.engine.snapshot("test", &snapshot.id).await.unwrap().image, snapshot.image);
    let failed = create_from(&two, &snapshot.id).await.unwrap_err();
    assert!(
        matches!(failed, EngineError::Snapshot(SnapshotError::OtherImage { image, .. }) if image == snapshot.image)
    );
    // The host of the snapshot has its layers, whatever became of the image.
    let copies = SnapshotCopies { find_digest: Arc::new(|_| None), ..place.copies("one", 0) };
    let (driver, store) = (one.driver.clone(), one.store.clone());
    let one = Harness::with_copies(driver, store, place.settings("one"), one.clock.now(), copies).await;
    create_from(&one, &snapshot.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_deleted_after_their_retention() {
    let place = Place::new();
    let retention = EngineSettings { snapshot_retention_ms: 2 * DAY, ..place.settings("one") };
    let (driver, store) = (FakeDriver::new(), MemoryStore::new());
    let harness = Harness::with_copies(driver, store, retention, START, place.copies("one", 0)).await;
    let (id, first) = with_snapshot(&harness).await;
    pass(DAY).await;
    let second = take_with(&harness, &id, false).await;
    pass(DAY + 15 * MINUTE).await;
    let gone = harness.engine.snapshot("test", &first.id).await.unwrap_err();
    assert!(matches!(gone, EngineError::Snapshot(SnapshotError::NotFound { .. })), "{gone}");
    stored(&harness, &second).await;
    assert_eq!(harness.engine.metrics().counts.snapshots_expired, 1);
    assert_eq!(harness.kinds(&id).await.iter().filter(|kind| *kind == "snapshot.deleted").count(), 1);
    assert!(!place.objects().iter().any(|path| path.ends_with(first.id.as_str())));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_no_host_has_authenticated_is_refused() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let (_, first) = with_snapshot(&one).await;
    let other = one.create().await;
    one.output(&other, "echo new > file").await;
    let second = take_with(&one, &other, false).await;
    stored(&one, &second).await;
    let path = |id: &SnapshotId| place.store().join("snapshots").join(id.as_str());
    let [old, new] = [&first.id, &second.id].map(|id| fs::read(path(id)).unwrap());
    let refused = async |reason: Unauthentic| {
        let failed = create_from(&two, &first.id).await.unwrap_err();
        let EngineError::Snapshot(SnapshotError::Archive(ArchiveError::Unauthentic {
            reason: found, ..
        })) = &failed
        else {
            panic!("{failed}")
        };
        assert_eq!((found, two.engine.living()), (&reason, 0));
        assert_eq!(two.driver.list_snapshots().await.unwrap(), []);
    };
    // One snapshot in the place of another.
    fs::write(path(&first.id), &new).unwrap();
    refused(Unauthentic::WrongCode).await;
    // Without a code, as an earlier release has written it.
    let end = old.iter().position(|byte| *byte == b'\n').unwrap();
    let line = String::from_utf8(old[..end].to_vec()).unwrap();
    let hash = line.split(' ').nth(2).unwrap();
    fs::write(path(&first.id), [format!("sandboxd-snapshot 1 {hash}").as_bytes(), &old[end..]].concat())
        .unwrap();
    refused(Unauthentic::NoCode).await;
    fs::write(path(&first.id), &old).unwrap();
    let copy = create_from(&two, &first.id).await.unwrap();
    assert_eq!(two.output(&copy, "cat file").await, "old\n");
    // A host that lacks the secret.
    let copies = place.copies_with('b', "three", 0);
    let (driver, store) = (FakeDriver::new(), MemoryStore::new());
    let three = Harness::with_copies(driver, store, place.settings("three"), START, copies).await;
    let failed = create_from(&three, &first.id).await.unwrap_err().to_string();
    assert!(failed.contains("same file snapshots.secret_file"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn an_adoption_needs_the_isolation_that_image_and_account_have_here() {
    let place = Place::new();
    let (one, two) = (place.host("one").await, place.host("two").await);
    let (id, _) = hibernated(&one).await;
    sandboxes_stored(&one, 1).await;
    // As a host with other rules has stored it.
    let path = place.store().join("snapshots").join(id.as_str());
    let (object, secrets) = (fs::read(&path).unwrap(), secrets('a'));
    let mut manifest = Manifest::from_object(id.as_str(), &object, &secrets).unwrap();
    manifest.record["config"]["isolation"] = "container".into();
    fs::write(&path, manifest.to_object(&secrets).unwrap()).unwrap();
    let strict = IsolationLevels { minimum: Some(Isolation::Gvisor), ..IsolationLevels::default() };
    let image = template().name;
    let of_image = IsolationPolicy { images: [(image, strict)].into(), ..IsolationPolicy::default() };
    let of_account =
        IsolationPolicy { accounts: [("test".to_owned(), strict)].into(), ..IsolationPolicy::default() };
    for policy in [of_image, of_account.clone()] {
        let rules = IsolationRules::new(&Arc::new(policy), "test");
        let refused = two.engine.adopt("test", &id, &rules).await.unwrap_err();
        assert!(
            matches!(
                refused,
                EngineError::Snapshot(SnapshotError::WeakIsolation { minimum: Isolation::Gvisor, .. })
            ),
            "{refused}"
        );
        assert_eq!((two.engine.living(), two.driver.list_snapshots().await.unwrap()), (0, vec![]));
    }
    fs::write(&path, object).unwrap();
    two.engine.adopt("test", &id, &IsolationRules::new(&Arc::new(of_account), "test")).await.unwrap();
    assert_eq!(two.output(&id, "cat file").await, "kept\n");
}
