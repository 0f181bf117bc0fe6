use std::path::Path;
use std::time::{Duration, Instant};

use api::TemplateState;
use async_trait::async_trait;
use driver::fake::FakeDriver;
use engine::{Clock, EngineSettings};
use rules::Capacity;
use store::{EventFilter, EventPage, MemoryStore, TemplateRecord};

use super::*;
use crate::build::bases::Base;
use crate::context::tests::bombs;
use crate::template::tests::request;
use crate::template::{DEFAULT_TAG, StartCommand};

/// Longer than everything that a test waits for, also on a busy machine.
const LONG: Duration = Duration::from_secs(90);

/// A base that every build finds, or that none does.
enum TestBases {
    Found,
    Never,
}

#[async_trait]
impl Bases for TestBases {
    async fn find(&self, _: &str, name: &str) -> Result<Base, BuildError> {
        match self {
            Self::Found => Ok(Base {
                image: Image::of_image(name.to_owned(), "sha256:1".to_owned(), vec![], vec![]),
                settings: ImageSettings::default(),
                identity: "sha256:1".to_owned(),
                isolation: Isolation::Container,
                disk_mb: 1024,
                stand_in: (name == "stand-in").then(|| "it is a stand-in".to_owned()),
            }),
            Self::Never => std::future::pending().await,
        }
    }
}

