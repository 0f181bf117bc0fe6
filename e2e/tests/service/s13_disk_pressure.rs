//! A host whose disk runs full: writers are paused before it is, nobody else is harmed, and work goes on when space is free.

use std::time::Duration;

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::operations::{metrics, sample};
use crate::{SANDBOXES, at, created, output, small, verb};

const DISK_MB: u64 = 3000;
const MB: u64 = 1 << 20;

async fn state(client: &Client, id: &str) -> Value {
    client.get(&at(id)).await.unwrap().is(200).unwrap()["state"].clone()
}

/// Waits longer than for anything that happens at once: disks are slow.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !so().await {
        assert!(begin.elapsed() < Duration::from_secs(90), "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn fill(client: &Client, id: &str) {
    let body = json!({ "command": "cat /dev/zero > /filled", "detached": true });
    client.post(&verb(id, "execute"), &body).await.unwrap().is(201).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_are_paused_before_the_disk_is_full_and_others_go_on() {
    let options = ServiceOptions::default().on_disk_mb(DISK_MB);
    let service = Service::start(&options).await.unwrap();
    let (loud, quiet) = (service.account().await.unwrap(), service.account().await.unwrap());
    let other = created(&quiet).await;
    assert_eq!(output(&quiet, &other, "echo before > /kept; cat /kept").await, "before\n");
    let writers = [created(&loud).await, created(&loud).await];
    // Older than what the watcher compares with.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for id in &writers {
        fill(&loud, id).await;
    }
    let mut least = u64::MAX;
    until("both writers are paused", async || {
        least = least.min(service.free_bytes().unwrap());
        state(&loud, &writers[0]).await == "paused" && state(&loud, &writers[1]).await == "paused"
    })
    .await;
    // Their dirty pages still get to the disk. How much is free then depends on the rate at which it takes them.
    let ballast = service.leave_free(100 * MB).unwrap();
    least = least.min(service.free_bytes().unwrap());
    until("the disk is short", async || {
        sample(&metrics(&service).await, "sandboxd_host_disk_pressure", &[]) == 1.0
    })
    .await;
    eprintln!("least free space: {} MB of {DISK_MB}", least / MB);
    assert!(least > 16 * MB, "{} MB were free", least / MB);

    for id in &writers {
        let events = loud.get(&format!("{}?type=sandbox.paused", verb(id, "events"))).await.unwrap();
        assert_eq!(events.is(200).unwrap()["data"][0]["data"]["reason"], "disk_pressure");
    }
    refused(&loud, &writers[0]).await;
    let said = metrics(&service).await;
    assert_eq!(sample(&said, "sandboxd_paused_total", &["disk_pressure"]), 2.0, "{said}");
    assert_eq!(sample(&said, "sandboxd_host_disk_pressure", &[]), 1.0, "{said}");

    // The quiet one runs on, its disk takes what it writes, and commits of the service succeed.
    assert_eq!(state(&quiet, &other).await, "running");
    assert_eq!(
        output(&quiet, &other, "cat /kept; echo more > /kept && sync && cat /kept").await,
        "before\nmore\n"
    );
    for number in 0..20 {
        let event = json!({ "type": "agent.thinking", "runId": "run", "data": { "number": number } });
        quiet.post(&verb(&other, "events"), &event).await.unwrap().is(201).unwrap();
    }

    // A daemon that starts on a full disk refuses as well, and loses nothing.
    service.restart().await.unwrap();
    refused(&loud, &writers[0]).await;
    assert_eq!(output(&quiet, &other, "cat /kept").await, "more\n");

    // Once space is free, the other writer goes on, on a disk that is whole.
    std::fs::remove_file(ballast).unwrap();
    loud.delete(&at(&writers[0])).await.unwrap().is(200).unwrap();
    until("there is space again", async || {
        loud.post(&verb(&writers[1], "resume"), &json!({})).await.unwrap().status == 200
    })
    .await;
    let result =
        output(&loud, &writers[1], "pkill cat; rm /filled && echo ok > /whole && sync && cat /whole").await;
    assert_eq!(result, "ok\n");
    created(&quiet).await;
    let said = metrics(&service).await;
    assert_eq!(sample(&said, "sandboxd_host_disk_pressure", &[]), 0.0, "{said}");
}

/// Creates, resumes and uploads name the disk and the key.
async fn refused(client: &Client, paused: &str) {
    let upload = client
        .call(Method::PUT, &format!("{}?path=/x&autoResume=false", verb(paused, "files")))
        .body("application/octet-stream", vec![0; 10])
        .send()
        .await
        .unwrap();
    for answer in [
        client.post(SANDBOXES, &small()).await.unwrap(),
        client.order(&verb(paused, "resume")).await.unwrap(),
        client.post(&verb(paused, "execute"), &json!({ "command": "true" })).await.unwrap(),
        upload,
    ] {
        let error = answer.error(503, "RESOURCE_EXHAUSTED").unwrap();
        assert_eq!(error["details"]["key"], "capacity.reserve_disk_mb", "{error}");
        assert!(error["message"].as_str().unwrap().contains("disk of the host"), "{error}");
    }
}

/// Of what is really free, without overcommit, only so much is promised.
#[tokio::test]
async fn a_disk_is_promised_by_what_is_free() {
    let options = ServiceOptions::default()
        .on_disk_mb(15_000)
        .with("capacity", "overcommit_disk", "1.0")
        .with("capacity", "reserve_disk_mb", "700");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    // Two disks of 5120 MB fit beside the image, three do not: the size of the file system is not what is free.
    let first = created(&client).await;
    created(&client).await;
    let error = client.post(SANDBOXES, &small()).await.unwrap().error(503, "RESOURCE_EXHAUSTED").unwrap();
    assert_eq!(error["details"]["key"], "capacity.overcommit_disk", "{error}");
    // What is written to a disk that is promised takes nothing from what is promised.
    output(&client, &first, "head -c 1500M /dev/zero > /big; sync").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    client.delete(&at(&first)).await.unwrap().is(200).unwrap();
    created(&client).await;
}
