//! The host's disk is full: pauses that cannot be recorded are not repeated all the time, and disks that have become read-only are
//! reported and healed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{Isolation, SandboxConfig, SandboxId, SandboxState};
use driver::fake::DriverOp;
use engine::{EngineError, EngineSettings, HostSample, HostWatch, Processes, SandboxError};
use rules::SnapshotRequest;
use store::StoreError;

use crate::harness::{Harness, MINUTE, SECOND, config, pass, settings, with_pool};
use crate::warnings::Warnings;

const MB: u64 = 1 << 20;
const RESERVE_MB: u64 = 1_000;
const START_PROCESS: &str = "sleep 1000 >/dev/null 2>&1 &";

/// An engine on a host whose free disk the test sets, in megabytes.
async fn on_disk(settings: EngineSettings) -> (Harness, Arc<AtomicU64>) {
    let free_mb = Arc::new(AtomicU64::new(50_000));
    let seen = Arc::clone(&free_mb);
    let sample = move || {
        let disk_free_bytes = seen.load(Ordering::Relaxed) * MB;
        Ok(HostSample { disk_free_bytes, unwritten_bytes: 0, memory_available_bytes: u64::MAX })
    };
    let host = Some(HostWatch::new(sample, RESERVE_MB, 0));
    (Harness::new(EngineSettings { host, ..settings }).await, free_mb)
}

async fn take_snapshot(harness: &Harness, id: &SandboxId) -> Result<(), EngineError> {
    harness.engine.sandbox("test", id).take_snapshot(SnapshotRequest::default(), None).await.map(drop)
}

async fn hibernate(harness: &Harness, id: &SandboxId) -> Result<(), EngineError> {
    harness.engine.sandbox("test", id).pause_with(Processes::Stored).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_do_not_write_continue_on_a_full_disk() {
    let (harness, free_mb) = on_disk(settings()).await;
    let id = harness.create().await;
    // Whatever fills it, it must not stop the sandboxes of all accounts.
    for free in (0..27).map(|step| 2_900 - step * 100) {
        free_mb.store(free, Ordering::Relaxed);
        pass(100).await;
    }
    free_mb.store(0, Ordering::Relaxed);
    pass(MINUTE).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_full_disk_cannot_record_is_repeated_after_seconds_and_logged_once() {
    let warnings = Warnings::default();
    let _recorded = warnings.start();
    let (harness, free_mb) = on_disk(settings()).await;
    let id = harness.create().await;
    pass(20 * SECOND).await;
    for _ in 0..2 {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        harness.store.fail_next_commit(StoreError::failed("commit", full));
    }
    harness.driver.set_disk_bytes(100 * MB);
    free_mb.store(0, Ordering::Relaxed);
    for attempts in 1..=2 {
        pass(4 * SECOND).await;
        assert_eq!(harness.driver.calls(DriverOp::Pause), attempts);
        assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    }
    pass(4 * SECOND).await;
    assert_eq!(harness.driver.calls(DriverOp::Pause), 3);
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    let failures = warnings.texts().into_iter().filter(|text| text.contains("could not pause")).count();
    assert_eq!(failures, 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_has_become_read_only_is_reported_once_and_healed_by_a_resume() {
    let (harness, _) = on_disk(settings()).await;
    let id = harness.create().await;
    harness.run(&id, START_PROCESS).await.unwrap();
    harness.driver.make_disk_read_only(&id);
    pass(20 * SECOND).await;
    let errors = async || {
        let events = harness.life(&id).await;
        events.into_iter().filter(|event| event.kind == "sandbox.error").collect::<Vec<_>>()
    };
    assert_eq!(errors().await.len(), 1);
    assert!(errors().await[0].data["message"].as_str().unwrap().contains("pause and resume"));
    let refused = take_snapshot(&harness, &id).await.unwrap_err();
    assert!(matches!(refused, EngineError::Sandbox(SandboxError::ReadOnlyDisk)), "{refused:?}");
    let sandbox = harness.engine.sandbox("test", &id);
    sandbox.pause().await.unwrap();
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    let resumed = harness.life(&id).await.pop().unwrap();
    assert!(resumed.data["note"].as_str().unwrap().contains("read-only"), "{}", resumed.data);
    assert_eq!(harness.run(&id, "pgrep -c sleep").await.unwrap().stdout, "0\n");
    take_snapshot(&harness, &id).await.unwrap();
    pass(20 * SECOND).await;
    assert_eq!(errors().await.len(), 1);
}

/// Without the host watcher, which looks every few seconds.
#[tokio::test(start_paused = true)]
async fn operations_of_a_sandbox_know_at_once_whether_its_disk_is_read_only() {
    let harness = Harness::new(settings()).await;
    let gvisor = SandboxConfig { isolation: Isolation::Gvisor, ..config() };
    let id = harness.create_with(gvisor).await.unwrap();
    harness.run(&id, START_PROCESS).await.unwrap();
    harness.driver.make_disk_read_only(&id);
    for state in [SandboxState::Running, SandboxState::Paused] {
        for refused in [take_snapshot(&harness, &id).await, hibernate(&harness, &id).await] {
            assert!(
                matches!(refused, Err(EngineError::Sandbox(SandboxError::ReadOnlyDisk))),
                "{state:?}: {refused:?}"
            );
        }
        assert_eq!(harness.driver.calls(DriverOp::Hibernate), 0);
        if state == SandboxState::Running {
            harness.engine.sandbox("test", &id).pause().await.unwrap();
        }
        assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    }
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(harness.run(&id, "pgrep -c sleep").await.unwrap().stdout, "0\n");
    take_snapshot(&harness, &id).await.unwrap();
    hibernate(&harness, &id).await.unwrap();
    assert_eq!(harness.driver.calls(DriverOp::Hibernate), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_for_read_only_disks_is_a_warning_and_refuses_nothing() {
    let warnings = Warnings::default();
    let _recorded = warnings.start();
    let (harness, _) = on_disk(settings()).await;
    let id = harness.create().await;
    harness.driver.fail_looks_for_read_only_disks();
    let looks = || warnings.texts().into_iter().filter(|text| text.contains("could not look")).count();
    pass(MINUTE).await;
    assert_eq!(looks(), 1);
    take_snapshot(&harness, &id).await.unwrap();
    assert_eq!(looks(), 2);
}

#[tokio::test(start_paused = true)]
async fn warm_sandboxes_with_a_read_only_disk_are_discarded() {
    let (harness, _) = on_disk(with_pool(2)).await;
    pass(SECOND).await;
    let warm = || harness.driver.traces().into_keys().collect::<Vec<_>>();
    let first = warm();
    assert_eq!(first.len(), 2);
    harness.driver.make_disk_read_only(&first[0]);
    pass(20 * SECOND).await;
    let second = warm();
    assert_eq!((second.len(), harness.engine.pool()[0].ready), (2, 2));
    assert!(!second.contains(&first[0]) && second.contains(&first[1]));
    harness.engine.shutdown().await;
}