struct Fixture {
    store: MemoryStore,
    driver: FakeDriver,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { store: MemoryStore::new(), driver: FakeDriver::new(), dir: tempfile::tempdir().unwrap() }
    }

    /// The builder and the engine of another daemon with the same records and files.
    async fn open(&self) -> Builder {
        self.open_with_logs(0).await
    }

    async fn open_with_logs(&self, log_bytes: u64) -> Builder {
        let parts = engine::Parts {
            driver: Arc::new(self.driver.clone()),
            store: Arc::new(self.store.clone()),
            network: Arc::new(net::NoNetwork),
            refusals: None,
            find_image: Arc::new(|_: &str| None),
            clock: Clock::runtime(TimeMs(1_700_000_000_000)),
            copies: None,
        };
        let (engine, _) = Engine::open(parts, engine_settings(self.dir.path())).await.unwrap();
        let settings = BuilderSettings {
            dir: self.dir.path().join("builds"),
            concurrent: 4,
            max_context_bytes: 64 << 20,
            retention_ms: 0,
            log_bytes,
        };
        Builder::open(engine, Arc::new(self.store.clone()), settings).await.unwrap()
    }

    async fn record(&self) -> TemplateRecord {
        self.store.templates().await.unwrap().remove(0)
    }

    /// How often the build was begun by daemons that did not live through it.
    async fn starts(&self) -> Vec<u32> {
        let mut starts: Vec<_> =
            self.store.begun_work().await.unwrap().into_iter().map(|work| work.starts).collect();
        starts.sort_unstable();
        starts
    }

    async fn wait_for_start(&self, number: u32) {
        self.wait_for_starts(&[number]).await;
    }

    async fn wait_for_starts(&self, numbers: &[u32]) {
        let begin = Instant::now();
        while self.starts().await != numbers {
            assert!(begin.elapsed() < LONG, "{:?} starts", self.starts().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn events(&self) -> Vec<(String, String)> {
        let filter = EventFilter { account: "one".to_owned(), ..EventFilter::default() };
        let listed =
            self.store.list_events(&filter, EventPage { limit: 100, ..EventPage::default() }).await.unwrap();
        listed.items.into_iter().map(|event| (event.kind, event.data["message"].to_string())).collect()
    }
}

fn engine_settings(dir: &Path) -> EngineSettings {
    EngineSettings {
        capacity: Capacity { cpu: 8, memory_mb: 8192, disk_mb: 81_920 },
        quotas: Default::default(),
        host: None,
        pool: Default::default(),
        concurrent_executions: 3,
        detached_executions: 3,
        execution_queue: 0,
        paused_retention_ms: 0,
        hibernate_after_ms: 0,
        terminated_retention_ms: 0,
        terminated_bytes: 0,
        snapshot_retention_ms: 0,
        slots: 4,
        prices: Default::default(),
        detached: engine::DetachedSettings::in_dir(dir.join("executions")),
        sample_interval: None,
    }
}

fn bases(bases: TestBases) -> Arc<dyn Bases> {
    Arc::new(bases)
}

#[tokio::test]
async fn a_build_that_was_interrupted_twice_fails_with_the_reason() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    // Builders that are not shut down stand for daemons that were killed.
    let first = fixture.open().await;
    let id = first.create("one", request("FROM a\n", None), &never, None).await.unwrap().id.clone();
    fixture.wait_for_start(1).await;
    fixture.open().await.start(&never).await;
    fixture.wait_for_start(2).await;
    let last = fixture.open().await;
    last.start(&never).await;
    wait_for_end(&last, &id).await;
    let template = last.find("one", &id).unwrap();
    assert_eq!(template.state, TemplateState::Failed);
    let message = template.content.error.clone().unwrap().message;
    assert!(message.contains("ended unexpectedly 2 times"), "{message}");
    let events = fixture.events().await;
    assert!(
        matches!(&events[..], [(kind, text)] if kind == EventKind::TemplateFailed.as_str() && text.contains("unexpectedly")),
        "{events:?}"
    );
    assert_eq!(last.counts().failed, 1);
    // For the next daemon it is over.
    fixture.open().await.start(&never).await;
    assert_eq!((fixture.record().await.state, fixture.starts().await), (TemplateState::Failed, vec![]));
}

#[tokio::test]
async fn a_build_beside_the_one_that_ends_the_daemon_is_not_given_up() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let first = fixture.open().await;
    first.create("one", request("FROM a\n", None), &never, None).await.unwrap();
    first.create("two", request("FROM a\n", None), &never, None).await.unwrap();
    fixture.wait_for_starts(&[1, 1]).await;
    // One at a time is begun again, and then given up, before the other one.
    fixture.open().await.start(&never).await;
    fixture.wait_for_starts(&[1, 2]).await;
    let last = fixture.open().await;
    last.start(&never).await;
    // The count of the one that is over is forgotten at the next start.
    fixture.wait_for_starts(&[2, 2]).await;
    let states = || {
        let mut all: Vec<_> = last.shared.registry.all().iter().map(|entry| entry.template.state).collect();
        all.sort_by_key(|state| state.is_final());
        all
    };
    let begin = Instant::now();
    while states() != [TemplateState::Building, TemplateState::Failed] {
        assert!(begin.elapsed() < LONG, "{:?}", states());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_build_of_a_release_that_counted_in_the_record_is_begun_again() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    fixture.open().await.create("one", request("FROM a\n", None), &never, None).await.unwrap();
    fixture.wait_for_start(1).await;
    let mut record = fixture.record().await;
    let mut content: serde_json::Value = serde_json::from_str(&record.content).unwrap();
    content["attempts"] = 2.into();
    record.content = content.to_string();
    let work = fixture.store.begun_work().await.unwrap().remove(0);
    let batch = Batch::new().put_template(record).delete_begun_work(&work.kind, &work.subject);
    fixture.store.commit(batch).await.unwrap();
    fixture.open().await.start(&never).await;
    fixture.wait_for_start(1).await;
}

async fn wait_for_end(builder: &Builder, id: &TemplateId) {
    let entry = builder.shared.registry.find("one", id).unwrap();
    tokio::time::timeout(LONG, entry.ended.cancelled()).await.unwrap();
}

#[tokio::test]
async fn an_orderly_end_of_the_daemon_is_no_interruption() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let mut builder = fixture.open().await;
    builder.create("one", request("FROM a\n", None), &never, None).await.unwrap();
    for _ in 0..4 {
        fixture.wait_for_start(1).await;
        builder.shutdown().await;
        assert_eq!((fixture.starts().await, fixture.record().await.state), (vec![], TemplateState::Building));
        builder = fixture.open().await;
        builder.start(&never).await;
    }
}

