//! `kill -9` of the daemon during snapshots, forks and rollbacks with processes: what was acknowledged persists with the memory of its
//! processes, the source goes on, and no byte is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions, small, with};
use rand::RngExt;
use serde_json::{Value, json};

use crate::s17_memory_snapshots::{ask, create, set, take, with_holder};
use crate::{SANDBOXES, SNAPSHOTS, action_path, sandbox_path, text};

const ROUNDS: u32 = 10;

/// What a client of one sandbox has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Acknowledged snapshots, with the number that the process held.
    snapshots: BTreeMap<String, u64>,
    forks: BTreeSet<String>,
    /// What the process may hold. Empty if it may have ended: a rollback was interrupted.
    numbers: BTreeSet<u64>,
}

/// Works until the daemon dies.
async fn work(client: Client, id: String, mut seen: Seen, first: u64) -> Seen {
    let mut number = first;
    loop {
        number += 1;
        seen.numbers.insert(number);
        let command = format!("echo {number} > set; while [ -e set ]; do sleep 0.01; done");
        let body = json!({ "command": command });
        let Ok(answer) = client.post(&action_path(&id, "execute"), &body).await else { return seen };
        answer.is(200).unwrap();
        seen.numbers = [number].into();
        let body = json!({ "memory": true });
        let Ok(answer) = client.post(&action_path(&id, "snapshots"), &body).await else { return seen };
        seen.snapshots.insert(text(&answer.is(201).unwrap()["id"]), number);
        let (snapshot, held) =
            seen.snapshots.iter().next().map(|(id, number)| (id.clone(), *number)).unwrap();
        let next = rand::rng().random_range(0..3);
        match next {
            0 => {
                seen.numbers.clear();
                let body = json!({ "snapshotId": snapshot });
                let Ok(answer) = client.post(&action_path(&id, "rollback"), &body).await else { return seen };
                answer.is(200).unwrap();
                seen.numbers = [held].into();
            }
            1 => {
                let body = json!({ "count": 2, "memory": true });
                let Ok(answer) = client.post(&action_path(&id, "fork"), &body).await else { return seen };
                let forks = answer.is(201).unwrap();
                seen.forks.extend(forks["data"].as_array().unwrap().iter().map(|fork| text(&fork["id"])));
            }
            _ => {
                seen.snapshots.remove(&snapshot);
                let Ok(answer) = client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await else { return seen };
                answer.is(200).unwrap();
            }
        }
    }
}

async fn all(client: &Client, path: &str) -> Vec<Value> {
    let page = client.get(&format!("{path}limit=100")).await.unwrap().is(200).unwrap();
    page["data"].as_array().unwrap().clone()
}

async fn running(client: &Client) -> Vec<String> {
    let found = all(client, &format!("{SANDBOXES}?state=running&")).await;
    found.iter().map(|found| text(&found["id"])).collect()
}

#[tokio::test]
async fn kills_of_the_daemon_lose_no_memory() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = with_holder(&client).await;
    set(&client, &id, 0).await;
    let mut seen = Seen { numbers: [0].into(), ..Seen::default() };
    seen.snapshots.insert(take(&client, &id).await, 0);
    for round in 0..ROUNDS {
        let working =
            tokio::spawn(work(client.with_own_connections(), id.clone(), seen, u64::from(round + 1) * 1000));
        tokio::time::sleep(Duration::from_millis(200 + rand::rng().random_range(0..1500))).await;
        service.kill().unwrap();
        seen = working.await.unwrap();
        service.start_process().await.unwrap();
        let client = client.with_own_connections();
        let found: BTreeSet<String> =
            all(&client, &format!("{SNAPSHOTS}?")).await.iter().map(|found| text(&found["id"])).collect();
        for snapshot in seen.snapshots.keys() {
            assert!(found.contains(snapshot), "round {round}: acknowledged snapshot {snapshot} is gone");
        }
        // One acknowledged snapshot is complete, and forks exist all or none.
        if let Some((snapshot, number)) = seen.snapshots.iter().next_back() {
            let copy = create(&client, with(small(), "image", json!(snapshot))).await;
            assert_eq!(ask(&client, &copy).await[0], number.to_string(), "round {round}");
        }
        let living = running(&client).await;
        for fork in &seen.forks {
            assert!(living.contains(fork), "round {round}: acknowledged fork {fork} is gone");
        }
        if seen.numbers.is_empty() {
            // An interrupted rollback has either effect, or has ended the processes.
            let snapshot = seen.snapshots.keys().next_back().cloned().unwrap();
            let body = json!({ "snapshotId": snapshot });
            client.post(&action_path(&id, "rollback"), &body).await.unwrap().is(200).unwrap();
            seen.numbers.insert(seen.snapshots[&snapshot]);
        }
        let held = ask(&client, &id).await[0].parse().unwrap();
        assert!(seen.numbers.contains(&held), "round {round}: {held} is not among {:?}", seen.numbers);
        seen.numbers = [held].into();
        // So that the host has room.
        for other in running(&client).await.iter().filter(|other| **other != id) {
            client.delete(&sandbox_path(other)).await.unwrap().is(200).unwrap();
        }
        seen.forks.clear();
        let expected = Expected {
            alive: [id.parse().unwrap()].into(),
            snapshots: found.iter().map(|id| id.parse().unwrap()).collect(),
            with_memory: found.iter().map(|id| id.parse().unwrap()).collect(),
            daemon: service.pid(),
            ..Expected::default()
        };
        let expected = crate::s15_snapshots_kill::with_layers(&service, expected);
        let left = e2e::wait_for_resources(&service.layout, &expected).await;
        assert_eq!(left, Vec::<String>::new(), "round {round}");
    }
    let client = client.with_own_connections();
    for found in all(&client, &format!("{SNAPSHOTS}?")).await {
        client.delete(&format!("{SNAPSHOTS}/{}", text(&found["id"]))).await.unwrap().is(200).unwrap();
    }
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let expected = Expected { daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
}
