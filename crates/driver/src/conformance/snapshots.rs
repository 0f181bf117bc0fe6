//! Cases about snapshots.

use api::SnapshotId;
use guest_proto::Exit;

use super::{Host, ok};
use crate::{Presence, SandboxSpec, SnapshotDisk, SnapshotScope};

pub async fn all(host: &Host) {
    a_snapshot_is_a_layer_of_other_sandboxes(host).await;
    a_disk_can_begin_as_a_copy_of_a_snapshot(host).await;
    a_prepared_disk_replaces_the_disk(host).await;
    an_unfinished_snapshot_can_be_removed(host).await;
    a_snapshot_can_arrive_as_files(host).await;
    assert_eq!(ok(host.driver.list_snapshots().await), [], "a case left a snapshot");
}

pub fn snapshot_id(number: u32) -> SnapshotId {
    match format!("snap_conformance{number}").parse() {
        Ok(id) => id,
        Err(error) => panic!("{error}"),
    }
}

async fn snapshot(host: &Host, spec: &SandboxSpec, number: u32) -> SnapshotDisk {
    let mut copy = ok(host.driver.copy_disk(&spec.id, &snapshot_id(number)).await);
    ok(copy.capture(SnapshotScope::Disk).await);
    ok(copy.finish().await)
}

/// A started sandbox above a snapshot of another one.
async fn started_from(host: &Host, below: &SandboxSpec, snapshot: &SnapshotDisk, number: u32) -> SandboxSpec {
    let mut spec = host.spec(number);
    spec.layers = [std::slice::from_ref(&snapshot.layer), &below.layers].concat();
    ok(host.driver.create(&spec).await);
    ok(host.driver.start(&spec, None).await);
    spec
}

async fn run(host: &Host, spec: &SandboxSpec, command: &str) -> (String, Exit) {
    host.link(&spec.id).await.run(command).await
}

async fn a_snapshot_is_a_layer_of_other_sandboxes(host: &Host) {
    let source = host.started(20).await;
    assert_eq!(run(host, &source, "echo first > file").await.1, Exit::Code(0));
    let first = snapshot(host, &source, 1).await;
    assert!(first.bytes > 0);
    assert!(ok(host.driver.list_snapshots().await).contains(&snapshot_id(1)));
    // The source runs on, and what it writes later is not in the snapshot.
    assert_eq!(host.presence(&source.id).await, Presence::Running);
    assert_eq!(run(host, &source, "echo later > file").await.1, Exit::Code(0));
    let one = started_from(host, &source, &first, 21).await;
    let two = started_from(host, &source, &first, 22).await;
    for copy in [&one, &two] {
        assert_eq!(run(host, copy, "cat file").await.0, "first\n");
    }
    assert_eq!(run(host, &one, "echo own > file").await.1, Exit::Code(0));
    assert_eq!(run(host, &two, "cat file").await.0, "first\n");
    // A snapshot above a snapshot.
    let second = snapshot(host, &one, 2).await;
    let three = started_from(host, &one, &second, 23).await;
    assert_eq!(run(host, &three, "cat file").await.0, "own\n");
    // Of a frozen sandbox, which stays frozen, and of one without processes.
    ok(host.driver.pause(&two.id).await);
    let paused = snapshot(host, &two, 3).await;
    assert_eq!(host.presence(&two.id).await, Presence::Paused);
    ok(host.driver.stop(&source.id).await);
    let stopped = snapshot(host, &source, 4).await;
    let of_paused = started_from(host, &two, &paused, 24).await;
    let of_stopped = started_from(host, &source, &stopped, 25).await;
    assert_eq!(run(host, &of_paused, "cat file").await.0, "first\n");
    assert_eq!(run(host, &of_stopped, "cat file").await.0, "later\n");
    for spec in [&source, &one, &two, &three, &of_paused, &of_stopped] {
        host.destroy_and_check(spec).await;
    }
    for number in 1..=4 {
        ok(host.driver.remove_snapshot(&snapshot_id(number)).await);
        ok(host.driver.remove_snapshot(&snapshot_id(number)).await);
    }
}

async fn a_disk_can_begin_as_a_copy_of_a_snapshot(host: &Host) {
    let source = host.started(26).await;
    assert_eq!(run(host, &source, "echo kept > file").await.1, Exit::Code(0));
    let taken = snapshot(host, &source, 5).await;
    let mut copy = host.spec(27);
    copy.disk_from = Some(taken.layer.clone());
    copy.disk_mb *= 2;
    ok(host.driver.create(&copy).await);
    // The copy does not depend on the snapshot.
    ok(host.driver.remove_snapshot(&snapshot_id(5)).await);
    ok(host.driver.start(&copy, None).await);
    assert_eq!(run(host, &copy, "cat file").await.0, "kept\n");
    for spec in [&source, &copy] {
        host.destroy_and_check(spec).await;
    }
}

