//! Copies of snapshots on a real S3 server: other services read them, also after both sides were killed, and nothing is left of deleted
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::s3::S3Server;
use e2e::service::{Client, Service, ServiceOptions, small, with};
use rand::RngExt;
use serde_json::{Value, json};

use crate::snapshots::{ask, create_from, with_holder};
use crate::{
    SANDBOXES, SNAPSHOTS, action_path, create_sandbox, output, rounds, sandbox_path, state, take_snapshot,
    text, wait_until,
};

const ROUNDS: u32 = 6;

/// Services with one account of the same name.
async fn service(s3: &S3Server) -> (Service, Client) {
    let service = Service::start(&s3.options(ServiceOptions::default())).await.unwrap();
    let client = service.client(&service.key("team", "read,execute,write").unwrap()).unwrap();
    (service, client)
}

async fn snapshot(client: &Client, id: &str) -> Value {
    client.get(&format!("{SNAPSHOTS}/{id}")).await.unwrap().is(200).unwrap()
}

async fn is_at(client: &Client, id: &str, storage: &str) {
    wait_until("the object store", async || snapshot(client, id).await["storage"] == storage).await;
}

async fn delete(client: &Client, path: &str) {
    client.delete(path).await.unwrap().is(200).unwrap();
}

/// The chunks of the store are those that its manifests have.
fn check_chunks(s3: &S3Server) {
    let hash = |chunk: &Value| chunk[1].as_str().unwrap().to_owned();
    let mut expected = BTreeSet::new();
    for (_, manifest) in s3.manifests().unwrap() {
        for file in
            manifest["parts"].as_array().unwrap().iter().flat_map(|part| part["files"].as_array().unwrap())
        {
            let chunks = file["chunks"].as_array().unwrap().iter().map(hash);
            expected.extend(chunks.map(|hash| (text(&manifest["host"]), hash)));
        }
    }
    assert_eq!(s3.chunks().unwrap().len(), expected.len());
}

