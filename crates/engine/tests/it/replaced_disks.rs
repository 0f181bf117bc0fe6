//! The recovery after a restore of the data directory: sandboxes still have processes, which use the disks of before.

use api::{Isolation, SandboxConfig, SandboxId, SandboxState};
use driver::Presence;
use engine::Processes;
use store::{SandboxRecord, Store};

use crate::harness::{Harness, config, settings, settle, two_daemons};

/// The message of the last event of the sandbox's lifecycle, which must be an error.
async fn last_error(harness: &Harness, id: &SandboxId) -> String {
    let event = harness.life(id).await.pop().unwrap();
    assert_eq!(event.kind, "sandbox.error");
    event.data["message"].as_str().unwrap().to_owned()
}

async fn three_sandboxes(harness: &Harness) -> [SandboxId; 3] {
    let ids = [harness.create().await, harness.create().await, harness.create().await];
    for id in &ids {
        harness.output(id, "echo old > file").await;
    }
    harness.engine.sandbox("test", &ids[1]).pause().await.unwrap();
    harness.driver.replace_disk(&ids[0]);
    harness.driver.replace_disk(&ids[1]);
    ids
}

#[test]
fn processes_on_a_replaced_disk_are_ended() {
    let second = async |harness: &Harness, [running, paused, untouched]: [SandboxId; 3]| {
        settle().await;
        assert_eq!((harness.recovered.running, harness.recovered.stopped), (1, 2));
        for id in [&running, &paused] {
            assert_eq!(harness.state(id).await, Some(SandboxState::Paused));
            assert_eq!(harness.driver.traces()[id], Presence::Stopped);
            assert!(last_error(harness, id).await.contains("its disk was replaced"));
            // New processes use the new disk.
            assert_eq!(harness.run(id, "cat file").await.unwrap().exit_code, Some(1));
            let resumed = harness.life(id).await.pop().unwrap();
            assert!(resumed.data["note"].as_str().unwrap().contains("its disk was replaced"));
            harness.output(id, "echo new > file").await;
        }
        assert_eq!(harness.output(&untouched, "cat file").await, "old\n");
        harness.assert_clean().await;
    };
    two_daemons((settings(), three_sandboxes), (settings(), second));
}

/// The database is restored to a time at which a sandbox existed that was removed since.
#[test]
fn a_sandbox_without_a_disk_says_so() {
    let first = async |harness: &Harness| {
        let ids = [harness.create().await, harness.create().await];
        harness.engine.sandbox("test", &ids[1]).pause_with(Processes::Ended).await.unwrap();
        for id in &ids {
            harness.driver.lose_disk(id);
        }
        ids
    };
    let second = async |harness: &Harness, ids: [SandboxId; 2]| {
        settle().await;
        assert_eq!((harness.recovered.running, harness.recovered.stopped), (0, 2));
        for id in &ids {
            assert_eq!(harness.state(id).await, Some(SandboxState::Paused));
            let message = last_error(harness, id).await;
            assert!(message.contains("its disk is missing") && !message.contains("unchanged"), "{message}");
            harness.output(id, "echo new > file").await;
            let resumed = harness.life(id).await.pop().unwrap();
            assert!(resumed.data["note"].as_str().unwrap().contains("starts with an empty disk"));
        }
        harness.assert_clean().await;
    };
    two_daemons((settings(), first), (settings(), second));
}

/// The restored record is of a time when the sandbox was hibernated, and its processes were continued since.
#[test]
fn a_restored_hibernated_sandbox_stays_hibernated() {
    let first = async |harness: &Harness| {
        let stored = SandboxConfig { isolation: Isolation::Gvisor, ..config() };
        let id = harness.create_with(stored).await.unwrap();
        harness.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
        let restored = harness.store.get(&id).await.unwrap().unwrap();
        harness.engine.sandbox("test", &id).resume().await.unwrap();
        let revision = harness.store.get(&id).await.unwrap().unwrap().revision + 1;
        harness.store.put(SandboxRecord { revision, ..restored }).await.unwrap();
        harness.driver.replace_disk(&id);
        id
    };
    let second = async |harness: &Harness, id: SandboxId| {
        settle().await;
        assert_eq!((harness.recovered.running, harness.recovered.hibernated), (0, 1));
        assert_eq!(harness.driver.traces()[&id], Presence::Stopped);
        assert!(harness.store.get(&id).await.unwrap().unwrap().lifecycle.hibernated_at().is_some());
        assert!(last_error(harness, &id).await.contains("its disk was replaced"));
        harness.assert_clean().await;
    };
    two_daemons((settings(), first), (settings(), second));
}