async fn a_prepared_disk_replaces_the_disk(host: &Host) {
    let mut spec = host.started(31).await;
    assert_eq!(run(host, &spec, "echo before > file").await.1, Exit::Code(0));
    let taken = snapshot(host, &spec, 8).await;
    assert_eq!(run(host, &spec, "echo after > file").await.1, Exit::Code(0));
    spec.layers.insert(0, taken.layer);
    ok(host.driver.prepare_disk(&spec).await);
    // The prepared disk is not used before it is adopted, and only a sandbox without processes can adopt it.
    assert_eq!(run(host, &spec, "cat file").await.0, "after\n");
    assert!(host.driver.adopt_disk(&spec.id).await.is_err());
    ok(host.driver.stop(&spec.id).await);
    ok(host.driver.adopt_disk(&spec.id).await);
    ok(host.driver.adopt_disk(&spec.id).await);
    ok(host.driver.start(&spec, None).await);
    assert_eq!(run(host, &spec, "cat file").await.0, "before\n");
    host.destroy_and_check(&spec).await;
    ok(host.driver.remove_snapshot(&snapshot_id(8)).await);
}

async fn an_unfinished_snapshot_can_be_removed(host: &Host) {
    let source = host.started(32).await;
    let copy = ok(host.driver.copy_disk(&source.id, &snapshot_id(9)).await);
    drop(copy);
    ok(host.driver.remove_snapshot(&snapshot_id(9)).await);
    // The source may disappear during a copy.
    let mut copy = ok(host.driver.copy_disk(&source.id, &snapshot_id(10)).await);
    host.destroy_and_check(&source).await;
    assert!(copy.capture(SnapshotScope::Disk).await.is_err());
    drop(copy);
    ok(host.driver.remove_snapshot(&snapshot_id(10)).await);
}

/// Copies the files of a snapshot under another id, as if they came from another host.
pub async fn transfer(host: &Host, from: &SnapshotId, to: &SnapshotId, scope: SnapshotScope) {
    let files = ok(host.driver.snapshot_files(from, scope).await);
    assert!(!files.is_empty());
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    // An earlier transfer was interrupted.
    ok(host.driver.receive_snapshot(to, names.clone()).await);
    let paths = ok(host.driver.receive_snapshot(to, names).await);
    assert_eq!(ok(host.driver.snapshot_files(to, scope).await), []);
    for (file, path) in files.iter().zip(paths) {
        if let Err(error) = std::fs::copy(&file.path, path) {
            panic!("{error}");
        }
    }
    ok(host.driver.complete_snapshot(to).await);
    assert_eq!(ok(host.driver.snapshot_files(to, scope).await).len(), files.len());
}

async fn a_snapshot_can_arrive_as_files(host: &Host) {
    let source = host.started(33).await;
    assert_eq!(run(host, &source, "echo carried > file").await.1, Exit::Code(0));
    snapshot(host, &source, 11).await;
    let (from, to) = (snapshot_id(11), snapshot_id(12));
    assert_eq!(ok(host.driver.snapshot_files(&from, SnapshotScope::Processes).await), []);
    an_interrupted_transfer_is_never_completed(host, &to).await;
    transfer(host, &from, &to, SnapshotScope::Disk).await;
    assert!(ok(host.driver.snapshot_bytes(&from).await) > 0);
    assert!(ok(host.driver.snapshot_bytes(&to).await) > 0);
    ok(host.driver.remove_snapshot(&from).await);
    assert_eq!(ok(host.driver.snapshot_files(&from, SnapshotScope::Disk).await), []);
    assert_eq!(ok(host.driver.snapshot_bytes(&from).await), 0);
    let arrived = SnapshotDisk { layer: host.driver.snapshot_layer(&to), bytes: 0 };
    let copy = started_from(host, &source, &arrived, 34).await;
    assert_eq!(run(host, &copy, "cat file").await.0, "carried\n");
    for spec in [&source, &copy] {
        host.destroy_and_check(spec).await;
    }
    ok(host.driver.remove_snapshot(&to).await);
}

/// A part of a disk was written, and then something else arrives for the same snapshot.
async fn an_interrupted_transfer_is_never_completed(host: &Host, to: &SnapshotId) {
    let paths = ok(host.driver.receive_snapshot(to, vec!["disk".to_owned()]).await);
    if let Err(error) = std::fs::write(&paths[0], "a part") {
        panic!("{error}");
    }
    ok(host.driver.receive_snapshot(to, Vec::new()).await);
    ok(host.driver.complete_snapshot(to).await);
    assert_eq!(ok(host.driver.snapshot_files(to, SnapshotScope::Disk).await), []);
}
