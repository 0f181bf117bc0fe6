//! Cases about snapshots with processes.

use super::hibernation::with_sleep;
use super::snapshots::snapshot_id;
use super::{Host, ok};
use crate::{DriverError, Presence, SandboxSpec, SnapshotDisk, SnapshotScope};

pub async fn all(host: &Host) {
    if !host.driver.can_store_processes(host.isolation) {
        return they_are_refused_where_they_do_not_work(host).await;
    }
    copies_continue_beside_their_source(host).await;
    stored_processes_can_be_copied(host).await;
    a_prepared_disk_can_have_processes(host).await;
    only_processes_that_run_or_are_stored_can_be_copied(host).await;
    assert_eq!(ok(host.driver.list_snapshots().await), [], "a case left a snapshot");
}

async fn they_are_refused_where_they_do_not_work(host: &Host) {
    let spec = host.started(40).await;
    assert!(snapshot(host, &spec, 40).await.is_err());
    assert_eq!(host.presence(&spec.id).await, Presence::Running);
    assert_eq!(host.link(&spec.id).await.run("echo fine").await.0, "fine\n");
    host.destroy_and_check(&spec).await;
    ok(host.driver.remove_snapshot(&snapshot_id(40)).await);
}

async fn snapshot(host: &Host, spec: &SandboxSpec, number: u32) -> Result<SnapshotDisk, DriverError> {
    let mut copy = host.driver.copy_disk(&spec.id, &snapshot_id(number)).await?;
    copy.capture(SnapshotScope::Processes).await?;
    copy.finish().await
}

/// A sandbox with the processes of a snapshot of another one, which stay stored until it is woken.
async fn created(
    host: &Host,
    below: &SandboxSpec,
    taken: &SnapshotDisk,
    number: u32,
    of: u32,
) -> SandboxSpec {
    let mut spec = host.spec(number);
    spec.layers = [std::slice::from_ref(&taken.layer), &below.layers].concat();
    spec.processes_from = Some(snapshot_id(of));
    ok(host.driver.create(&spec).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Hibernated);
    spec
}

async fn woken(host: &Host, spec: &SandboxSpec) {
    ok(host.driver.wake(spec, None).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Running);
    ok(host.driver.discard_memory(&spec.id).await);
}

async fn sleeps(host: &Host, spec: &SandboxSpec) -> String {
    host.link(&spec.id).await.run("pgrep -c sleep").await.0
}

async fn copies_continue_beside_their_source(host: &Host) {
    let source = with_sleep(host, 41).await;
    host.link(&source.id).await.run("echo first > file").await;
    let taken = ok(snapshot(host, &source, 41).await);
    assert!(taken.bytes > 0);
    // The source goes on, and what happens there later is not in the snapshot.
    assert_eq!(host.presence(&source.id).await, Presence::Running);
    assert_eq!(host.link(&source.id).await.run("cat file").await.0, "first\n");
    host.link(&source.id).await.run("echo later > file; sleep 1000 >/dev/null 2>&1 &").await;
    let one = created(host, &source, &taken, 42, 41).await;
    let two = created(host, &source, &taken, 43, 41).await;
    // They do not depend on the processes of the snapshot.
    woken(host, &one).await;
    woken(host, &two).await;
    for spec in [&one, &two] {
        assert_eq!(sleeps(host, spec).await, "1\n");
        assert_eq!(host.link(&spec.id).await.run("cat file").await.0, "first\n");
    }
    host.link(&one.id).await.run("sleep 1000 >/dev/null 2>&1 &").await;
    assert_eq!(sleeps(host, &two).await, "1\n");
    // Nothing is left to wake after they have ended.
    ok(host.driver.stop(&two.id).await);
    assert_eq!(host.presence(&two.id).await, Presence::Stopped);
    // The same snapshot again, without its processes.
    let mut cold = host.spec(44);
    cold.layers.clone_from(&one.layers);
    ok(host.driver.create(&cold).await);
    ok(host.driver.start(&cold, None).await);
    assert_eq!(sleeps(host, &cold).await, "0\n");
    for spec in [&source, &one, &two, &cold] {
        host.destroy_and_check(spec).await;
    }
    ok(host.driver.remove_snapshot(&snapshot_id(41)).await);
}

async fn stored_processes_can_be_copied(host: &Host) {
    let source = with_sleep(host, 45).await;
    ok(host.driver.hibernate(&source.id).await);
    ok(host.driver.stop(&source.id).await);
    let taken = ok(snapshot(host, &source, 45).await);
    assert_eq!(host.presence(&source.id).await, Presence::Hibernated);
    let copy = created(host, &source, &taken, 46, 45).await;
    for spec in [&copy, &source] {
        woken(host, spec).await;
        assert_eq!(sleeps(host, spec).await, "1\n");
    }
    for spec in [&source, &copy] {
        host.destroy_and_check(spec).await;
    }
    ok(host.driver.remove_snapshot(&snapshot_id(45)).await);
}

async fn a_prepared_disk_can_have_processes(host: &Host) {
    let mut spec = with_sleep(host, 47).await;
    host.link(&spec.id).await.run("echo before > file").await;
    let taken = ok(snapshot(host, &spec, 47).await);
    host.link(&spec.id).await.run("echo after > file; sleep 1000 >/dev/null 2>&1 &").await;
    spec.layers.insert(0, taken.layer);
    spec.processes_from = Some(snapshot_id(47));
    ok(host.driver.prepare_disk(&spec).await);
    // Those of the old disk are given up, also if they are stored.
    ok(host.driver.hibernate(&spec.id).await);
    ok(host.driver.stop(&spec.id).await);
    for _ in 0..2 {
        ok(host.driver.adopt_disk(&spec.id).await);
        assert_eq!(host.presence(&spec.id).await, Presence::Hibernated);
    }
    woken(host, &spec).await;
    assert_eq!(sleeps(host, &spec).await, "1\n");
    assert_eq!(host.link(&spec.id).await.run("cat file").await.0, "before\n");
    // A prepared disk without processes leaves none.
    spec.processes_from = None;
    ok(host.driver.prepare_disk(&spec).await);
    ok(host.driver.stop(&spec.id).await);
    ok(host.driver.adopt_disk(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    host.destroy_and_check(&spec).await;
    ok(host.driver.remove_snapshot(&snapshot_id(47)).await);
}

async fn only_processes_that_run_or_are_stored_can_be_copied(host: &Host) {
    let spec = host.started(48).await;
    ok(host.driver.pause(&spec.id).await);
    assert!(snapshot(host, &spec, 48).await.is_err());
    assert_eq!(host.presence(&spec.id).await, Presence::Paused);
    ok(host.driver.stop(&spec.id).await);
    assert!(snapshot(host, &spec, 48).await.is_err());
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    host.destroy_and_check(&spec).await;
    ok(host.driver.remove_snapshot(&snapshot_id(48)).await);
}
