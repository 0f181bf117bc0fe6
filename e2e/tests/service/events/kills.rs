//! The daemon is killed repeatedly while a client follows with `Last-Event-ID`: it must receive every event exactly once.
//!
//! `SANDBOXD_EVENT_KILLS` sets the number of kills (default 10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::events::{EVENTS, all_events, events_path};
use crate::{SANDBOXES, action_path, execution_path, sandbox_path, small, text, wait_until};

const WORKERS: u32 = 3;
/// Part of the text of detached commands.
const DETACHED: &str = "detached";

/// Events that acknowledged requests must have caused: kind, sandbox, and a label for commands and posts.
type Acknowledged = Arc<Mutex<Vec<(String, String, String)>>>;

#[derive(Default)]
struct Received {
    ids: Vec<String>,
    events: Vec<Value>,
    connections: u32,
}

#[tokio::test]
async fn a_follower_receives_every_event_once_across_kills() {
    let kills: u32 = std::env::var("SANDBOXD_EVENT_KILLS").map_or(10, |text| text.parse().unwrap());
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let received = Arc::new(Mutex::new(Received::default()));
    let following = tokio::spawn(follow(client.with_own_connections(), Arc::clone(&received), stopped));
    let acknowledged = Acknowledged::default();
    for kill in 0..kills {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                tokio::spawn(work(
                    client.with_own_connections(),
                    Arc::clone(&acknowledged),
                    format!("{kill}-{worker}"),
                ))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(60..500))).await;
        service.kill().unwrap();
        for worker in workers {
            worker.await.unwrap();
        }
        service.start_process().await.unwrap();
    }
    let client = client.with_own_connections();
    end_all(&client).await;
    // The last event: when it is visible, all earlier ones are.
    let answer = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    let last = text(&answer["id"]);
    let body = json!({ "type": "agent.error", "runId": "end" });
    client.post(&events_path(&last), &body).await.unwrap().is(201).unwrap();
    wait_until("the follower has received the last event", async || {
        received.lock().unwrap().events.last().is_some_and(|event| event["runId"] == "end")
    })
    .await;
    stop.send(true).unwrap();
    following.await.unwrap();
    let received = std::mem::take(&mut *received.lock().unwrap());
    let listed = all_events(&client, EVENTS).await;
    check(&received, &listed, &acknowledged.lock().unwrap());
    println!(
        "{kills} kills, {} events over {} connections, {} answers",
        listed.len(),
        received.connections,
        acknowledged.lock().unwrap().len()
    );
}

fn check(received: &Received, listed: &[Value], acknowledged: &[(String, String, String)]) {
    assert!(received.ids.windows(2).all(|pair| pair[0] < pair[1]), "ids are not ascending");
    // The follower started at the first event.
    assert_eq!(received.events, listed, "the follower and the list differ");
    let mut found: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for event in listed {
        let data = &event["data"];
        let label = data["command"].as_str().or(data["label"].as_str()).unwrap_or_default().to_owned();
        *found.entry((text(&event["type"]), text(&event["sandboxId"]), label)).or_default() += 1;
    }
    let mut wanted: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for what in acknowledged {
        *wanted.entry(what.clone()).or_default() += 1;
    }
    for (what, times) in &wanted {
        let actual = found.get(what).copied().unwrap_or(0);
        // Pauses of one sandbox look alike, as do resumes; the last one may be unacknowledged.
        let most = times + u32::from(matches!(what.0.as_str(), "sandbox.paused" | "sandbox.resumed"));
        assert!(
            (*times..=most).contains(&actual),
            "{what:?} was acknowledged {times} times and recorded {actual} times"
        );
    }
    // Events that can occur only once are recorded once, acknowledged or not.
    for (what, times) in &found {
        if ["sandbox.created", "sandbox.terminated"].contains(&what.0.as_str()) || !what.2.is_empty() {
            assert_eq!(*times, 1, "{what:?}");
        }
    }
    let started: BTreeSet<_> =
        found.keys().filter(|what| what.0 == "exec.started").map(|what| &what.2).collect();
    for what in found.keys().filter(|what| what.0 == "exec.completed") {
        assert!(started.contains(&what.2), "{what:?} was not started");
    }
    // A detached command that started has exactly one end, whichever daemon observed it.
    for (_, sandbox, label) in
        found.keys().filter(|what| what.0 == "exec.started" && what.2.contains(DETACHED))
    {
        let count =
            |kind: &str| found.get(&(kind.to_owned(), sandbox.clone(), label.clone())).copied().unwrap_or(0);
        assert_eq!(count("exec.completed") + count("exec.error"), 1, "{label:?} in {sandbox}");
    }
}

