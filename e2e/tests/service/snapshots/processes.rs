//! Snapshots, forks and rollbacks with processes, under gVisor.

use std::collections::BTreeSet;

use e2e::service::{Client, small, with};
use hyper::Method;
use serde_json::{Value, json};

use crate::snapshots::{ask, with_holder};
use crate::{
    SANDBOXES, SNAPSHOTS, action_path, execution_path, ids, output, sandbox_path, state, text, time, user,
    wait_until,
};

async fn create(client: &Client, body: Value) -> String {
    let created = client.post(SANDBOXES, &with(body, "isolation", json!("gvisor"))).await.unwrap();
    text(&created.is(201).unwrap()["id"])
}

async fn set(client: &Client, id: &str, number: u64) {
    let command = format!("echo {number} > put; mv put set; while [ -e set ]; do sleep 0.01; done");
    output(client, id, &command).await;
}

/// A snapshot with processes.
async fn take(client: &Client, id: &str) -> String {
    let taken = client.post(&action_path(id, "snapshots"), &json!({ "memory": true })).await.unwrap();
    text(&taken.is(201).unwrap()["id"])
}

fn from(snapshot: &str) -> Value {
    with(small(), "image", json!(snapshot))
}

#[tokio::test]
async fn copies_continue_and_the_source_is_not_disturbed() {
    let (_service, client) = user().await;
    let id = with_holder(&client).await;
    set(&client, &id, 7).await;
    let before = ask(&client, &id).await;
    assert_eq!((before[0].as_str(), before[3].as_str()), ("7", "forwards"));
    let generation = output(&client, &id, "cat /dev/sandbox-generation").await;
    assert_eq!(generation.trim().len(), 32);
    // A client that is connected meanwhile misses nothing.
    let body = json!({ "command": "for n in $(seq 60); do echo $n; sleep 0.05; done" });
    let own = client.with_own_connections();
    let mut attached =
        own.call(Method::POST, &action_path(&id, "execute")).json(&body).stream().await.unwrap();
    assert_eq!(attached.next().await.unwrap().unwrap().data, "1");
    let taken = client.post(&action_path(&id, "snapshots"), &json!({ "memory": true })).await.unwrap();
    let taken = taken.is(201).unwrap();
    assert_eq!((&taken["memory"], &taken["isolation"]), (&json!(true), &json!("gvisor")));
    assert!(taken["sizeBytes"].as_u64().unwrap() > 1 << 20, "{taken}");
    let snapshot = text(&taken["id"]);
    assert_eq!(client.get(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap(), taken);
    for number in 2..=60 {
        assert_eq!(attached.next().await.unwrap().unwrap().data, number.to_string());
    }
    set(&client, &id, 8).await;
    let copy = create(&client, from(&snapshot)).await;
    let forks = json!({ "count": 2, "memory": true });
    let forks = client.post(&action_path(&id, "fork"), &forks).await.unwrap().is(201).unwrap();
    let all: Vec<String> = [vec![copy.clone()], ids(&forks)].concat();
    let mut generations = BTreeSet::from([generation]);
    let mut random = BTreeSet::new();
    for (copy, number) in all.iter().zip(["7", "8", "8"]) {
        assert_eq!(ask(&client, copy).await, [vec![number.to_owned()], before[1..].to_vec()].concat());
        let seen = output(
            &client,
            copy,
            "hostname; date +%s; cat /dev/sandbox-generation; head -c 8 /dev/urandom | od -An -tx1",
        )
        .await;
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines[0], copy.replace('_', "-"));
        assert!(lines[1].parse::<u64>().unwrap().abs_diff(crate::now_ms() / 1000) <= 2, "the clock is wrong");
        assert!(generations.insert(format!("{}\n", lines[2])), "the generation is not new");
        assert!(random.insert(lines[3].to_owned()), "random numbers repeat");
        // They are independent of each other.
        set(&client, copy, 100).await;
    }
    assert_eq!(ask(&client, &id).await[0], "8");
    // Without the processes, on request only.
    let cold = create(&client, with(from(&snapshot), "cold", json!(true))).await;
    assert_eq!(output(&client, &cold, "pgrep -c perl || true; ls holder").await, "0\nholder\n");
}

