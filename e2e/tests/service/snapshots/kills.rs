//! `kill -9` of the daemon during snapshots, rollbacks, forks and deletions: what was acknowledged persists, everything else is complete
//! or has no effect, sandboxes run on, and no disk is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::Expected;
use e2e::service::{Client, Service, ServiceOptions};
use rand::RngExt;
use serde_json::{Value, json};

use crate::snapshots::{ask, with_holder};
use crate::{SANDBOXES, SNAPSHOTS, action_path, create_sandbox, output, rounds, sandbox_path, text};

const ROUNDS: u32 = 10;

/// Where a sandbox has the number that the test looks for: in a file, or in the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Disk,
    Memory,
}

impl Place {
    async fn create(self, client: &Client) -> String {
        match self {
            Self::Disk => {
                let id = create_sandbox(client).await;
                output(client, &id, "head -c 30M /dev/urandom > ballast; sync ballast").await;
                id
            }
            Self::Memory => with_holder(client).await,
        }
    }

    /// A command that puts a number there.
    fn put(self, number: u64) -> Value {
        let command = match self {
            Self::Disk => format!("echo {number} > file; sync file"),
            Self::Memory => format!("echo {number} > put; mv put set; while [ -e set ]; do sleep 0.01; done"),
        };
        json!({ "command": command })
    }

    /// The number of a sandbox, which may be paused.
    async fn get(self, client: &Client, id: &str) -> u64 {
        match self {
            Self::Disk => output(client, id, "cat file").await.trim().parse().unwrap(),
            Self::Memory => ask(client, id).await[0].parse().unwrap(),
        }
    }

    fn snapshot(self) -> Value {
        json!({ "memory": self == Self::Memory })
    }

    fn fork(self) -> Value {
        json!({ "count": 2, "memory": self == Self::Memory })
    }
}

/// What a client of one sandbox has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Acknowledged snapshots, with their number.
    snapshots: BTreeMap<String, u64>,
    forks: BTreeSet<String>,
    /// The number that the sandbox may have.
    numbers: BTreeSet<u64>,
    /// A rollback was not answered: the process of the sandbox may have ended.
    may_have_ended: bool,
}

