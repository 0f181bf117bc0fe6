//! Forks.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use e2e::Expected;
use e2e::service::{Service, ServiceOptions, small, with};
use hyper::Method;
use serde_json::json;

use crate::{SANDBOXES, action_path, create_sandbox, ids, output, sandbox_path, state, text, user};

#[tokio::test]
async fn forks_have_the_disk_and_the_configuration() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let mut body = with(small(), "env", json!({ "KEPT": "yes", "CHANGED": "no" }));
    body["metadata"] = json!({ "job": "17" });
    body["network"] = json!({ "egress": { "default": "deny", "allow": ["example.com"] } });
    let source = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
    let id = text(&source["id"]);
    output(&client, &id, "echo kept > file; sleep 1000 >/dev/null 2>&1 &").await;
    let request = json!({ "count": 5, "env": { "CHANGED": "yes" } });
    let forks = client.post(&action_path(&id, "fork"), &request).await.unwrap().is(201).unwrap();
    let all = ids(&forks);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 5);
    for (fork, view) in all.iter().zip(forks["data"].as_array().unwrap()) {
        assert_eq!(view["state"], "running");
        for field in [
            "image",
            "resources",
            "metadata",
            "network",
            "timeoutMs",
            "idleTimeoutMs",
            "workdir",
            "isolation",
        ] {
            assert_eq!(view[field], source[field], "{field}");
        }
        let seen =
            output(&client, fork, "cat file; echo $KEPT $CHANGED; hostname; pgrep -c sleep || true").await;
        assert_eq!(seen, format!("kept\nyes yes\n{}\n0\n", fork.replace('_', "-")));
        output(&client, fork, &format!("echo {fork} > file")).await;
    }
    assert_eq!(output(&client, &id, "cat file; pgrep -c sleep").await, "kept\n1\n");
    let tagged = json!({ "count": 1, "metadata": { "other": "1" } });
    let tagged = client.post(&action_path(&id, "fork"), &tagged).await.unwrap().is(201).unwrap();
    assert_eq!(tagged["data"][0]["metadata"], json!({ "other": "1" }));
    // A fork of a fork, after its source is gone.
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let again =
        client.post(&action_path(&all[0], "fork"), &json!({ "count": 1 })).await.unwrap().is(201).unwrap();
    assert_eq!(output(&client, &ids(&again)[0], "cat file").await, format!("{}\n", all[0]));
    // The hidden copies are no snapshots, and are removed with the last fork.
    let page = client.get("/v1/snapshots").await.unwrap().is(200).unwrap();
    assert_eq!(page["pagination"]["total"], 0);
    for fork in all.iter().chain(&ids(&tagged)).chain(&ids(&again)) {
        client.delete(&sandbox_path(fork)).await.unwrap().is(200).unwrap();
    }
    let expected = Expected { daemon: service.pid(), ..Expected::default() };
    let left = e2e::wait_for_resources(&service.layout, &expected).await;
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_fork_that_does_not_fit_creates_nothing() {
    let options = ServiceOptions::default().with("quotas", "sandboxes", "4");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "fork");
    let error =
        client.post(&path, &json!({ "count": 4 })).await.unwrap().error(429, "QUOTA_EXCEEDED").unwrap();
    assert_eq!(error["details"]["quota"], "quotas.sandboxes");
    let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
    assert_eq!(usage["sandboxes"]["used"], 1);
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 1);
    let forks = client.post(&path, &json!({ "count": 3 })).await.unwrap().is(201).unwrap();
    assert_eq!(ids(&forks).len(), 3);
    for (body, code) in [
        (json!({ "count": 0 }), "INVALID_CONFIG"),
        (json!({ "count": 101 }), "INVALID_CONFIG"),
        (json!({}), "INVALID_REQUEST"),
        (json!({ "count": 1, "env": { "A=B": "x" } }), "INVALID_CONFIG"),
    ] {
        client.post(&path, &body).await.unwrap().error(400, code).unwrap();
    }
}