#[tokio::test]
async fn detached_executions_continue_in_copies() {
    let (_service, client) = user().await;
    let id = create(&client, small()).await;
    let command = "for n in $(seq 100); do echo line $n; sleep 0.03; done; read last; echo $last; exit 7";
    let body = json!({ "command": command, "detached": true, "openStdin": true, "timeoutMs": 600_000 });
    let started = client.post(&action_path(&id, "execute"), &body).await.unwrap();
    let execution = text(&started.is(201).unwrap()["executionId"]);
    wait_until("it prints", async || {
        let shown = client.get(&execution_path(&id, &execution, "/output")).await.unwrap().is(200).unwrap();
        text(&shown["stdout"]).contains("line 10\n")
    })
    .await;
    let snapshot = take(&client, &id).await;
    let forks = json!({ "count": 1, "memory": true });
    let forks = client.post(&action_path(&id, "fork"), &forks).await.unwrap().is(201).unwrap();
    let fork = ids(&forks).remove(0);
    let copy = create(&client, from(&snapshot)).await;
    let expected: String = (1..=100).map(|n| format!("line {n}\n")).collect();
    for (id, last) in [(&id, "source"), (&fork, "fork"), (&copy, "copy")] {
        let path = execution_path(id, &execution, "/stdin");
        let written = client.call(Method::POST, &path).body("text/plain", format!("{last}\n").into());
        written.send().await.unwrap().is(200).unwrap();
        wait_until("it ends", async || {
            let status = client.get(&execution_path(id, &execution, "")).await.unwrap().is(200).unwrap();
            status["state"] == "exited" && status["exitCode"] == 7
        })
        .await;
        let path = execution_path(id, &execution, "/output");
        let shown = client.get(&path).await.unwrap().is(200).unwrap();
        assert_eq!(text(&shown["stdout"]), format!("{expected}{last}\n"));
    }
}

#[tokio::test]
async fn a_paused_or_hibernated_source_stays_so() {
    let (_service, client) = user().await;
    let id = with_holder(&client).await;
    set(&client, &id, 5).await;
    for body in [json!({}), json!({ "hibernate": true })] {
        client.post(&action_path(&id, "pause"), &body).await.unwrap().is(200).unwrap();
        let before = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
        let snapshot = take(&client, &id).await;
        let fork = json!({ "count": 1, "memory": true });
        let fork = client.post(&action_path(&id, "fork"), &fork).await.unwrap().is(201).unwrap();
        assert_eq!(client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap(), before);
        for copy in [create(&client, from(&snapshot)).await, ids(&fork).remove(0)] {
            assert_eq!(ask(&client, &copy).await[0], "5");
        }
        assert_eq!(ask(&client, &id).await[0], "5");
    }
    // Without processes there is nothing to store.
    client.post(&action_path(&id, "pause"), &json!({})).await.unwrap().is(200).unwrap();
    client.post(&action_path(&id, "resume"), &json!({ "cold": true })).await.unwrap().is(200).unwrap();
    assert_eq!(output(&client, &id, "pgrep -c perl || true").await, "0\n");
}

#[tokio::test]
async fn a_rollback_continues_the_processes_of_the_snapshot() {
    let (_service, client) = user().await;
    let id = with_holder(&client).await;
    set(&client, &id, 1).await;
    let before = ask(&client, &id).await;
    let snapshot = take(&client, &id).await;
    let body = json!({ "snapshotId": snapshot });
    for (round, paused) in [None, Some(json!({})), Some(json!({ "hibernate": true }))].into_iter().enumerate()
    {
        set(&client, &id, 2).await;
        output(&client, &id, "echo later > file; pkill perl").await;
        if let Some(pause) = paused {
            client.post(&action_path(&id, "pause"), &pause).await.unwrap().is(200).unwrap();
        }
        let view = client.post(&action_path(&id, "rollback"), &body).await.unwrap().is(200).unwrap();
        assert_eq!((&view["state"], view.get("hibernatedAt")), (&json!("running"), None));
        assert_eq!(ask(&client, &id).await, before, "round {round}");
        assert_eq!(output(&client, &id, "ls file 2> /dev/null || true").await, "");
    }
}

