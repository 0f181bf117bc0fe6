//! Work that ends the daemon is begun a stated number of times and then given up; the daemon works otherwise, and work that a daemon lives
//! through is not counted.

use std::path::Path;
use std::sync::Arc;

use api::{Isolation, SandboxConfig, SandboxId, SandboxState, SnapshotStorage};
use archive::{Archive, Location, S3Options, Secrets, WithoutCode};
use driver::fake::{DriverOp, FakeDriver};
use engine::{
    DaemonError, DetachedSettings, EngineError, EngineSettings, HibernationError, Processes, SnapshotCopies,
};
use rules::{MAX_INTERRUPTIONS, RepeatableWork, SnapshotRequest, TimeMs};
use store::{BegunWork, MemoryStore, Store};

use crate::harness::{Harness, MINUTE, START, config, pass, runtime, settings, template};
use crate::network::fake::FakeNetwork;

/// A host on which one daemon follows the other.
struct Host {
    driver: FakeDriver,
    store: MemoryStore,
    network: FakeNetwork,
    settings: EngineSettings,
    copies: Option<Box<dyn Fn() -> SnapshotCopies>>,
    daemons: u64,
}

impl Host {
    fn new(settings: EngineSettings) -> Self {
        let driver = FakeDriver::new();
        let network = FakeNetwork::with_driver(&driver);
        Self { driver, store: MemoryStore::new(), network, settings, copies: None, daemons: 0 }
    }

    /// Runs a daemon that is killed when `work` is done with it.
    fn daemon<T>(&mut self, work: impl AsyncFnOnce(&Harness) -> T) -> T {
        self.daemons += 1;
        let start = TimeMs(START.0 + self.daemons * 100 * MINUTE);
        runtime().block_on(async {
            let (driver, store) = (self.driver.clone(), self.store.clone());
            let harness = match &self.copies {
                None => {
                    let network = self.network.clone();
                    Harness::over_all(driver, store, network, self.settings.clone(), start).await
                }
                Some(copies) => {
                    Harness::with_copies(driver, store, self.settings.clone(), start, copies()).await
                }
            };
            work(&harness).await
        })
    }

    /// Runs a daemon that is killed when it has called an operation, which never returns.
    fn daemon_that_dies_in(&mut self, op: DriverOp) -> usize {
        let calls = self.driver.calls(op);
        let _held = self.driver.hold(op);
        let (driver, store, network) = (self.driver.clone(), self.store.clone(), self.network.clone());
        self.daemons += 1;
        let start = TimeMs(START.0 + self.daemons * 100 * MINUTE);
        let living = Harness::over_all(driver, store, network, self.settings.clone(), start);
        runtime().block_on(async {
            let living = async {
                let _harness = living.await;
                pass(90 * MINUTE).await;
            };
            let _ = tokio::time::timeout(std::time::Duration::from_secs(60 * 60), living).await;
        });
        self.driver.calls(op) - calls
    }

    fn begun(&self) -> Vec<BegunWork> {
        runtime().block_on(async { self.store.begun_work().await.unwrap() })
    }
}

fn gvisor() -> SandboxConfig {
    SandboxConfig { isolation: Isolation::Gvisor, ..config() }
}

async fn errors(harness: &Harness, id: &SandboxId) -> Vec<String> {
    let events = harness.events(id).await.into_iter().filter(|event| event.kind == "sandbox.error");
    events.map(|event| event.data["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_hibernation_that_ends_the_daemon_is_given_up() {
    let mut host = Host::new(EngineSettings { hibernate_after_ms: MINUTE, ..settings() });
    let (id, other) = host.daemon(async |harness| {
        let id = harness.create_with(gvisor()).await.unwrap();
        let other = harness.create().await;
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        (id, other)
    });
    for _ in 0..MAX_INTERRUPTIONS {
        assert_eq!(host.daemon_that_dies_in(DriverOp::Hibernate), 1);
    }
    for _ in 0..2 {
        assert_eq!(host.daemon_that_dies_in(DriverOp::Hibernate), 0, "it is begun again");
    }
    host.daemon(async |harness| {
        let message =
            format!("the service ended 3 times during the hibernation of {id}, and does not try it again");
        assert_eq!(errors(harness, &id).await, [message]);
        let refused = harness.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::Hibernation(HibernationError::NotStorable { .. })),
            "{refused}"
        );
        assert_eq!(harness.engine.metrics().counts.work_given_up, 1);
        assert_eq!(harness.output(&id, "echo runs").await, "runs\n");
        assert_eq!(harness.output(&other, "echo runs").await, "runs\n");
        harness.assert_clean().await;
    });
    // The next start forgets what is gone.
    host.daemon(async |_| ());
    assert_eq!(host.begun(), []);
}