/// Terminates all sandboxes and so ends all commands.
async fn end_all(client: &Client) {
    loop {
        let mut ended = 0;
        for state in ["running", "paused"] {
            let page = client.get(&format!("{SANDBOXES}?limit=100&state={state}")).await.unwrap();
            for sandbox in page.is(200).unwrap()["data"].as_array().unwrap() {
                client.delete(&sandbox_path(&text(&sandbox["id"]))).await.unwrap().is(200).unwrap();
                ended += 1;
            }
        }
        if ended == 0 {
            return;
        }
    }
}

/// Follows from the first event, reconnecting as often as needed.
async fn follow(client: Client, received: Arc<Mutex<Received>>, mut stop: watch::Receiver<bool>) {
    let mut last = "ev_0000000000000000".to_owned();
    while !*stop.borrow() {
        let client = client.with_own_connections();
        let stream = client.call(Method::GET, EVENTS).header("last-event-id", &last).stream();
        let Ok(mut events) = stream.await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        received.lock().unwrap().connections += 1;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = stop.changed() => return,
            };
            // An incomplete message does not count.
            let Ok(Some(event)) = event else { break };
            let mut received = received.lock().unwrap();
            received.ids.push(event.id.clone().unwrap());
            received.events.push(event.json().unwrap());
        }
        if let Some(id) = events.last_id {
            last = id;
        }
    }
}

/// Sends requests of each kind until the daemon dies.
async fn work(client: Client, acknowledged: Acknowledged, name: String) {
    let acknowledge = |kind: &str, id: &str, label: &str| {
        acknowledged.lock().unwrap().push((kind.to_owned(), id.to_owned(), label.to_owned()));
    };
    let detached = async |id: &str, command: &str| {
        let body = json!({ "command": command, "detached": true });
        let answer = client.post(&action_path(id, "execute"), &body).await.ok()?.is(201).unwrap();
        acknowledge("exec.started", id, command);
        Some(execution_path(id, &text(&answer["executionId"]), ""))
    };
    let Ok(answer) = client.post(SANDBOXES, &small()).await else { return };
    let id = text(&answer.is(201).unwrap()["id"]);
    acknowledge("sandbox.created", &id, "");
    acknowledge("sandbox.started", &id, "");
    // Runs until the sandbox is terminated.
    let Some(_) = detached(&id, &format!("sleep 1000; true {DETACHED} {name}")).await else { return };
    for turn in 0.. {
        for part in 0..3 {
            let command = format!("true {name}-{turn}-{part}");
            let Ok(answer) = client.post(&action_path(&id, "execute"), &json!({ "command": command })).await
            else {
                return;
            };
            answer.is(200).unwrap();
            acknowledge("exec.started", &id, &command);
            acknowledge("exec.completed", &id, &command);
        }
        let command = format!("sleep 0.0{turn}; true {DETACHED} {name}-{turn}");
        let Some(execution) = detached(&id, &command).await else { return };
        loop {
            let Ok(answer) = client.get(&execution).await else { return };
            if answer.is(200).unwrap()["state"] == "exited" {
                acknowledge("exec.completed", &id, &command);
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let label = format!("{name}-{turn}");
        let body = json!({ "type": "agent.thinking", "runId": "run", "data": { "label": label } });
        let Ok(answer) = client.post(&events_path(&id), &body).await else { return };
        answer.is(201).unwrap();
        acknowledge("agent.thinking", &id, &label);
        for (word, kind) in [("pause", "sandbox.paused"), ("resume", "sandbox.resumed")] {
            let Ok(answer) = client.post_empty(&action_path(&id, word)).await else { return };
            answer.is(200).unwrap();
            acknowledge(kind, &id, "");
        }
        if turn == 2 {
            let Ok(answer) = client.delete(&sandbox_path(&id)).await else { return };
            answer.is(200).unwrap();
            acknowledge("sandbox.terminated", &id, "");
            return;
        }
    }
}
