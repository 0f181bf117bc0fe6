//! Cases about stored processes.

use guest_proto::Exit;

use super::{Host, invalid_state, ok};
use crate::{Presence, SandboxSpec};

pub async fn all(host: &Host) {
    processes_continue_after_they_were_paged_out(host).await;
    if !host.driver.can_store_processes(host.isolation) {
        return it_is_refused_where_it_does_not_work(host).await;
    }
    stored_processes_continue(host).await;
    only_processes_can_be_stored(host).await;
    stored_processes_can_be_given_up(host).await;
    stored_processes_end_with_their_sandbox(host).await;
}

async fn processes_continue_after_they_were_paged_out(host: &Host) {
    let spec = with_sleep(host, 30).await;
    invalid_state(host.driver.page_out(&spec.id).await.map(drop), Presence::Running);
    ok(host.driver.pause(&spec.id).await);
    for _ in 0..2 {
        // How much becomes free depends on the host.
        ok(host.driver.page_out(&spec.id).await);
        assert_eq!(host.presence(&spec.id).await, Presence::Paused);
    }
    ok(host.driver.resume(&spec.id).await);
    assert_eq!(host.link(&spec.id).await.run("pgrep -c sleep").await.0, "1\n");
    host.destroy_and_check(&spec).await;
}

async fn it_is_refused_where_it_does_not_work(host: &Host) {
    let spec = host.started(31).await;
    assert!(host.driver.hibernate(&spec.id).await.is_err());
    assert_eq!(host.presence(&spec.id).await, Presence::Running);
    ok(host.driver.discard_memory(&spec.id).await);
    assert_eq!(host.link(&spec.id).await.run("echo fine").await.0, "fine\n");
    host.destroy_and_check(&spec).await;
}

/// A started sandbox with a process that is named sleep.
pub async fn with_sleep(host: &Host, number: u32) -> SandboxSpec {
    let spec = host.started(number).await;
    let mut link = host.link(&spec.id).await;
    link.run("sleep 1000 >/dev/null 2>&1 &").await;
    while link.run("pgrep -c sleep").await.1 != Exit::Code(0) {}
    spec
}

async fn stored_processes_continue(host: &Host) {
    let spec = with_sleep(host, 32).await;
    for is_paused in [false, true] {
        if is_paused {
            ok(host.driver.pause(&spec.id).await);
        }
        assert!(ok(host.driver.hibernate(&spec.id).await) > 0);
        assert_eq!(host.presence(&spec.id).await, Presence::Hibernated);
        assert_eq!(ok(host.driver.list().await), std::slice::from_ref(&spec.id));
        // As after a crash of the daemon.
        ok(host.driver.stop(&spec.id).await);
        assert_eq!(host.presence(&spec.id).await, Presence::Hibernated);
        assert!(host.driver.connect(&spec.id).await.is_err());
        ok(host.driver.wake(&spec, None).await);
        assert_eq!(host.presence(&spec.id).await, Presence::Running);
        assert_eq!(host.link(&spec.id).await.run("pgrep -c sleep").await.0, "1\n");
    }
    // What was stored is used up: after an end of the processes nothing old continues.
    ok(host.driver.stop(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    host.destroy_and_check(&spec).await;
}

async fn only_processes_can_be_stored(host: &Host) {
    let spec = host.spec(33);
    ok(host.driver.create(&spec).await);
    invalid_state(host.driver.hibernate(&spec.id).await.map(drop), Presence::Stopped);
    assert!(host.driver.wake(&spec, None).await.is_err());
    ok(host.driver.start(&spec, None).await);
    ok(host.driver.hibernate(&spec.id).await);
    invalid_state(host.driver.hibernate(&spec.id).await.map(drop), Presence::Hibernated);
    invalid_state(host.driver.pause(&spec.id).await, Presence::Hibernated);
    invalid_state(host.driver.resume(&spec.id).await, Presence::Hibernated);
    host.destroy_and_check(&spec).await;
}

async fn stored_processes_can_be_given_up(host: &Host) {
    let spec = with_sleep(host, 34).await;
    ok(host.driver.hibernate(&spec.id).await);
    for _ in 0..2 {
        ok(host.driver.discard_memory(&spec.id).await);
        assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    }
    ok(host.driver.stop(&spec.id).await);
    ok(host.driver.start(&spec, None).await);
    assert_eq!(host.link(&spec.id).await.run("pgrep -c sleep").await.0, "0\n");
    host.destroy_and_check(&spec).await;
}

/// A sandbox with the id of an earlier one has none of its stored processes.
async fn stored_processes_end_with_their_sandbox(host: &Host) {
    let spec = with_sleep(host, 35).await;
    ok(host.driver.hibernate(&spec.id).await);
    host.destroy_and_check(&spec).await;
    let spec = host.started(35).await;
    assert_eq!(host.link(&spec.id).await.run("pgrep -c sleep").await.0, "0\n");
    host.destroy_and_check(&spec).await;
}