#[tokio::test]
async fn another_service_creates_from_a_stored_snapshot() {
    let s3 = S3Server::start().unwrap();
    let ((one, client), (two, elsewhere)) = (service(&s3).await, service(&s3).await);
    let id = create_sandbox(&client).await;
    output(&client, &id, "head -c 20M /dev/urandom > random; sha256sum random > sum; sync").await;
    let first = take_snapshot(&client, &id).await;
    let above = create_from(&client, &first).await;
    output(&client, &above, "echo more > more").await;
    let second = take_snapshot(&client, &above).await;
    is_at(&client, &second, "stored").await;
    let sent = s3.chunks().unwrap().len();
    assert!((20..60).contains(&sent), "{sent} chunks");

    assert_eq!(snapshot(&elsewhere, &second).await["storage"], "remote");
    let copy = create_from(&elsewhere, &second).await;
    assert_eq!(output(&elsewhere, &copy, "sha256sum -c sum; cat more").await, "random: OK\nmore\n");
    // It has its own disk, and the service its own snapshots of it.
    output(&elsewhere, &copy, "echo other > more").await;
    let third = take_snapshot(&elsewhere, &copy).await;
    is_at(&elsewhere, &third, "stored").await;
    let back = create_from(&client, &third).await;
    assert_eq!(output(&client, &back, "sha256sum -c sum; cat more").await, "random: OK\nother\n");

    // Other accounts have no access, and the service of a snapshot deletes it.
    let stranger = two.account().await.unwrap();
    let path = format!("{SNAPSHOTS}/{second}");
    stranger.get(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
    elsewhere.delete(&path).await.unwrap().error(409, "INVALID_STATE").unwrap();
    delete(&client, &path).await;
    delete(&client, &format!("{SNAPSHOTS}/{first}")).await;
    delete(&elsewhere, &format!("{SNAPSHOTS}/{third}")).await;
    wait_until("the object store", async || s3.objects().unwrap().is_empty()).await;
    elsewhere.get(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
    assert_eq!(output(&elsewhere, &copy, "sha256sum -c sum").await, "random: OK\n");
    drop((one, two));
}

#[tokio::test]
async fn processes_continue_on_another_service() {
    let s3 = S3Server::start().unwrap();
    let ((_one, client), (_two, elsewhere)) = (service(&s3).await, service(&s3).await);
    let id = with_holder(&client).await;
    let before = ask(&client, &id).await;
    let taken = client.post(&action_path(&id, "snapshots"), &json!({ "memory": true })).await.unwrap();
    let taken = text(&taken.is(201).unwrap()["id"]);
    is_at(&client, &taken, "stored").await;
    delete(&client, &sandbox_path(&id)).await;
    let copy = create_from(&elsewhere, &taken).await;
    let after = ask(&elsewhere, &copy).await;
    // The secret is in memory only.
    assert_eq!((&after[1..], before.len()), (&before[1..], 4));
}

#[tokio::test]
async fn a_hibernated_sandbox_continues_on_another_service() {
    let s3 = S3Server::start().unwrap();
    let ((one, client), (_two, elsewhere)) = (service(&s3).await, service(&s3).await);
    let id = with_holder(&client).await;
    let before = ask(&client, &id).await;
    let resume = action_path(&id, "resume");
    let adopt = json!({ "adopt": true });
    elsewhere.post(&resume, &adopt).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    let hibernate = json!({ "hibernate": true });
    client.post(&action_path(&id, "pause"), &hibernate).await.unwrap().is(200).unwrap();
    wait_until("the copy", async || s3.manifests().unwrap().iter().any(|(stored, _)| *stored == id)).await;
    one.kill().unwrap();
    elsewhere.post(&resume, &json!({})).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    elsewhere.post(&resume, &adopt).await.unwrap().is(200).unwrap();
    let after = ask(&elsewhere, &id).await;
    // The secret is in memory only.
    assert_eq!((&after[1..], before.len()), (&before[1..], 4));
    assert_eq!(state(&elsewhere, &id).await, "running");
    // Its former service gives it up, and nothing of it is left in the store.
    one.start_process().await.unwrap();
    wait_until("the end of the former one", async || {
        let found = client.get(&sandbox_path(&id)).await.unwrap();
        found.status == 404 && found.text().contains("adopted")
    })
    .await;
    wait_until("the object store", async || s3.objects().unwrap().is_empty()).await;
}

#[tokio::test]
async fn damaged_and_lost_objects_are_noticed() {
    let s3 = S3Server::start().unwrap();
    let ((one, client), (two, elsewhere)) = (service(&s3).await, service(&s3).await);
    let id = create_sandbox(&client).await;
    output(&client, &id, "head -c 3M /dev/urandom > random; sha256sum random > sum; sync").await;
    let taken = take_snapshot(&client, &id).await;
    is_at(&client, &taken, "stored").await;
    let largest = s3.chunks().unwrap().into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let content = std::fs::read(&largest).unwrap();
    let mut damaged = content.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&largest, damaged).unwrap();
    let body = with(small(), "image", json!(taken));
    // The client takes an internal error for a failed test.
    let failed = elsewhere.post(SANDBOXES, &body).await.unwrap_err();
    assert!(format!("{failed:#}").contains("lost or damaged a part of the snapshot"), "{failed:#}");
    let name = largest.file_name().unwrap().to_str().unwrap();
    assert!(two.log().contains(name), "the log does not name the object");
    let listed = elsewhere.get(SANDBOXES).await.unwrap().is(200).unwrap();
    assert_eq!(listed["pagination"]["total"], 0);
    std::fs::write(&largest, content).unwrap();
    let copy = create_from(&elsewhere, &taken).await;
    assert_eq!(output(&elsewhere, &copy, "sha256sum -c sum").await, "random: OK\n");
    // The next start stores again what is missing.
    std::fs::remove_file(&largest).unwrap();
    one.kill().unwrap();
    one.start_process().await.unwrap();
    wait_until("the object store", async || largest.exists()).await;
    is_at(&client, &taken, "stored").await;
}

#[tokio::test]
async fn a_service_without_its_object_store_works_and_catches_up() {
    let s3 = S3Server::start().unwrap();
    let (one, client) = service(&s3).await;
    s3.kill().unwrap();
    let id = create_sandbox(&client).await;
    output(&client, &id, "echo kept > file").await;
    let taken = take_snapshot(&client, &id).await;
    assert_eq!(snapshot(&client, &taken).await["storage"], "uploading");
    one.kill().unwrap();
    one.start_process().await.unwrap();
    let copy = create_from(&client, &taken).await;
    assert_eq!(output(&client, &copy, "cat file").await, "kept\n");
    let body = with(small(), "image", json!("snap_00000000000000000000"));
    client.post(SANDBOXES, &body).await.unwrap().error(503, "RESOURCE_EXHAUSTED").unwrap();
    s3.start_process().unwrap();
    is_at(&client, &taken, "stored").await;
    let events = client
        .get(&format!("/v1/events?sandboxId={id}&type=snapshot.stored"))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    assert_eq!(events["data"][0]["data"]["snapshotId"], json!(taken), "{events}");
    client.post(SANDBOXES, &body).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
}

/// Takes and deletes snapshots until the service dies. Returns what was acknowledged, with the number in the snapshot.
async fn work(
    client: Client,
    id: String,
    mut seen: BTreeMap<String, u64>,
    mut number: u64,
) -> BTreeMap<String, u64> {
    loop {
        number += 1;
        let command = format!("echo {number} > file; head -c 5M /dev/urandom > random; sync");
        let Ok(done) = client.post(&action_path(&id, "execute"), &json!({ "command": command })).await else {
            return seen;
        };
        done.is(200).unwrap();
        let Ok(taken) = client.post(&action_path(&id, "snapshots"), &json!({})).await else { return seen };
        seen.insert(text(&taken.is(201).unwrap()["id"]), number);
        if seen.len() > 3 {
            let (oldest, _) = seen.pop_first().unwrap();
            let Ok(deleted) = client.delete(&format!("{SNAPSHOTS}/{oldest}")).await else { return seen };
            deleted.is(200).unwrap();
        }
    }
}

#[tokio::test]
async fn kills_of_both_sides_lose_no_snapshot_and_leave_no_object() {
    let s3 = S3Server::start().unwrap();
    let ((one, client), (_two, elsewhere)) = (service(&s3).await, service(&s3).await);
    let id = create_sandbox(&client).await;
    let mut seen = BTreeMap::new();
    for round in 0..rounds(ROUNDS) {
        let worker = tokio::spawn(work(client.clone(), id.clone(), seen, u64::from(round) * 1000));
        let pause = || Duration::from_millis(rand::rng().random_range(100..900));
        tokio::time::sleep(pause()).await;
        s3.kill().unwrap();
        tokio::time::sleep(pause()).await;
        if round % 2 == 0 {
            s3.start_process().unwrap();
            tokio::time::sleep(pause()).await;
        }
        one.kill().unwrap();
        seen = worker.await.unwrap();
        one.start_process().await.unwrap();
        if round % 2 == 1 {
            s3.start_process().unwrap();
        }
    }
    let listed = client.get(&format!("{SNAPSHOTS}?limit=100")).await.unwrap().is(200).unwrap();
    let listed: BTreeSet<String> =
        listed["data"].as_array().unwrap().iter().map(|view| text(&view["id"])).collect();
    for (taken, number) in &seen {
        assert!(listed.contains(taken), "{taken} is lost");
        is_at(&client, taken, "stored").await;
        let copy = create_from(&elsewhere, taken).await;
        assert_eq!(output(&elsewhere, &copy, "cat file").await, format!("{number}\n"));
        delete(&elsewhere, &sandbox_path(&copy)).await;
    }
    for taken in &listed {
        is_at(&client, taken, "stored").await;
    }
    wait_until("the manifests", async || {
        s3.manifests().unwrap().into_iter().map(|(id, _)| id).collect::<BTreeSet<_>>() == listed
    })
    .await;
    check_chunks(&s3);
    for taken in &listed {
        delete(&client, &format!("{SNAPSHOTS}/{taken}")).await;
    }
    wait_until("the object store", async || s3.objects().unwrap().is_empty()).await;
}
