//! `kill -9` of the daemon during requests of each kind: acknowledged operations persist, others are complete or have no effect,
//! and the next process continues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::RngExt;
use serde_json::json;

use crate::{SANDBOXES, action_path, output, sandbox_path, small, text};

const ROUNDS: u32 = 6;
const CLIENTS: u32 = 4;

/// The acknowledged state of a sandbox, and the request that was running when the daemon died.
#[derive(Debug, Clone, Default)]
struct Known {
    state: &'static str,
    /// The target state of a request without a response; the request may have taken effect or not.
    unacknowledged_state: Option<&'static str>,
    /// The number of acknowledged commands, and whether one was not acknowledged.
    marks: u32,
    unacknowledged_mark: bool,
}

type KnownSandboxes = Arc<Mutex<BTreeMap<String, Known>>>;

#[tokio::test]
async fn acknowledged_operations_survive_kills_of_the_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let known_sandboxes = KnownSandboxes::default();
    for round in 0..ROUNDS {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|n| {
                tokio::spawn(work(
                    client.with_own_connections(),
                    Arc::clone(&known_sandboxes),
                    format!("{round}-{n}"),
                ))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(150 + rand::rng().random_range(0..500))).await;
        service.kill().unwrap();
        let mut unanswered = Vec::new();
        for worker in workers {
            unanswered.extend(worker.await.unwrap());
        }
        service.start_process().await.unwrap();
        // Unanswered creates are repeated with their idempotency keys.
        let client = client.with_own_connections();
        for key in unanswered {
            let answer = client
                .call(Method::POST, SANDBOXES)
                .header("idempotency-key", &key)
                .json(&small())
                .send()
                .await
                .unwrap();
            let id = text(&answer.is(201).unwrap()["id"]);
            known_sandboxes.lock().unwrap().insert(id, Known { state: "running", ..Known::default() });
        }
        check(&client, &known_sandboxes).await;
        // Terminate some sandboxes before the next round.
        let ids: Vec<String> = known_sandboxes.lock().unwrap().keys().cloned().collect();
        for id in ids.iter().skip(4) {
            client.delete(&sandbox_path(id)).await.unwrap();
            known_sandboxes.lock().unwrap().get_mut(id).unwrap().state = "terminated";
        }
        let living = living(&known_sandboxes);
        let total = client.get(&format!("{SANDBOXES}?limit=1")).await.unwrap().is(200).unwrap()["pagination"]
            ["total"]
            .clone();
        assert_eq!(
            total,
            json!(known_sandboxes.lock().unwrap().len()),
            "round {round}: unknown sandboxes exist"
        );
        let expected = Expected { alive: living, daemon: service.pid(), ..Expected::default() };
        assert_eq!(
            e2e::wait_for_resources(&service.layout, &expected).await,
            Vec::<String>::new(),
            "round {round}"
        );
    }
}

fn living(known_sandboxes: &KnownSandboxes) -> std::collections::BTreeSet<api::SandboxId> {
    let known_sandboxes = known_sandboxes.lock().unwrap();
    known_sandboxes
        .iter()
        .filter(|(_, known)| known.state != "terminated")
        .map(|(id, _)| id.parse().unwrap())
        .collect()
}

/// Sends requests of each kind until the daemon dies. Returns the idempotency key of a create without a response.
async fn work(client: Client, known_sandboxes: KnownSandboxes, name: String) -> Option<String> {
    for turn in 0.. {
        let key = format!("{name}-{turn}");
        let call = client.call(Method::POST, SANDBOXES).header("idempotency-key", &key).json(&small());
        let Ok(answer) = call.send().await else { return Some(key) };
        let id = text(&answer.is(201).unwrap()["id"]);
        known_sandboxes.lock().unwrap().insert(id.clone(), Known { state: "running", ..Known::default() });
        let update =
            |change: &dyn Fn(&mut Known)| change(known_sandboxes.lock().unwrap().get_mut(&id).unwrap());
        for _ in 0..2 {
            update(&|known| known.unacknowledged_mark = true);
            let body = json!({ "command": "echo x >> /marks; sync" });
            let Ok(answer) = client.post(&action_path(&id, "execute"), &body).await else { return None };
            answer.is(200).unwrap();
            update(&|known| (known.unacknowledged_mark, known.marks) = (false, known.marks + 1));
        }
        for (word, state) in [("pause", "paused"), ("resume", "running"), ("pause", "paused")] {
            update(&|known| known.unacknowledged_state = Some(state));
            let Ok(answer) = client.post_empty(&action_path(&id, word)).await else { return None };
            answer.is(200).unwrap();
            update(&|known| (known.state, known.unacknowledged_state) = (state, None));
        }
        if turn % 2 == 1 {
            update(&|known| known.unacknowledged_state = Some("terminated"));
            let Ok(answer) = client.delete(&sandbox_path(&id)).await else { return None };
            answer.is(200).unwrap();
            update(&|known| (known.state, known.unacknowledged_state) = ("terminated", None));
        }
    }
    None
}

/// Each sandbox is in its acknowledged state or in the target state of the last request, and has its files.
async fn check(client: &Client, known_sandboxes: &KnownSandboxes) {
    let all: Vec<(String, Known)> =
        known_sandboxes.lock().unwrap().iter().map(|(id, known)| (id.clone(), known.clone())).collect();
    for (id, known) in all {
        let answer = client.get(&sandbox_path(&id)).await.unwrap();
        let state = match answer.status {
            404 => "terminated".to_owned(),
            _ => text(&answer.is(200).unwrap()["state"]),
        };
        let allowed = [Some(known.state), known.unacknowledged_state];
        let now = allowed.into_iter().flatten().find(|allowed| *allowed == state);
        let now = now.unwrap_or_else(|| panic!("{id} is {state}, expected {known:?}"));
        let mut current = Known { state: now, ..known.clone() };
        (current.unacknowledged_state, current.unacknowledged_mark) = (None, false);
        if now != "terminated" {
            let marks: u32 =
                output(client, &id, "cat /marks 2>/dev/null | wc -l").await.trim().parse().unwrap();
            let most = known.marks + u32::from(known.unacknowledged_mark);
            assert!((known.marks..=most).contains(&marks), "{id} has {marks} marks, expected {known:?}");
            // The command resumed it.
            (current.marks, current.state) = (marks, "running");
        }
        known_sandboxes.lock().unwrap().insert(id, current);
    }
}

/// When the daemon dies, a stream is cut and its command ends; the sandbox continues.
#[tokio::test]
async fn a_stream_ends_with_its_daemon_and_the_sandbox_continues() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = crate::create_sandbox(&client).await;
    let body = json!({ "command": "echo begun; while :; do date +%s%N > /beat; sleep 0.02; done" });
    let mut events = client
        .with_own_connections()
        .call(Method::POST, &action_path(&id, "execute"))
        .json(&body)
        .stream()
        .await
        .unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
    service.kill().unwrap();
    assert!(!matches!(events.next().await, Ok(Some(_))), "an event after the daemon died");
    service.start_process().await.unwrap();
    let client = client.with_own_connections();
    crate::wait_until("its command has ended", async || {
        // The file may be empty if the command was killed between truncating and writing it.
        output(&client, &id, "was=$(cat /beat); sleep 0.3; [ \"$was\" = \"$(cat /beat)\" ] && echo dead")
            .await
            == "dead\n"
    })
    .await;
}