/// Writes, takes snapshots, rolls back and forks until the daemon dies.
async fn work(client: Client, id: String, place: Place, mut seen: Seen, first: u64) -> Seen {
    let mut number = first;
    loop {
        number += 1;
        seen.numbers.insert(number);
        let Ok(answer) = client.post(&action_path(&id, "execute"), &place.put(number)).await else {
            return seen;
        };
        answer.is(200).unwrap();
        seen.numbers = [number].into();
        let Ok(answer) = client.post(&action_path(&id, "snapshots"), &place.snapshot()).await else {
            return seen;
        };
        seen.snapshots.insert(text(&answer.is(201).unwrap()["id"]), number);
        let (snapshot, content) =
            seen.snapshots.iter().next().map(|(id, number)| (id.clone(), *number)).unwrap();
        let next = rand::rng().random_range(0..4);
        match next {
            0 | 1 => {
                seen.numbers.insert(content);
                seen.may_have_ended = true;
                let body = json!({ "snapshotId": snapshot });
                let Ok(answer) = client.post(&action_path(&id, "rollback"), &body).await else { return seen };
                answer.is(200).unwrap();
                (seen.numbers, seen.may_have_ended) = ([content].into(), false);
            }
            2 => {
                let Ok(answer) = client.post(&action_path(&id, "fork"), &place.fork()).await else {
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

#[tokio::test]
async fn acknowledged_snapshots_survive_kills_of_the_daemon() {
    survive_kills(Place::Disk).await;
}

#[tokio::test]
async fn acknowledged_memory_survives_kills_of_the_daemon() {
    survive_kills(Place::Memory).await;
}

async fn survive_kills(place: Place) {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = place.create(&client).await;
    client.post(&action_path(&id, "execute"), &place.put(0)).await.unwrap().is(200).unwrap();
    let mut seen = Seen { numbers: [0].into(), ..Seen::default() };
    let first = client.post(&action_path(&id, "snapshots"), &place.snapshot()).await.unwrap();
    seen.snapshots.insert(text(&first.is(201).unwrap()["id"]), 0);
    for round in 0..rounds(ROUNDS) {
        let first = u64::from(round + 1) * 1000;
        let working = tokio::spawn(work(client.with_own_connections(), id.clone(), place, seen, first));
        tokio::time::sleep(Duration::from_millis(100 + rand::rng().random_range(0..1200))).await;
        service.kill().unwrap();
        seen = working.await.unwrap();
        service.start_process().await.unwrap();
        check(&service, &client.with_own_connections(), &id, place, &mut seen, round).await;
    }
    let client = client.with_own_connections();
    for found in all(&client, &format!("{SNAPSHOTS}?")).await {
        client.delete(&format!("{SNAPSHOTS}/{}", text(&found["id"]))).await.unwrap().is(200).unwrap();
    }
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let expected = Expected { daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
}

/// Compares a restarted service with what the client has seen.
async fn check(service: &Service, client: &Client, id: &str, place: Place, seen: &mut Seen, round: u32) {
    let found: BTreeSet<String> =
        all(client, &format!("{SNAPSHOTS}?")).await.iter().map(|found| text(&found["id"])).collect();
    for snapshot in seen.snapshots.keys() {
        assert!(found.contains(snapshot), "round {round}: acknowledged snapshot {snapshot} is gone");
    }
    // One acknowledged snapshot is complete.
    let last = seen.snapshots.iter().next_back().map(|(id, number)| (id.clone(), *number));
    if let Some((snapshot, number)) = &last {
        let body = json!({ "image": snapshot, "resources": { "memoryMb": 2048 } });
        let copy = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
        assert_eq!(place.get(client, &copy).await, *number, "round {round}");
    }
    if seen.may_have_ended
        && place == Place::Memory
        && let Some((snapshot, number)) = &last
    {
        let body = json!({ "snapshotId": snapshot });
        client.post(&action_path(id, "rollback"), &body).await.unwrap().is(200).unwrap();
        seen.numbers = [*number].into();
    }
    seen.may_have_ended = false;
    let number = place.get(client, id).await;
    assert!(seen.numbers.contains(&number), "round {round}: {number} is not among {:?}", seen.numbers);
    seen.numbers = [number].into();
    // Forks exist all or none, and are removed, so that the host has room.
    let living = all(client, &format!("{SANDBOXES}?state=running&")).await;
    let living: Vec<String> = living.iter().map(|found| text(&found["id"])).collect();
    for fork in &seen.forks {
        assert!(living.contains(fork), "round {round}: acknowledged fork {fork} is gone");
    }
    for other in living.iter().filter(|other| *other != id) {
        client.delete(&sandbox_path(other)).await.unwrap().is(200).unwrap();
    }
    seen.forks.clear();
    // One snapshot is kept, so that a page lists all.
    for snapshot in found.iter().filter(|id| last.as_ref().is_none_or(|(last, _)| last != *id)) {
        client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
    }
    seen.snapshots = last.into_iter().collect();
    let found = seen.snapshots.keys();
    let snapshots: BTreeSet<_> = found.map(|id| id.parse().unwrap()).collect();
    let expected = Expected {
        alive: [id.parse().unwrap()].into(),
        with_memory: if place == Place::Memory { snapshots.clone() } else { BTreeSet::new() },
        snapshots,
        daemon: service.pid(),
        ..Expected::default()
    };
    let left = e2e::wait_for_resources(&service.layout, &with_layers(service, expected)).await;
    assert_eq!(left, Vec::<String>::new(), "round {round}");
}

/// Adds the deleted snapshots that others have among their layers.
fn with_layers(service: &Service, mut expected: Expected) -> Expected {
    let query =
        "select layers from snapshots union all select layers from sandboxes where state != 'terminated'";
    let rows = service.stored(query).unwrap();
    let layers = rows.iter().flat_map(|row| serde_json::from_str::<Vec<String>>(row).unwrap());
    let below = format!("/{}/snapshots/", service.layout.name);
    let ids = layers.filter_map(|layer| layer.split_once(&below)?.1.split('/').next()?.parse().ok());
    expected.snapshots.extend(ids);
    expected
}
