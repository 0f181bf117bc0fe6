//! `kill -9` of the daemon during snapshots, rollbacks, forks and deletions: what was acknowledged persists, everything else is complete
//! or has no effect, sandboxes run on, and no disk is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use rand::RngExt;
use serde_json::{Value, json};

use crate::{SANDBOXES, SNAPSHOTS, action_path, create_sandbox, output, sandbox_path, take_snapshot, text};

const ROUNDS: u32 = 10;

/// What a client of one sandbox has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Acknowledged snapshots, with what their file contains.
    snapshots: BTreeMap<String, u64>,
    forks: BTreeSet<String>,
    /// What the sandbox's file may contain.
    file: BTreeSet<u64>,
}

/// Writes, takes snapshots, rolls back and forks until the daemon dies.
async fn work(client: Client, id: String, mut seen: Seen, first: u64) -> Seen {
    let mut number = first;
    loop {
        number += 1;
        let write = json!({ "command": format!("echo {number} > file; sync file") });
        seen.file.insert(number);
        let Ok(answer) = client.post(&action_path(&id, "execute"), &write).await else { return seen };
        answer.is(200).unwrap();
        seen.file = [number].into();
        let Ok(answer) = client.post(&action_path(&id, "snapshots"), &json!({})).await else { return seen };
        seen.snapshots.insert(text(&answer.is(201).unwrap()["id"]), number);
        let (snapshot, content) =
            seen.snapshots.iter().next().map(|(id, number)| (id.clone(), *number)).unwrap();
        let next = rand::rng().random_range(0..4);
        match next {
            0 | 1 => {
                seen.file.insert(content);
                let body = json!({ "snapshotId": snapshot });
                let Ok(answer) = client.post(&action_path(&id, "rollback"), &body).await else { return seen };
                answer.is(200).unwrap();
                seen.file = [content].into();
            }
            2 => {
                let Ok(answer) = client.post(&action_path(&id, "fork"), &json!({ "count": 2 })).await else {
                    return seen;
                };
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

/// The file of a sandbox, which may be paused without processes.
async fn file(client: &Client, id: &str) -> u64 {
    output(client, id, "cat file").await.trim().parse().unwrap()
}

#[tokio::test]
async fn acknowledged_snapshots_survive_kills_of_the_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    output(&client, &id, "echo 0 > file; sync file; head -c 30M /dev/urandom > ballast; sync ballast").await;
    let mut seen = Seen { file: [0].into(), ..Seen::default() };
    seen.snapshots.insert(take_snapshot(&client, &id).await, 0);
    for round in 0..ROUNDS {
        let working =
            tokio::spawn(work(client.with_own_connections(), id.clone(), seen, u64::from(round + 1) * 1000));
        tokio::time::sleep(Duration::from_millis(100 + rand::rng().random_range(0..700))).await;
        service.kill().unwrap();
        seen = working.await.unwrap();
        service.start_process().await.unwrap();
        let client = client.with_own_connections();
        let found: BTreeSet<String> =
            all(&client, &format!("{SNAPSHOTS}?")).await.iter().map(|found| text(&found["id"])).collect();
        for snapshot in seen.snapshots.keys() {
            assert!(found.contains(snapshot), "round {round}: acknowledged snapshot {snapshot} is gone");
        }
        let content = file(&client, &id).await;
        assert!(seen.file.contains(&content), "round {round}: {content} is not among {:?}", seen.file);
        seen.file = [content].into();
        // One acknowledged snapshot is complete.
        if let Some((snapshot, number)) = seen.snapshots.iter().next_back() {
            let body = json!({ "image": snapshot, "resources": { "memoryMb": 2048 } });
            let copy = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
            assert_eq!(file(&client, &text(&copy["id"])).await, *number, "round {round}");
        }
        // Forks exist all or none, and are removed, so that the host has room.
        let living: Vec<String> = all(&client, &format!("{SANDBOXES}?state=running&"))
            .await
            .iter()
            .map(|found| text(&found["id"]))
            .collect();
        for fork in &seen.forks {
            assert!(living.contains(fork), "round {round}: acknowledged fork {fork} is gone");
        }
        for other in living.iter().filter(|other| **other != id) {
            client.delete(&sandbox_path(other)).await.unwrap().is(200).unwrap();
        }
        seen.forks.clear();
        let expected = Expected {
            alive: [id.parse().unwrap()].into(),
            snapshots: found.iter().map(|id| id.parse().unwrap()).collect(),
            daemon: service.pid(),
            ..Expected::default()
        };
        let left = e2e::wait_for_resources(&service.layout, &with_layers(&service, expected)).await;
        assert_eq!(left, Vec::<String>::new(), "round {round}");
    }
    for found in all(&client.with_own_connections(), &format!("{SNAPSHOTS}?")).await {
        client.delete(&format!("{SNAPSHOTS}/{}", text(&found["id"]))).await.unwrap().is(200).unwrap();
    }
    client.call(Method::DELETE, &sandbox_path(&id)).send().await.unwrap().is(200).unwrap();
    let expected = Expected { daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
}

/// Adds the deleted snapshots that others have among their layers.
pub fn with_layers(service: &Service, mut expected: Expected) -> Expected {
    let query =
        "select layers from snapshots union all select layers from sandboxes where state != 'terminated'";
    let rows = service.stored(query).unwrap();
    let layers = rows.iter().flat_map(|row| serde_json::from_str::<Vec<String>>(row).unwrap());
    let below = format!("/{}/snapshots/", service.layout.name);
    let ids = layers.filter_map(|layer| layer.split_once(&below)?.1.split('/').next()?.parse().ok());
    expected.snapshots.extend(ids);
    expected
}
