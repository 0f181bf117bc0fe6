//! The conformance suite of isolation backends. The tests of a driver call [`all`] with an empty host.
//!
//! Each case uses sandboxes of its own, removes them at its end, and panics if the driver violates the contract.
//! After a panic the caller removes the remaining sandboxes.

mod hibernation;
mod link;
mod processes;
mod snapshots;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use api::{Isolation, SandboxId};
use guest_proto::Exit;

use crate::{Driver, DriverError, Limits, MemoryKills, NetworkHook, Presence, SandboxSpec};
use link::Link;

/// The driver under test, one of its backends, and the layers of an image with bash and procps.
#[derive(Clone)]
pub struct Host {
    pub driver: Arc<dyn Driver>,
    pub isolation: Isolation,
    pub layers: Vec<PathBuf>,
}

impl Host {
    fn spec(&self, number: u32) -> SandboxSpec {
        SandboxSpec {
            id: id(number),
            slot: number,
            layers: self.layers.clone(),
            disk_from: None,
            processes_from: None,
            limits: Limits { cpu: 1, memory_mb: 512 },
            disk_mb: 512,
            isolation: self.isolation,
        }
    }

    async fn started(&self, number: u32) -> SandboxSpec {
        let spec = self.spec(number);
        ok(self.driver.create(&spec).await);
        ok(self.driver.start(&spec, None).await);
        spec
    }

    async fn presence(&self, id: &SandboxId) -> Presence {
        ok(self.driver.inspect(id).await)
    }

    async fn link(&self, id: &SandboxId) -> Link {
        Link::open(ok(self.driver.connect(id).await)).await
    }

    async fn destroy_and_check(&self, spec: &SandboxSpec) {
        ok(self.driver.destroy(&spec.id).await);
        assert_eq!(self.presence(&spec.id).await, Presence::Absent);
        assert!(!ok(self.driver.list().await).contains(&spec.id));
    }
}

/// Runs all cases in sequence.
pub async fn all(host: Host) {
    a_sandbox_goes_through_its_states(&host).await;
    operations_in_the_wrong_state_fail_without_effect(&host).await;
    a_disk_outlives_its_processes(&host).await;
    processes_outlive_a_pause(&host).await;
    a_new_link_knows_the_commands_of_the_old_one(&host).await;
    every_state_can_be_destroyed(&host).await;
    calls_can_be_repeated(&host).await;
    limits_change_while_a_sandbox_runs(&host).await;
    sandboxes_are_isolated_from_each_other(&host).await;
    snapshots::all(&host).await;
    hibernation::all(&host).await;
    processes::all(&host).await;
    an_error_of_the_network_hook_fails_the_start(&host).await;
    assert_eq!(ok(host.driver.list().await), [], "a case left a sandbox");
}

