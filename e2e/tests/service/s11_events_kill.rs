//! `kill -9` of the daemon again and again while a client follows by `Last-Event-ID`: it hears of everything once.
//!
//! `SANDBOXD_EVENT_KILLS` says how often (10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::s11_events::{EVENTS, all, of};
use crate::{SANDBOXES, at, small, text, until, verb};

const WORKERS: u32 = 3;
/// In the text of commands that outlive their requests.
const DETACHED: &str = "detached";

/// What was answered, by what it has to have left: kind, sandbox and, of commands and posts, what they said.
type Answered = Arc<Mutex<Vec<(String, String, String)>>>;

#[derive(Default)]
struct Seen {
    ids: Vec<String>,
    events: Vec<Value>,
    connections: u32,
}

#[tokio::test]
async fn a_follower_misses_nothing_and_hears_nothing_twice() {
    let kills: u32 = std::env::var("SANDBOXD_EVENT_KILLS").map_or(10, |text| text.parse().unwrap());
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let following = tokio::spawn(follow(client.apart(), Arc::clone(&seen), stopped));
    let answered = Answered::default();
    for kill in 0..kills {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                tokio::spawn(work(client.apart(), Arc::clone(&answered), format!("{kill}-{worker}")))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(60..500))).await;
        service.kill().unwrap();
        for worker in workers {
            worker.await.unwrap();
        }
        service.boot().await.unwrap();
    }
    let client = client.apart();
    end_all(&client).await;
    // The last thing that happens, so that all before it can be seen.
    let answer = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    let last = text(&answer["id"]);
    let body = json!({ "type": "agent.error", "runId": "end" });
    client.post(&of(&last), &body).await.unwrap().is(201).unwrap();
    until("the follower has come to the end", async || {
        seen.lock().unwrap().events.last().is_some_and(|event| event["runId"] == "end")
    })
    .await;
    stop.send(true).unwrap();
    following.await.unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let listed = all(&client, EVENTS).await;
    check(&seen, &listed, &answered.lock().unwrap());
    println!(
        "{kills} kills, {} events over {} connections, {} answers",
        listed.len(),
        seen.connections,
        answered.lock().unwrap().len()
    );
}

fn check(seen: &Seen, listed: &[Value], answered: &[(String, String, String)]) {
    assert!(seen.ids.windows(2).all(|pair| pair[0] < pair[1]), "an id that was seen before came again");
    // The follower was there from the first event on.
    assert_eq!(seen.events, listed, "the follower and the list tell of different events");
    let mut found: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for event in listed {
        let data = &event["data"];
        let said = data["command"].as_str().or(data["said"].as_str()).unwrap_or_default().to_owned();
        *found.entry((text(&event["type"]), text(&event["sandboxId"]), said)).or_default() += 1;
    }
    let mut wanted: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for what in answered {
        *wanted.entry(what.clone()).or_default() += 1;
    }
    for (what, times) in &wanted {
        let there = found.get(what).copied().unwrap_or(0);
        // Pauses and resumes of one sandbox look alike, and the last of them may not have been answered.
        let most = times + u32::from(matches!(what.0.as_str(), "sandbox.paused" | "sandbox.resumed"));
        assert!(
            (*times..=most).contains(&there),
            "{what:?} was answered {times} times and is there {there} times"
        );
    }
    // What can only be once is not there twice, answered or not.
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
    // Whoever was there at its beginning and its end, a detached one has one of each.
    for (_, sandbox, said) in
        found.keys().filter(|what| what.0 == "exec.started" && what.2.contains(DETACHED))
    {
        let of =
            |kind: &str| found.get(&(kind.to_owned(), sandbox.clone(), said.clone())).copied().unwrap_or(0);
        assert_eq!(of("exec.completed") + of("exec.error"), 1, "{said:?} in {sandbox}");
    }
}

/// With a sandbox ends what still runs in it.
async fn end_all(client: &Client) {
    loop {
        let mut ended = 0;
        for state in ["running", "paused"] {
            let page = client.get(&format!("{SANDBOXES}?limit=100&state={state}")).await.unwrap();
            for sandbox in page.is(200).unwrap()["data"].as_array().unwrap() {
                client.delete(&at(&text(&sandbox["id"]))).await.unwrap().is(200).unwrap();
                ended += 1;
            }
        }
        if ended == 0 {
            return;
        }
    }
}

/// Follows from the first event on, over as many connections as it takes.
async fn follow(client: Client, seen: Arc<Mutex<Seen>>, mut stop: watch::Receiver<bool>) {
    let mut last = "ev_0000000000000000".to_owned();
    while !*stop.borrow() {
        let client = client.apart();
        let stream = client.call(Method::GET, EVENTS).header("last-event-id", &last).stream();
        let Ok(mut events) = stream.await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        seen.lock().unwrap().connections += 1;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = stop.changed() => return,
            };
            // A message that breaks off was not received.
            let Ok(Some(event)) = event else { break };
            let mut seen = seen.lock().unwrap();
            seen.ids.push(event.id.clone().unwrap());
            seen.events.push(event.json().unwrap());
        }
        if let Some(place) = events.last_id {
            last = place;
        }
    }
}

/// Requests of each kind until the daemon dies.
async fn work(client: Client, answered: Answered, name: String) {
    let note = |kind: &str, id: &str, said: &str| {
        answered.lock().unwrap().push((kind.to_owned(), id.to_owned(), said.to_owned()));
    };
    let detached = async |id: &str, command: &str| {
        let body = json!({ "command": command, "detached": true });
        let answer = client.post(&verb(id, "execute"), &body).await.ok()?.is(201).unwrap();
        note("exec.started", id, command);
        Some(format!("{}/executions/{}", at(id), text(&answer["executionId"])))
    };
    let Ok(answer) = client.post(SANDBOXES, &small()).await else { return };
    let id = text(&answer.is(201).unwrap()["id"]);
    note("sandbox.created", &id, "");
    note("sandbox.started", &id, "");
    // It goes on to the end of the sandbox.
    let Some(_) = detached(&id, &format!("sleep 1000; true {DETACHED} {name}")).await else { return };
    for turn in 0.. {
        for part in 0..3 {
            let command = format!("true {name}-{turn}-{part}");
            let Ok(answer) = client.post(&verb(&id, "execute"), &json!({ "command": command })).await else {
                return;
            };
            answer.is(200).unwrap();
            note("exec.started", &id, &command);
            note("exec.completed", &id, &command);
        }
        let command = format!("sleep 0.0{turn}; true {DETACHED} {name}-{turn}");
        let Some(execution) = detached(&id, &command).await else { return };
        loop {
            let Ok(answer) = client.get(&execution).await else { return };
            if answer.is(200).unwrap()["state"] == "exited" {
                note("exec.completed", &id, &command);
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let said = format!("{name}-{turn}");
        let body = json!({ "type": "agent.thinking", "runId": "run", "data": { "said": said } });
        let Ok(answer) = client.post(&of(&id), &body).await else { return };
        answer.is(201).unwrap();
        note("agent.thinking", &id, &said);
        for (word, kind) in [("pause", "sandbox.paused"), ("resume", "sandbox.resumed")] {
            let Ok(answer) = client.order(&verb(&id, word)).await else { return };
            answer.is(200).unwrap();
            note(kind, &id, "");
        }
        if turn == 2 {
            let Ok(answer) = client.delete(&at(&id)).await else { return };
            answer.is(200).unwrap();
            note("sandbox.terminated", &id, "");
            return;
        }
    }
}
