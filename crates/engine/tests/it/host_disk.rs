//! The host's disk fills up from outside: sandboxes that do not write are paused in time, and disks that have become read-only are
//! reported and healed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::SandboxState;
use engine::{EngineError, EngineSettings, HostSample, HostWatch};
use rules::SnapshotRequest;

use crate::harness::{Harness, MINUTE, SECOND, pass, settings};

const MB: u64 = 1 << 20;
const RESERVE_MB: u64 = 1_000;

/// An engine on a host whose free disk the test sets, in megabytes.
async fn on_disk() -> (Harness, Arc<AtomicU64>) {
    let free_mb = Arc::new(AtomicU64::new(50_000));
    let seen = Arc::clone(&free_mb);
    let sample = move || {
        let disk_free_bytes = seen.load(Ordering::Relaxed) * MB;
        Ok(HostSample { disk_free_bytes, unwritten_bytes: 0, memory_available_bytes: u64::MAX })
    };
    let host = Some(HostWatch::new(sample, RESERVE_MB, 0));
    (Harness::new(EngineSettings { host, ..settings() }).await, free_mb)
}

#[tokio::test(start_paused = true)]
async fn idle_sandboxes_are_paused_before_others_have_filled_the_disk() {
    let (harness, free_mb) = on_disk().await;
    let id = harness.create().await;
    // Another program writes 1 GB per second and does not stop at the reserve.
    for free in (0..27).map(|step| 2_900 - step * 100) {
        free_mb.store(free, Ordering::Relaxed);
        pass(100).await;
    }
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    let paused = harness.life(&id).await.pop().unwrap();
    assert_eq!((paused.kind.as_str(), &paused.data["reason"]), ("sandbox.paused", &"disk_pressure".into()));
    free_mb.store(50_000, Ordering::Relaxed);
    pass(MINUTE).await;
    assert_eq!(harness.output(&id, "echo 1").await, "1\n");
    // Below the reserve and not falling: it goes on.
    free_mb.store(900, Ordering::Relaxed);
    pass(MINUTE).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_has_become_read_only_is_reported_once_and_healed_by_a_resume() {
    let (harness, _) = on_disk().await;
    let id = harness.create().await;
    harness.run(&id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
    harness.driver.make_disk_read_only(&id);
    pass(20 * SECOND).await;
    let errors = async || {
        let events = harness.life(&id).await;
        events.into_iter().filter(|event| event.kind == "sandbox.error").collect::<Vec<_>>()
    };
    assert_eq!(errors().await.len(), 1);
    assert!(errors().await[0].data["message"].as_str().unwrap().contains("pause and resume"));
    let sandbox = harness.engine.sandbox("test", &id);
    let refused = sandbox.take_snapshot(SnapshotRequest::default(), None).await.unwrap_err();
    assert!(matches!(refused, EngineError::ReadOnlyDisk), "{refused:?}");
    let sandbox = harness.engine.sandbox("test", &id);
    sandbox.pause().await.unwrap();
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    let resumed = harness.life(&id).await.pop().unwrap();
    assert!(resumed.data["note"].as_str().unwrap().contains("read-only"), "{}", resumed.data);
    assert_eq!(harness.run(&id, "pgrep -c sleep").await.unwrap().stdout, "0\n");
    harness.engine.sandbox("test", &id).take_snapshot(SnapshotRequest::default(), None).await.unwrap();
    assert_eq!(errors().await.len(), 1);
}