async fn a_sandbox_goes_through_its_states(host: &Host) {
    let spec = host.spec(1);
    assert_eq!(host.presence(&spec.id).await, Presence::Absent);
    assert!(!ok(host.driver.has_disk(&spec.id).await));
    ok(host.driver.create(&spec).await);
    assert!(ok(host.driver.has_disk(&spec.id).await));
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    assert_eq!(ok(host.driver.list().await), std::slice::from_ref(&spec.id));
    ok(host.driver.start(&spec, None).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Running);
    assert_eq!(ok(host.driver.with_replaced_disks().await), []);
    assert_eq!(host.driver.memory_kills(&spec.id).await, Some(MemoryKills::default()));
    let mut link = host.link(&spec.id).await;
    assert_eq!(link.run("echo hello").await, ("hello\n".to_owned(), Exit::Code(0)));
    assert_eq!(link.run("exit 3").await.1, Exit::Code(3));
    assert_eq!(link.run("kill -9 $$").await.1, Exit::Signal(9));
    ok(host.driver.pause(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Paused);
    ok(host.driver.resume(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Running);
    // The link survives the pause.
    assert_eq!(link.run("echo again").await.0, "again\n");
    ok(host.driver.kill(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    link.ended().await;
    ok(host.driver.stop(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    host.destroy_and_check(&spec).await;
}

async fn operations_in_the_wrong_state_fail_without_effect(host: &Host) {
    let spec = host.spec(2);
    invalid_state(host.driver.pause(&spec.id).await, Presence::Absent);
    invalid_state(host.driver.resume(&spec.id).await, Presence::Absent);
    assert!(host.driver.connect(&spec.id).await.is_err());
    assert!(host.driver.limit(&spec).await.is_err());
    ok(host.driver.create(&spec).await);
    invalid_state(host.driver.pause(&spec.id).await, Presence::Stopped);
    invalid_state(host.driver.resume(&spec.id).await, Presence::Stopped);
    assert!(host.driver.connect(&spec.id).await.is_err());
    ok(host.driver.start(&spec, None).await);
    invalid_state(host.driver.resume(&spec.id).await, Presence::Running);
    ok(host.driver.pause(&spec.id).await);
    invalid_state(host.driver.pause(&spec.id).await, Presence::Paused);
    assert_eq!(host.presence(&spec.id).await, Presence::Paused);
    host.destroy_and_check(&spec).await;
}

async fn a_disk_outlives_its_processes(host: &Host) {
    let spec = host.started(3).await;
    let mut link = host.link(&spec.id).await;
    assert_eq!(link.run("echo kept > file").await.1, Exit::Code(0));
    assert_eq!(link.run("sleep 1000 >/dev/null 2>&1 &").await.1, Exit::Code(0));
    ok(host.driver.stop(&spec.id).await);
    assert_eq!(host.presence(&spec.id).await, Presence::Stopped);
    ok(host.driver.start(&spec, None).await);
    let mut link = host.link(&spec.id).await;
    assert_eq!(link.run("cat file").await, ("kept\n".to_owned(), Exit::Code(0)));
    assert_eq!(link.run("pgrep -c sleep").await, ("0\n".to_owned(), Exit::Code(1)));
    host.destroy_and_check(&spec).await;
    // A new sandbox with the same id has none of its files.
    let spec = host.started(3).await;
    assert_eq!(host.link(&spec.id).await.run("cat file").await.1, Exit::Code(1));
    host.destroy_and_check(&spec).await;
}

async fn processes_outlive_a_pause(host: &Host) {
    let spec = host.started(4).await;
    let mut link = host.link(&spec.id).await;
    link.run("sleep 1000 >/dev/null 2>&1 &").await;
    // Waits until the background process is a sleep and no longer the shell that starts it.
    while link.run("pgrep -c sleep").await.1 != Exit::Code(0) {}
    link.start("echo late").await;
    ok(host.driver.pause(&spec.id).await);
    // Sent to a frozen agent, which answers after the resume.
    link.start("pgrep -c sleep").await;
    ok(host.driver.resume(&spec.id).await);
    assert_eq!(link.finish().await, ("late\n".to_owned(), Exit::Code(0)));
    assert_eq!(link.finish().await, ("1\n".to_owned(), Exit::Code(0)));
    host.destroy_and_check(&spec).await;
}

async fn a_new_link_knows_the_commands_of_the_old_one(host: &Host) {
    let spec = host.started(5).await;
    let mut first = host.link(&spec.id).await;
    let op = first.start("sleep 1000").await;
    first.is_started().await;
    drop(first);
    let mut second = host.link(&spec.id).await;
    assert_eq!(second.leftover, [op]);
    assert_eq!(second.kill(op).await, Exit::Signal(9));
    assert_eq!(second.run("echo fine").await.0, "fine\n");
    host.destroy_and_check(&spec).await;
}

async fn every_state_can_be_destroyed(host: &Host) {
    let spec = host.spec(6);
    host.destroy_and_check(&spec).await;
    ok(host.driver.create(&spec).await);
    host.destroy_and_check(&spec).await;
    host.destroy_and_check(&host.started(6).await).await;
    let spec = host.started(6).await;
    ok(host.driver.pause(&spec.id).await);
    host.destroy_and_check(&spec).await;
    let spec = host.started(6).await;
    ok(host.driver.kill(&spec.id).await);
    host.destroy_and_check(&spec).await;
}

async fn calls_can_be_repeated(host: &Host) {
    let spec = host.spec(7);
    ok(host.driver.create(&spec).await);
    ok(host.driver.create(&spec).await);
    ok(host.driver.stop(&spec.id).await);
    ok(host.driver.start(&spec, None).await);
    for _ in 0..2 {
        ok(host.driver.kill(&spec.id).await);
    }
    for _ in 0..2 {
        ok(host.driver.stop(&spec.id).await);
    }
    for _ in 0..2 {
        host.destroy_and_check(&spec).await;
    }
}

async fn limits_change_while_a_sandbox_runs(host: &Host) {
    let mut spec = host.started(8).await;
    spec.limits = Limits { cpu: 2, memory_mb: 1024 };
    ok(host.driver.limit(&spec).await);
    ok(host.driver.pause(&spec.id).await);
    spec.limits = Limits { cpu: 1, memory_mb: 256 };
    ok(host.driver.limit(&spec).await);
    ok(host.driver.resume(&spec.id).await);
    assert_eq!(host.link(&spec.id).await.run("echo fine").await.0, "fine\n");
    host.destroy_and_check(&spec).await;
}

async fn sandboxes_are_isolated_from_each_other(host: &Host) {
    let (one, other) = tokio::join!(host.started(9), host.started(10));
    let (mut in_one, mut in_other) = (host.link(&one.id).await, host.link(&other.id).await);
    in_one.run("echo mine > file").await;
    in_one.run("sleep 1000 >/dev/null 2>&1 &").await;
    assert_eq!(in_other.run("cat file").await.1, Exit::Code(1));
    assert_eq!(in_other.run("pgrep -c sleep").await.0, "0\n");
    ok(host.driver.pause(&one.id).await);
    assert_eq!(host.presence(&other.id).await, Presence::Running);
    assert_eq!(in_other.run("echo here").await.0, "here\n");
    host.destroy_and_check(&one).await;
    assert_eq!(in_other.run("echo still").await.0, "still\n");
    host.destroy_and_check(&other).await;
}

/// A backend without a network namespace does not call the hook, and starts the sandbox.
async fn an_error_of_the_network_hook_fails_the_start(host: &Host) {
    let spec = host.spec(11);
    ok(host.driver.create(&spec).await);
    let calls = Arc::new(AtomicU32::new(0));
    let calls_of_hook = Arc::clone(&calls);
    let hook: NetworkHook = Arc::new(move |_| {
        calls_of_hook.fetch_add(1, Ordering::SeqCst);
        Err(io::Error::other("made to fail by a test"))
    });
    let started = host.driver.start(&spec, Some(hook)).await;
    assert_eq!(started.is_err(), calls.load(Ordering::SeqCst) == 1, "{started:?}");
    host.destroy_and_check(&spec).await;
}

fn invalid_state(result: Result<(), DriverError>, found: Presence) {
    match result {
        Err(DriverError::InvalidState { presence, .. }) => assert_eq!(presence, found),
        other => panic!("expected a refusal and got {other:?}"),
    }
}

fn ok<T>(result: Result<T, DriverError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the driver failed: {error}"),
    }
}

fn id(number: u32) -> SandboxId {
    #[expect(clippy::expect_used, reason = "eight digits or more are always an id")]
    format!("sb_conf{number:08}").parse().expect("an id")
}