#[test]
fn a_wake_that_ends_the_daemon_is_given_up_until_a_cold_start() {
    let mut host = Host::new(settings());
    let id = host.daemon(async |harness| {
        let id = harness.create_with(gvisor()).await.unwrap();
        harness.output(&id, "echo kept > file").await;
        harness.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
        id
    });
    for _ in 0..MAX_INTERRUPTIONS {
        let _held = host.driver.hold(DriverOp::Wake);
        host.daemon(async |harness| {
            let sandbox = harness.engine.sandbox("test", &id);
            let resumed = tokio::time::timeout(std::time::Duration::from_secs(1), sandbox.resume()).await;
            assert!(resumed.is_err());
        });
    }
    host.daemon(async |harness| {
        let sandbox = harness.engine.sandbox("test", &id);
        let refused = sandbox.resume().await.unwrap_err();
        assert!(refused.to_string().contains("the service ended 3 times during the wake"), "{refused}");
        assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
        sandbox.resume_with(Processes::Ended).await.unwrap();
        assert_eq!(harness.output(&id, "cat file").await, "kept\n");
        // It may be stored and continued again.
        sandbox.pause_with(Processes::Stored).await.unwrap();
        sandbox.resume().await.unwrap();
        harness.assert_clean().await;
    });
    assert_eq!(host.begun(), []);
}

#[test]
fn a_sandbox_that_no_daemon_survives_is_stopped_and_the_others_are_recovered() {
    let mut host = Host::new(settings());
    let ids = host.daemon(async |harness| {
        let ids = [harness.create().await, harness.create().await, harness.create().await];
        harness.output(&ids[1], "echo kept > file").await;
        ids
    });
    // The first daemon ends while all three are adopted, the others when the second one is.
    let attempts: Vec<usize> = (0..5).map(|_| host.daemon_that_dies_adopting(&ids[1])).collect();
    assert_eq!(attempts, [1, 1, 1, 0, 0]);
    host.daemon(async |harness| {
        let states =
            [harness.state(&ids[0]).await, harness.state(&ids[1]).await, harness.state(&ids[2]).await];
        let (running, paused) = (Some(SandboxState::Running), Some(SandboxState::Paused));
        assert_eq!(states, [running, paused, running]);
        assert_eq!(errors(harness, &ids[0]).await, Vec::<String>::new());
        assert_eq!(
            errors(harness, &ids[1]).await[0],
            format!("the service ended 3 times during the recovery of {}, and does not try it again", ids[1])
        );
        // It starts again on request, and is recovered as any other then.
        assert_eq!(harness.output(&ids[1], "cat file").await, "kept\n");
    });
    assert_eq!(host.begun(), []);
    host.daemon(async |harness| {
        assert_eq!(harness.recovered.running, 3);
        harness.assert_clean().await;
    });
}

impl Host {
    /// Runs a daemon that is killed when it inspects a sandbox. Returns how often it did.
    fn daemon_that_dies_adopting(&mut self, id: &SandboxId) -> usize {
        let inspected = |driver: &FakeDriver| {
            driver.log().iter().filter(|call| **call == (DriverOp::Inspect, id.clone())).count()
        };
        let before = inspected(&self.driver);
        let held = self.driver.hold_for(DriverOp::Inspect, id);
        let (driver, store, network) = (self.driver.clone(), self.store.clone(), self.network.clone());
        let opening = Harness::over_all(driver, store, network, self.settings.clone(), START.after(MINUTE));
        runtime().block_on(async {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(60), opening).await;
        });
        drop(held);
        inspected(&self.driver) - before
    }
}

#[test]
fn what_cannot_be_removed_stays_and_the_daemon_works() {
    let mut host = Host::new(settings());
    let id = host.daemon(async |harness| {
        let id = harness.create().await;
        let record = harness.store.get(&id).await.unwrap().unwrap();
        harness.store.commit(store::Batch::new().delete(record.id)).await.unwrap();
        id
    });
    let attempts: Vec<usize> = (0..5).map(|_| host.daemon_that_dies_in(DriverOp::Destroy)).collect();
    assert_eq!(attempts, [1, 1, 1, 0, 0]);
    host.daemon(async |harness| {
        assert!(harness.driver.traces().contains_key(&id));
        assert_eq!(harness.engine.metrics().counts.work_given_up, 1);
        let other = harness.create().await;
        assert_eq!(harness.output(&other, "echo works").await, "works\n");
    });
}

