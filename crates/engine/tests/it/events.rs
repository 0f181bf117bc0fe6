//! Events of commands and of costs.

use api::{EventKind, SandboxId};
use engine::EngineSettings;
use rules::Prices;
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