#[tokio::test]
async fn a_fork_beyond_the_capacity_of_the_host_creates_nothing() {
    // For the source and 59 forks.
    let options = ServiceOptions::default().with("capacity", "memory_mb", "122880").with(
        "capacity",
        "overcommit_memory",
        "1.0",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    output(&client, &id, "echo kept > file").await;
    let path = action_path(&id, "fork");
    let refused = client.post(&path, &json!({ "count": 100 })).await.unwrap();
    refused.error(503, "RESOURCE_EXHAUSTED").unwrap();
    let total = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    assert_eq!(total["pagination"]["total"], 1);
    let expected =
        Expected { daemon: service.pid(), alive: [id.parse().unwrap()].into(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
    let forks = client.post(&path, &json!({ "count": 59 })).await.unwrap().is(201).unwrap();
    for fork in ids(&forks) {
        assert_eq!(output(&client, &fork, "cat file").await, "kept\n");
    }
}

#[tokio::test]
async fn a_paused_sandbox_is_forked_and_stays_paused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "echo kept > file").await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let call = || {
        client
            .call(Method::POST, &action_path(&id, "fork"))
            .header("idempotency-key", "one")
            .json(&json!({ "count": 2 }))
            .send()
    };
    let (first, second) = (call().await.unwrap().is(201).unwrap(), call().await.unwrap().is(201).unwrap());
    assert_eq!(first, second, "a repeated request with the same key gets the same response");
    assert_eq!(state(&client, &id).await, "paused");
    for fork in ids(&first) {
        assert_eq!(output(&client, &fork, "cat file").await, "kept\n");
    }
}

/// The space that the copies of disks take on the host, in MB.
fn copies_mb(service: &Service) -> u64 {
    let dirs = std::fs::read_dir(service.layout.data.join("snapshots")).unwrap();
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).into_iter().flatten());
    let blocks: u64 = files.map(|file| file.unwrap().metadata().map_or(0, |file| file.blocks())).sum();
    (blocks * 512) >> 20
}

/// Forks a sandbox, writes 40 MB in the fork, ends the first one, and so on with the fork.
#[tokio::test]
async fn a_chain_of_forks_is_bounded_by_each_quota_that_counts_it() {
    for (quota, allowed_mb) in [("disk_mb", 2 * 5120 + 100), ("snapshots_mb", 100)] {
        let options = ServiceOptions::default().with("quotas", quota, &allowed_mb.to_string());
        let service = Service::start(&options).await.unwrap();
        let client = service.account().await.unwrap();
        let mut id = create_sandbox(&client).await;
        let mut forks = 0;
        let refused = loop {
            output(&client, &id, "file=/$RANDOM$RANDOM; head -c 40M /dev/urandom > $file; sync $file").await;
            let answer = client.post(&action_path(&id, "fork"), &json!({ "count": 1 })).await.unwrap();
            if answer.status == 429 {
                break answer.error(429, "QUOTA_EXCEEDED").unwrap();
            }
            forks += 1;
            assert!(forks <= 8, "no quota refuses a fork: {} MB of copies", copies_mb(&service));
            client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
            id = ids(&answer.is(201).unwrap()).remove(0);
        };
        assert_eq!(refused["details"]["quota"], format!("quotas.{quota}"), "{refused}");
        assert!(forks == 2 && copies_mb(&service) <= 100, "{forks} forks, {} MB", copies_mb(&service));
        // The refusal and the usage survive the daemon.
        service.kill().unwrap();
        service.start_process().await.unwrap();
        let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
        let used = |name: &str| usage[name]["used"].as_u64().unwrap();
        assert!((5120 + 80..5120 + 100).contains(&used("diskMb")), "{usage}");
        assert!((80 << 20..100 << 20).contains(&used("snapshotBytes")), "{usage}");
        let answer = client.post(&action_path(&id, "fork"), &json!({ "count": 1 })).await.unwrap();
        answer.error(429, "QUOTA_EXCEEDED").unwrap();
        // What is removed does not count.
        client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
        create_sandbox(&client).await;
        crate::wait_until("the copies do not count any more", async || {
            let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
            usage["snapshotBytes"]["used"] == 0 && usage["diskMb"]["used"] == 5120
        })
        .await;
        assert_eq!(copies_mb(&service), 0);
    }
}