fn copies(dir: &Path) -> SnapshotCopies {
    let location = Location::Directory(dir.join("store"));
    let secrets = Secrets::parse(&"0".repeat(64), WithoutCode::Refuse).unwrap();
    let archive = Archive::open(&location, &S3Options::default(), &dir.join("stored"), secrets).unwrap();
    let find_digest = |digest: &str| Some(template()).filter(|template| template.digest == digest);
    SnapshotCopies { archive, local_for_ms: 0, find_digest: Arc::new(find_digest) }
}

#[test]
fn an_upload_that_ends_the_daemon_is_given_up_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let detached = DetachedSettings::in_dir(dir.path().join("executions"));
    let mut host = Host::new(EngineSettings { detached, ..settings() });
    let (id, other) = host.daemon(async |harness| {
        let id = harness.create_with(gvisor()).await.unwrap();
        harness.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
        (id, harness.create().await)
    });
    let path = dir.path().to_owned();
    host.copies = Some(Box::new(move || copies(&path)));
    let held = host.driver.hold(DriverOp::CopyDisk);
    // A daemon that stops in order has lived through what it has begun.
    host.daemon(async |harness| {
        pass(MINUTE).await;
        assert_eq!(harness.store.begun_work().await.unwrap().len(), 1);
        harness.engine.shutdown().await;
        harness.store.open_again();
        assert_eq!(harness.store.begun_work().await.unwrap(), []);
    });
    for _ in 0..MAX_INTERRUPTIONS {
        host.daemon(async |_| pass(MINUTE).await);
    }
    drop(held);
    host.daemon(async |harness| {
        let request = SnapshotRequest::default();
        let taken = harness.engine.sandbox("test", &other).take_snapshot(request, None).await.unwrap();
        pass(MINUTE).await;
        assert_eq!(harness.engine.snapshot_storage(&taken), SnapshotStorage::Stored);
        let counts = harness.engine.metrics().counts;
        assert_eq!((counts.sandboxes_stored, counts.work_given_up), (0, 1));
        let message =
            format!("the service ended 3 times during the upload of {id}, and does not try it again");
        assert_eq!(errors(harness, &id).await, [message]);
        harness.engine.sandbox("test", &id).resume().await.unwrap();
    });
}

#[test]
fn a_completed_step_begins_the_count_of_a_build_again() {
    let kind = RepeatableWork::TemplateBuild;
    let mut host = Host::new(settings());
    let begin = async |harness: &Harness| harness.engine.begin_work(kind, "tpl_1").await;
    // The second daemon ends during a later step than the first one.
    host.daemon(async |harness| drop(begin(harness).await.unwrap()));
    host.daemon(async |harness| begin(harness).await.unwrap().progressed().await);
    host.daemon(async |harness| drop(begin(harness).await.unwrap()));
    host.daemon(async |harness| {
        let given_up = begin(harness).await.err().unwrap();
        assert!(
            matches!(given_up, EngineError::Daemon(DaemonError::GaveUp(ref it)) if it.interruptions == 2),
            "{given_up}"
        );
        harness.engine.begin_work(kind, "tpl_2").await.unwrap().end().await;
        harness.engine.forget_work_unless(kind, |id| id == "tpl_1").await;
        assert_eq!(harness.store.begun_work().await.unwrap().len(), 1);
        harness.engine.forget_work_unless(kind, |_| false).await;
        begin(harness).await.unwrap().end().await;
    });
    assert_eq!(host.begun(), []);
}

#[test]
fn work_that_a_daemon_lives_through_is_not_counted() {
    let mut host = Host::new(EngineSettings { hibernate_after_ms: MINUTE, ..settings() });
    let id = host.daemon(async |harness| {
        let id = harness.create_with(gvisor()).await.unwrap();
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        id
    });
    host.daemon_that_dies_in(DriverOp::Hibernate);
    assert_eq!(host.begun().len(), 1);
    host.daemon(async |harness| {
        pass(5 * MINUTE).await;
        assert_eq!(harness.store.begun_work().await.unwrap(), []);
        harness.engine.sandbox("test", &id).resume().await.unwrap();
    });
}
