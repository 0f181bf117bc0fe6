//! Events of commands and of costs.

use api::{
    CreateEgress, CreateIngress, CreateNetwork, EventKind, Isolation, PortVisibility, SandboxConfig,
    SandboxId,
};
use engine::{EngineSettings, Processes, TimeoutChange};
use rules::{
    ConfigRules, ExposeRequest, ForkRequest, NetworkChange, Prices, SnapshotRequest, network_change,
};
use serde_json::json;

use crate::harness::*;

/// The events of one sort, as kind and data without random ids.
async fn events_of_sort(harness: &Harness, id: &SandboxId, sort: &str) -> Vec<(String, serde_json::Value)> {
    let events = harness.events(id).await.into_iter().filter(|event| event.kind.starts_with(sort));
    events
        .map(|mut event| {
            if let Some(execution) = event.data.as_object_mut().unwrap().remove("executionId") {
                assert!(execution.as_str().unwrap().starts_with("ex_"), "{execution}");
            }
            (event.kind, event.data)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_command_has_a_start_event_and_an_end_event() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let mut request = command("echo hello");
    request.env.insert("SECRET".to_owned(), "hidden".to_owned());
    request.stdin = Some("hidden".to_owned());
    request.run_id = Some("run-7".parse().unwrap());
    let result = harness.request(&id, request).await.unwrap();
    let events = events_of_sort(&harness, &id, "exec.").await;
    let ended = json!({
        "command": "echo hello", "durationMs": result.duration_ms, "exitCode": 0, "signal": null,
        "stdoutBytes": result.stdout.len(), "stderrBytes": 0,
    });
    let expected = [
        ("exec.started".to_owned(), json!({ "command": "echo hello" })),
        ("exec.completed".to_owned(), ended),
    ];
    assert_eq!(events, expected);
    let events = harness.events(&id).await;
    assert!(events.iter().all(|event| !event.data.to_string().contains("hidden")));
    let runs: Vec<&str> = events.iter().map(|event| event.run.as_str()).collect();
    assert_eq!(runs, ["", "", "run-7", "run-7"]);
    let executions: Vec<_> = events[2..].iter().map(|event| event.data["executionId"].clone()).collect();
    assert_eq!(executions[0], executions[1]);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_command_reports_its_bytes() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let execution =
        harness.engine.sandbox("test", &id).execute(command("echo hello")).await.unwrap().streamed();
    execution.collect(100).await.unwrap();
    let kinds = harness.kinds(&id).await;
    assert_eq!(kinds[2..], ["exec.started", "exec.streamed", "exec.completed"]);
    let streamed = &events_of_sort(&harness, &id, "exec.streamed").await[0].1;
    assert_eq!(*streamed, json!({ "stdoutBytes": 6, "stderrBytes": 0 }));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_command_has_an_end_event() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let execution = harness.engine.sandbox("test", &id).execute(command("sleep 300")).await.unwrap();
    drop(execution);
    settle().await;
    let events = events_of_sort(&harness, &id, "exec.").await;
    assert_eq!((events.len(), events[1].0.as_str()), (2, "exec.error"));
    assert!(events[1].1["message"].as_str().unwrap().contains("its client disconnected"));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_cannot_start_has_an_error_event_and_a_refused_one_has_none() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let missing = api::ExecuteRequest { cwd: Some("/nowhere".to_owned()), ..command("true") };
    let result = harness.request(&id, missing).await.unwrap();
    let events = events_of_sort(&harness, &id, "exec.").await;
    assert_eq!((events.len(), events[0].0.as_str()), (1, "exec.error"));
    assert_eq!(events[0].1["message"], result.stderr.trim_end());
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    let asleep = api::ExecuteRequest { auto_resume: false, ..command("true") };
    assert!(harness.request(&id, asleep).await.is_err());
    assert_eq!(events_of_sort(&harness, &id, "exec.").await.len(), 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_command_is_shortened_in_its_events() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let long = format!("echo hello #{}", "x".repeat(5000));
    harness.run(&id, &long).await.unwrap();
    for (_, data) in events_of_sort(&harness, &id, "exec.").await {
        let shortened = data["command"].as_str().unwrap();
        assert!(shortened.len() == 4096 && long.starts_with(shortened));
        assert_eq!(data["commandTruncated"], true);
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn callers_append_events() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let run = "run-1".parse().unwrap();
    harness.engine.sandbox("test", &id).append_event(
        Some(&run),
        EventKind::FileRead,
        json!({ "path": "/a" }),
    );
    harness.engine.sandbox("test", &id).append_event(None, EventKind::PortClosed, json!({ "port": 80 }));
    let events = harness.events(&id).await;
    assert_eq!((events[2].kind.as_str(), events[2].run.as_str()), ("file.read", "run-1"));
    assert_eq!((events[3].kind.as_str(), &events[3].data), ("port.closed", &json!({ "port": 80 })));
    assert_eq!(events[3].at, harness.clock.now());
    harness.assert_clean().await;
}

fn with_prices() -> EngineSettings {
    EngineSettings { prices: Prices::new(0.1, 0.01, "EUR"), ..settings() }
}

fn nanos(events: &[(String, serde_json::Value)]) -> Vec<u64> {
    events.iter().map(|(_, data)| data["amountNanos"].as_u64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_stretch_of_running_time_has_one_cost_event() {
    let harness = Harness::new(with_prices()).await;
    let id = harness.create().await;
    pass(HOUR).await;
    let paused = harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(DAY).await;
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    pass(HOUR / 2 + 1).await;
    let ended = harness.engine.sandbox("test", &id).terminate("deleted").await.unwrap();
    let costs = events_of_sort(&harness, &id, "cost.").await;
    // Two CPUs and two gigabytes.
    let first = paused.runtime_duration_ms;
    assert_eq!(
        costs[0].1,
        json!({
            "runningMs": first, "totalRuntimeMs": first, "cpu": 2, "memoryMb": 2048,
            "amount": nanos(&costs)[0] as f64 / 1e9, "amountNanos": nanos(&costs)[0], "currency": "EUR",
        })
    );
    let prices = Prices::new(0.1, 0.01, "EUR");
    assert_eq!(nanos(&costs).iter().sum::<u64>(), prices.between(SIZE, 0, ended.total_runtime_ms));
    assert!(nanos(&costs)[0].abs_diff(220_000_000) < 10_000 && costs.len() == 2, "{costs:?}");
    let kinds = harness.kinds(&id).await;
    assert_eq!(kinds[2..4], ["cost.runtime", "sandbox.paused"]);
    assert_eq!(kinds[5..], ["cost.runtime", "sandbox.terminated"]);
    settle().await;
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn neither_a_pause_nor_a_failed_commit_has_a_cost() {
    let harness = Harness::new(with_prices()).await;
    let id = harness.create().await;
    pass(HOUR).await;
    harness.fail_next_commit();
    assert!(harness.engine.sandbox("test", &id).pause().await.is_err());
    assert_eq!(events_of_sort(&harness, &id, "cost.").await, []);
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(HOUR).await;
    harness.engine.sandbox("test", &id).terminate("deleted").await.unwrap();
    assert_eq!(events_of_sort(&harness, &id, "cost.").await.len(), 1);
    settle().await;
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn no_cost_events_without_prices() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    pass(HOUR).await;
    harness.engine.sandbox("test", &id).terminate("deleted").await.unwrap();
    assert_eq!(events_of_sort(&harness, &id, "cost.").await, []);
    settle().await;
    harness.assert_clean().await;
}

/// The steps of one sandbox, an hour apart: an event with the time of an earlier step, as its record has, is told from a right one.
struct Steps {
    harness: Harness,
    id: SandboxId,
    seen: usize,
}

impl Steps {
    /// Checks the kinds and the times of the events since the last call.
    async fn check(&mut self, kinds: &[&str]) {
        let events = self.harness.events(&self.id).await.split_off(self.seen);
        let found: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(found, kinds);
        let now = self.harness.clock.now();
        for event in &events {
            assert!(now.since(event.at) < MINUTE, "{} has a time {} ms ago", event.kind, now.since(event.at));
        }
        self.seen += events.len();
        pass(HOUR).await;
    }

    fn sandbox(&self) -> engine::SandboxHandle<'_> {
        self.harness.engine.sandbox("test", &self.id)
    }
}

fn port_80() -> ExposeRequest {
    ExposeRequest { port: 80, visibility: PortVisibility::Private, auto_resume: true }
}

/// Allows one name, and no ports.
fn closed_network() -> NetworkChange {
    let egress = CreateEgress { allow: Some(vec!["a.example".to_owned()]), ..CreateEgress::default() };
    let ingress = CreateIngress { allow_ports: Some(Vec::new()) };
    let body = CreateNetwork { egress: Some(egress), ingress: Some(ingress) };
    network_change(body, &ConfigRules::default()).unwrap()
}

async fn new_steps() -> Steps {
    let harness = Harness::new(with_prices()).await;
    let gvisor = SandboxConfig { isolation: Isolation::Gvisor, ..config() };
    let id = harness.create_with(gvisor).await.unwrap();
    let mut steps = Steps { harness, id, seen: 0 };
    steps.check(&["sandbox.created", "sandbox.started"]).await;
    steps
}

#[tokio::test(start_paused = true)]
async fn events_of_the_lifecycle_have_the_time_of_their_change() {
    let mut steps = new_steps().await;
    steps.sandbox().pause().await.unwrap();
    steps.check(&["cost.runtime", "sandbox.paused"]).await;
    steps.sandbox().pause_with(Processes::Stored).await.unwrap();
    steps.check(&["sandbox.hibernated"]).await;
    steps.sandbox().resume().await.unwrap();
    steps.check(&["sandbox.resumed"]).await;
    steps.sandbox().pause_with(Processes::Stored).await.unwrap();
    steps.check(&["cost.runtime", "sandbox.paused", "sandbox.hibernated"]).await;
    steps.sandbox().resume().await.unwrap();
    steps.check(&["sandbox.resumed"]).await;
    steps.sandbox().change_timeout(TimeoutChange::Set(DAY)).await.unwrap();
    steps.check(&["sandbox.timeout_changed"]).await;
    steps.harness.driver.crash(&steps.id);
    settle().await;
    steps.check(&["cost.runtime", "sandbox.error"]).await;
    steps.sandbox().terminate("deleted").await.unwrap();
    steps.check(&["sandbox.terminated"]).await;
    steps.harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_commands_ports_and_the_network_have_the_time_of_their_change() {
    let mut steps = new_steps().await;
    steps.harness.run(&steps.id, "echo hello").await.unwrap();
    steps.check(&["exec.started", "exec.completed"]).await;
    steps.sandbox().expose(port_80(), None).await.unwrap();
    steps.check(&["port.exposed"]).await;
    steps.sandbox().close_port(80, None).await.unwrap();
    steps.check(&["port.closed"]).await;
    steps.sandbox().expose(port_80(), None).await.unwrap();
    steps.check(&["port.exposed"]).await;
    steps.sandbox().change_network(closed_network()).await.unwrap();
    steps.check(&["network.changed", "port.closed"]).await;
    steps.harness.assert_clean().await;
}

/// The record of a sandbox that was not paused has no other time than that of its creation.
#[tokio::test(start_paused = true)]
async fn events_of_snapshots_and_forks_have_the_time_of_their_change() {
    let mut steps = new_steps().await;
    let snapshot = steps.sandbox().take_snapshot(SnapshotRequest::default(), None).await.unwrap();
    steps.check(&["snapshot.created"]).await;
    let request = ForkRequest {
        count: 2,
        env: Default::default(),
        name: None,
        metadata: None,
        memory: false,
        isolation: Default::default(),
    };
    let forks = steps.sandbox().fork(request, None).await.unwrap();
    steps.check(&["sandbox.forked"]).await;
    for fork in forks {
        let mut of_fork = steps.harness.events(&fork.record.id).await;
        of_fork.retain(|event| event.at != fork.record.created_at);
        assert_eq!(of_fork, []);
    }
    steps.sandbox().rollback(&snapshot.id).await.unwrap();
    steps.check(&["cost.runtime", "sandbox.rolled_back", "sandbox.resumed"]).await;
    steps.harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
    steps.check(&["snapshot.deleted"]).await;
}