#[tokio::test]
async fn accounts_do_not_wait_for_each_other() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let builder = fixture.open().await;
    let held = builder.shared.creating.acquire("one").await;
    let own = builder.create("one", request("FROM a\n", None), &never, None);
    assert!(tokio::time::timeout(Duration::from_millis(100), own).await.is_err());
    let other = builder.create("two", request("FROM a\n", None), &never, None);
    assert_eq!(tokio::time::timeout(LONG, other).await.unwrap().unwrap().version, 1);
    let collected = tokio::time::timeout(LONG, builder.collect("two")).await;
    assert!(collected.is_ok());
    // A create whose client is gone takes place all the same.
    drop(held);
    let begin = Instant::now();
    while builder.list("one").is_empty() {
        assert!(begin.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A build whose planning takes as long as planning may.
async fn long_planning(builder: &Builder, timeout_ms: u64) -> SharedTemplate {
    let context = bombs::files(2600, |at| format!("{}{at}", "a".repeat(3900)));
    let incoming = builder.incoming("one").unwrap().write(context.into()).await.unwrap();
    let context = incoming.finish().await.unwrap();
    let dockerfile = format!("FROM a\n{}", format!("COPY *{}b /x/\n", "a".repeat(1900)).repeat(100));
    let mut new = request(&dockerfile, Some(context));
    new.config.timeout_ms = timeout_ms;
    builder.create("one", new, &bases(TestBases::Found), None).await.unwrap()
}

#[tokio::test]
async fn planning_ends_with_the_timeout_and_with_a_cancel() {
    let fixture = Fixture::new();
    let builder = fixture.open().await;
    let late = long_planning(&builder, 500).await;
    let begin = Instant::now();
    wait_for_end(&builder, &late.id).await;
    let failed = builder.find("one", &late.id).unwrap();
    let message = failed.content.error.clone().unwrap().message;
    assert!(message.contains("longer than 500 ms"), "{message} after {:?}", begin.elapsed());
    let cancelled = long_planning(&builder, 3_600_000).await;
    is_planning(&builder, &cancelled).await;
    let cancelled = builder.cancel("one", &cancelled.id).await.unwrap();
    assert_eq!(cancelled.state, TemplateState::Cancelled);
    let shutting_down = long_planning(&builder, 3_600_000).await;
    is_planning(&builder, &shutting_down).await;
    tokio::time::timeout(LONG, builder.shutdown()).await.unwrap();
}

async fn is_planning(builder: &Builder, template: &Template) {
    let begin = Instant::now();
    while builder.find("one", &template.id).unwrap().state != TemplateState::Building {
        assert!(begin.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It takes a second.
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn context_of(builder: &Builder, account: &str, bytes: usize) -> StoredContext {
    let archive = bombs::files(1, |_| "file".to_owned());
    let mut incoming = builder.incoming(account).unwrap().write(archive.into()).await.unwrap();
    // What follows the end of an archive belongs to its file.
    for _ in 0..bytes >> 20 {
        incoming = incoming.write(vec![0; 1 << 20].into()).await.unwrap();
    }
    incoming.finish().await.unwrap()
}

#[tokio::test]
async fn contexts_of_queued_builds_have_a_limit_together() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let builder = fixture.open().await;
    let with = |context: &StoredContext| request("FROM a\n", Some(context.clone()));
    let large = context_of(&builder, "one", 60 << 20).await;
    let mut last = None;
    for _ in 0..4 {
        last = Some(builder.create("one", with(&large), &never, None).await.unwrap().id.clone());
    }
    let refused = builder.create("one", with(&large), &never, None).await.unwrap_err();
    assert!(
        matches!(refused, BuilderError::QueuedContexts { allowed_bytes, .. } if allowed_bytes == 256 << 20),
        "{refused}"
    );
    // Others may, and so may a build without a context.
    let others = context_of(&builder, "two", 1 << 20).await;
    builder.create("two", with(&others), &never, None).await.unwrap();
    builder.create("one", request("FROM a\n", None), &never, None).await.unwrap();
    // The next daemon knows the sizes.
    builder.shutdown().await;
    let next = fixture.open().await;
    // Its start removes contexts that wait for a request.
    next.start(&never).await;
    let large = context_of(&next, "one", 60 << 20).await;
    let refused = next.create("one", with(&large), &never, None).await.unwrap_err();
    assert!(matches!(refused, BuilderError::QueuedContexts { .. }), "{refused}");
    next.cancel("one", &last.unwrap()).await.unwrap();
    next.create("one", with(&large), &never, None).await.unwrap();
}

#[tokio::test]
async fn the_oldest_logs_of_an_account_make_room_and_those_of_others_stay() {
    const LOG: usize = 100_000;
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let builder = fixture.open_with_logs(2 * LOG as u64 + 50_000).await;
    let finished = async |account: &str| {
        let id = builder.create(account, request("FROM a\n", None), &never, None).await.unwrap().id.clone();
        let entry = builder.shared.registry.find(account, &id).unwrap();
        entry.log.output(api::BuildEvent::Stdout, &"x".repeat(LOG));
        builder.cancel(account, &id).await.unwrap();
        id
    };
    let bytes =
        |account: &str, id: &TemplateId| builder.shared.registry.find(account, id).unwrap().log.file_bytes();
    let other = finished("two").await;
    let mut own = Vec::new();
    for _ in 0..4 {
        own.push(finished("one").await);
        // Ends are ordered by their milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A log is trimmed just after its build has ended.
    let begin = Instant::now();
    while bytes("one", &own[1]) > 0 {
        assert!(begin.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let left: Vec<bool> = own.iter().map(|id| bytes("one", id) > 0).collect();
    assert_eq!(left, [false, false, true, true]);
    assert!(bytes("two", &other) > LOG as u64);
    assert_eq!(builder.list("one").len(), 4);
    // The next daemon finds what is left.
    builder.shutdown().await;
    let next = fixture.open_with_logs(LOG as u64 + 50_000).await;
    next.start(&never).await;
    let log = |id: &TemplateId| next.shared.registry.find("one", id).unwrap().log.file_bytes();
    let begin = Instant::now();
    while log(&own[2]) > 0 {
        assert!(begin.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(log(&own[3]) > 0 && next.log("one", &own[0], 0).unwrap().is_some());
}

#[tokio::test]
async fn a_build_replaces_those_of_its_name_and_tag_and_an_identical_one_is_refused() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let builder = fixture.open().await;
    let create = async |dockerfile: &str, tags: &[&str]| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let new = NewTemplate { tags, others: OtherBuilds::Replaced, ..request(dockerfile, None) };
        builder.create("one", new, &never, None).await
    };
    let first = create("FROM a\n", &[]).await.unwrap();
    assert_eq!(first.content.tags, [DEFAULT_TAG]);
    let of_another_tag = create("FROM a\n", &["v1"]).await.unwrap();
    let refused = create("FROM a\n", &["default"]).await.unwrap_err();
    assert!(matches!(&refused, BuilderError::InProgress { id } if *id == first.id), "{refused}");
    let second = create("FROM a\nRUN x\n", &["default", "v2"]).await.unwrap();
    wait_for_end(&builder, &first.id).await;
    let replaced = builder.find("one", &first.id).unwrap();
    let message = replaced.content.error.clone().unwrap().message;
    assert!(replaced.state == TemplateState::Cancelled && message.contains("newer"), "{message}");
    // What was cancelled may be built again.
    let third = create("FROM a\n", &[]).await.unwrap();
    wait_for_end(&builder, &second.id).await;
    // A build that does not ask for it replaces none.
    builder.create("one", request("FROM a\n", None), &never, None).await.unwrap();
    for id in [&of_another_tag.id, &third.id] {
        assert!(!builder.find("one", id).unwrap().state.is_final());
    }
}

#[tokio::test]
async fn a_build_whose_client_has_gone_away_is_cancelled() {
    let (fixture, never) = (Fixture::new(), bases(TestBases::Never));
    let builder = fixture.open().await;
    let create = async || builder.create("one", request("FROM a\n", None), &never, None).await.unwrap();
    let (followed, other) = (create().await, create().await);
    fixture.wait_for_starts(&[1, 1]).await;
    builder.polled("one", &other.id).unwrap();
    tokio::time::pause();
    for _ in 0..10 {
        builder.polled("one", &followed.id).unwrap();
        tokio::time::advance(Duration::from_millis(200)).await;
    }
    tokio::time::advance(Duration::from_secs(40)).await;
    tokio::time::resume();
    wait_for_end(&builder, &followed.id).await;
    let cancelled = builder.find("one", &followed.id).unwrap();
    let message = cancelled.content.error.clone().unwrap().message;
    assert!(cancelled.state == TemplateState::Cancelled && message.contains("no longer waits"), "{message}");
    assert_eq!(builder.find("one", &other.id).unwrap().state, TemplateState::Building);
    assert!(builder.polled("two", &followed.id).is_err());
}

#[tokio::test]
async fn builds_that_wait_for_their_start_commands_do_not_delay_others() {
    let (fixture, found) = (Fixture::new(), bases(TestBases::Found));
    let builder = fixture.open().await;
    let never_ready = StartCommand {
        command: "sleep 1000".to_owned(),
        ready: Some("exit 1".to_owned()),
        timeout_ms: 3_600_000,
        settles_ms: None,
    };
    let create = async |start: Option<StartCommand>| {
        let new = NewTemplate { start, ..request("FROM a\nRUN true\n", None) };
        builder.create("one", new, &found, None).await.unwrap().id.clone()
    };
    // Half of the four builds at a time.
    let waiting = [create(Some(never_ready.clone())).await, create(Some(never_ready)).await];
    let other = create(None).await;
    wait_for_end(&builder, &other).await;
    let built = builder.find("one", &other).unwrap();
    assert_eq!(built.state, TemplateState::Ready, "{:?}", built.content.error);
    for id in &waiting {
        assert_eq!(builder.find("one", id).unwrap().state, TemplateState::Building);
        assert_eq!(builder.cancel("one", id).await.unwrap().state, TemplateState::Cancelled);
    }
}

#[tokio::test]
async fn a_build_that_does_not_become_ready_says_why() {
    let (fixture, found) = (Fixture::new(), bases(TestBases::Found));
    let builder = fixture.open().await;
    let start = StartCommand {
        command: "sleep 1000".to_owned(),
        ready: Some("echo sh: 1: ss: not found >&2; exit 1".to_owned()),
        timeout_ms: 3000,
        settles_ms: None,
    };
    let new = NewTemplate { start: Some(start), ..request("FROM a\nRUN true\n", None) };
    let id = builder.create("one", new, &found, None).await.unwrap().id.clone();
    wait_for_end(&builder, &id).await;
    let message = builder.find("one", &id).unwrap().content.error.clone().unwrap().message;
    let reason = "the ready command exited with code 1: sh: 1: ss: not found; the image has no program 'ss'";
    assert_eq!(message, format!("the start command was not ready after 3000 ms: {reason}"));
    let mut log = builder.log("one", &id, 0).unwrap().unwrap();
    let events = log.next_now().unwrap().unwrap();
    let notes: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
    assert!(notes.contains(&format!("not ready after 0 s: {reason}").as_str()), "{notes:?}");
}

#[tokio::test]
async fn the_log_says_which_instructions_have_no_effect() {
    let (fixture, found) = (Fixture::new(), bases(TestBases::Found));
    let builder = fixture.open().await;
    let notes_of = async |default_user: bool| {
        let mut new = request("FROM a\nUSER app\nRUN true\nCMD [\"serve\"]\n", None);
        new.config.default_user = default_user;
        let id = builder.create("one", new, &found, None).await.unwrap().id.clone();
        wait_for_end(&builder, &id).await;
        let mut log = builder.log("one", &id, 0).unwrap().unwrap();
        let notes = log.next_now().unwrap().unwrap().into_iter();
        let notes = notes.map(|event| event.data).filter(|text| text.contains("no effect"));
        notes.map(|text| text.split(" has ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["line 2: USER", "line 4: CMD"];
    assert_eq!(notes_of(false).await, all);
    assert_eq!(notes_of(true).await, all[1..], "commands of E2B sandboxes run as the user");
}

#[tokio::test]
async fn the_log_says_that_a_base_is_a_stand_in() {
    let fixture = Fixture::new();
    let builder = fixture.open().await;
    for (base, noted) in [("stand-in", true), ("a", false)] {
        let template = built(&builder, "one", request(&format!("\nFROM {base}\nRUN true\n"), None)).await;
        let mut log = builder.log("one", &template.id, 0).unwrap().unwrap();
        let events = log.next_now().unwrap().unwrap();
        let is_noted = events.iter().any(|event| event.data.starts_with("line 2: it is a stand-in"));
        assert_eq!(is_noted, noted, "{events:?}");
    }
}

/// Builds a Dockerfile to its end.
async fn built(builder: &Builder, account: &str, new: NewTemplate) -> SharedTemplate {
    let id = builder.create(account, new, &bases(TestBases::Found), None).await.unwrap().id.clone();
    let entry = builder.shared.registry.find(account, &id).unwrap();
    tokio::time::timeout(LONG, entry.ended.cancelled()).await.unwrap();
    builder.find(account, &id).unwrap()
}

#[tokio::test]
async fn steps_run_once_for_each_account_unless_the_request_says_otherwise() {
    let fixture = Fixture::new();
    let builder = fixture.open().await;
    let dockerfile = "FROM a\nRUN true\nRUN echo done\n";
    let steps = async |account: &str, dockerfile: &str, no_cache: bool| {
        let new = NewTemplate { no_cache, ..request(dockerfile, None) };
        let template = built(&builder, account, new).await;
        assert_eq!(template.state, TemplateState::Ready, "{:?}", template.content.error);
        let steps = template.content.steps;
        assert_eq!((steps.total, steps.done, template.snapshots.len()), (2, 2, 2));
        steps.cached
    };
    assert_eq!(steps("one", dockerfile, false).await, 0);
    assert_eq!(steps("one", dockerfile, false).await, 2);
    assert_eq!(steps("one", &dockerfile.replace("done", "other"), false).await, 1);
    assert_eq!(steps("one", dockerfile, true).await, 0);
    assert_eq!(steps("two", dockerfile, false).await, 0);
    let counts = builder.counts();
    assert_eq!((counts.ready, counts.steps_cached, counts.steps_run), (5, 3, 7));
}

#[tokio::test]
async fn a_command_that_fails_ends_its_build_with_its_line() {
    let fixture = Fixture::new();
    let builder = fixture.open().await;
    let failed =
        built(&builder, "one", request("FROM a\nRUN echo seen\nRUN exit 3\nRUN echo not\n", None)).await;
    assert_eq!(failed.state, TemplateState::Failed);
    let error = failed.content.error.clone().unwrap();
    assert_eq!((error.message.as_str(), error.line), ("line 3: the command exited with code 3", Some(3)));
    let mut log = builder.log("one", &failed.id, 0).unwrap().unwrap();
    let events = log.next_now().unwrap().unwrap();
    let output = events.iter().filter(|event| event.kind == api::BuildEvent::Stdout);
    assert_eq!(output.map(|event| event.data.as_str()).collect::<Vec<_>>(), ["seen"]);
    assert_eq!(events.last().unwrap().data, error.message);
    assert!(builder.named("one", "name").is_none());
    // The step before the failure need not run again.
    let repaired = built(&builder, "one", request("FROM a\nRUN echo seen\nRUN exit 0\n", None)).await;
    assert_eq!((repaired.version, repaired.state), (2, TemplateState::Ready));
}

#[tokio::test]
async fn a_tag_moves_to_the_version_that_gets_it() {
    let fixture = Fixture::new();
    let builder = fixture.open().await;
    let first = built(&builder, "one", request("FROM a\nRUN true\n", None)).await;
    let second = built(&builder, "one", request("FROM a\nRUN echo 2\n", None)).await;
    let version = |builder: &Builder, image: &str| builder.named("one", image).map(|named| named.version);
    let stable = ["stable".to_owned()];
    builder.add_tags(&first, &stable).await.unwrap();
    assert_eq!(version(&builder, "name:stable"), Some(1));
    let tagged = builder.add_tags(&second, &stable).await.unwrap();
    assert_eq!(tagged.content.tags, [DEFAULT_TAG, "stable"]);
    assert_eq!((version(&builder, "name:stable"), version(&builder, "name")), (Some(2), Some(2)));
    // The next daemon knows it, too.
    builder.shutdown().await;
    let next = fixture.open().await;
    assert_eq!(version(&next, "name:stable"), Some(2));
    assert_eq!(next.remove_tags("one", "name", &stable).await.unwrap(), 1);
    assert_eq!(next.remove_tags("one", "name", &stable).await.unwrap(), 0);
    assert_eq!(version(&next, "name:stable"), None);
    assert!(
        next.add_tags(&Template { account: "two".to_owned(), ..Template::clone(&first) }, &stable)
            .await
            .is_err()
    );
}