#[tokio::test]
async fn what_cannot_be_stored_or_continued_is_refused() {
    let (service, client) = user().await;
    let container = text(&client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap()["id"]);
    for (verb, body) in
        [("snapshots", json!({ "memory": true })), ("fork", json!({ "count": 1, "memory": true }))]
    {
        let refused = client.post(&action_path(&container, verb), &body).await.unwrap();
        refused.error(409, "ISOLATION_MISMATCH").unwrap();
        let wrong = with(body, "memory", json!("yes"));
        client
            .post(&action_path(&container, verb), &wrong)
            .await
            .unwrap()
            .error(400, "INVALID_REQUEST")
            .unwrap();
    }
    let id = with_holder(&client).await;
    // gVisor cannot store an open deleted file. The snapshot fails, and the sandbox goes on.
    output(
        &client,
        &id,
        "setsid bash -c 'exec 3> gone; rm gone; exec sleep 999' < /dev/null > /dev/null 2>&1 &",
    )
    .await;
    output(&client, &id, "until pgrep sleep > /dev/null && [ ! -e gone ]; do sleep 0.01; done").await;
    let refused = client.post(&action_path(&id, "snapshots"), &json!({ "memory": true })).await.unwrap();
    let error = refused.error(409, "ISOLATION_MISMATCH").unwrap();
    assert!(text(&error["message"]).contains("gone"), "{error}");
    output(&client, &id, "pkill sleep").await;
    set(&client, &id, 3).await;
    let snapshot = take(&client, &id).await;
    let refused = |body: Value, status: u16, code: &'static str| {
        let client = client.clone();
        async move { client.post(SANDBOXES, &body).await.unwrap().error(status, code).unwrap() }
    };
    let container = with(from(&snapshot), "isolation", json!("container"));
    assert_eq!(refused(container, 400, "INVALID_CONFIG").await["details"]["field"], "isolation");
    let larger = json!({ "memoryMb": 4096, "diskMb": 6000 });
    let copy = create(&client, with(from(&snapshot), "resources", larger)).await;
    assert_eq!(ask(&client, &copy).await[0], "3");
    let of_larger = take(&client, &copy).await;
    let error = refused(from(&of_larger), 400, "INVALID_CONFIG").await;
    assert_eq!(error["details"]["field"], "resources.memoryMb", "{error}");
    refused(with(from(&snapshot), "cold", json!("yes")), 400, "INVALID_REQUEST").await;
    // Of another release of gVisor.
    let memory = service.layout.data.join("snapshots").join(&snapshot).join("memory");
    let release = memory.join("release");
    let own = std::fs::read(&release).unwrap();
    std::fs::write(&release, "gVisor release 20200101").unwrap();
    let error = refused(from(&snapshot), 409, "ISOLATION_MISMATCH").await;
    assert!(text(&error["message"]).contains("gVisor release 20200101"), "{error}");
    assert!(text(&error["message"]).contains("'cold'"), "{error}");
    let rollback =
        client.post(&action_path(&id, "rollback"), &json!({ "snapshotId": snapshot })).await.unwrap();
    rollback.error(409, "ISOLATION_MISMATCH").unwrap();
    assert_eq!(
        (state(&client, &id).await, ask(&client, &id).await[0].clone()),
        ("running".into(), "3".into())
    );
    std::fs::write(&release, own).unwrap();
    let cold = create(&client, with(from(&snapshot), "cold", json!(true))).await;
    assert_eq!(output(&client, &cold, "ls holder; pgrep -c perl || true").await, "holder\n0\n");
    assert_eq!(ask(&client, &create(&client, from(&snapshot)).await).await[0], "3");
}

/// The files of a snapshot are shared with those that continue it, and must not change.
#[tokio::test]
async fn a_snapshot_can_be_used_many_times_and_deleted_meanwhile() {
    let (service, client) = user().await;
    let id = with_holder(&client).await;
    set(&client, &id, 4).await;
    let snapshot = take(&client, &id).await;
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let dir = service.layout.data.join("snapshots").join(&snapshot);
    let content = || -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let files = std::fs::read_dir(dir.join("memory")).unwrap();
        files
            .map(|file| file.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect()
    };
    let before = content();
    let mut copies = Vec::new();
    for _ in 0..3 {
        let copy = create(&client, from(&snapshot)).await;
        set(&client, &copy, 9).await;
        copies.push(copy);
    }
    assert!(content() == before, "the stored processes have changed");
    client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
    // The disk stays for the copies, the processes are not needed any more.
    wait_until("the processes are removed", async || !dir.join("memory").exists()).await;
    assert!(dir.exists());
    for copy in &copies {
        assert_eq!(ask(&client, copy).await[0], "9");
        client.delete(&sandbox_path(copy)).await.unwrap().is(200).unwrap();
    }
    wait_until("the disk is removed", async || !dir.exists()).await;
}

#[tokio::test]
async fn a_snapshot_of_memory_is_an_event_with_its_size() {
    let (_service, client) = user().await;
    let id = create(&client, small()).await;
    let snapshot = take(&client, &id).await;
    let path = format!("/v1/events?sandboxId={id}&type=snapshot.created");
    let events = client.get(&path).await.unwrap().is(200).unwrap();
    let data = &events["data"][0]["data"];
    assert_eq!((&data["snapshotId"], &data["memory"]), (&json!(snapshot), &json!(true)));
    assert!(data["frozenMs"].as_u64().unwrap() > 0, "{data}");
    let info = client.get("/v1/info").await.unwrap().is(200).unwrap();
    for (isolation, can) in [("container", false), ("gvisor", true)] {
        let backends = info["backends"].as_array().unwrap();
        let backend = backends.iter().find(|backend| backend["name"] == isolation).unwrap();
        assert_eq!(backend["memorySnapshots"], can, "{info}");
    }
    let listed = client.get(&format!("{SNAPSHOTS}?sandboxId={id}")).await.unwrap().is(200).unwrap();
    assert!(time(&listed["data"][0]["createdAt"]) > 0);
}
