//! Disk pressure: writers are paused before the disk is full, other sandboxes continue, and work resumes when space is free.

use std::io::Write;
use std::time::Duration;

use e2e::service::{Client, Service, ServiceOptions, sample};
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    SANDBOXES, action_path, create_sandbox, execution_path, output, sandbox_path, small, state, text,
    wait_until,
};

const DISK_MB: u64 = 3000;
const MB: u64 = 1 << 20;

/// Both tests fill file systems on the same disk of the host, and depend on how fast that is.
static HOST_DISK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn fill(client: &Client, id: &str) {
    let body = json!({ "command": "cat /dev/zero > /filled", "detached": true });
    client.post(&action_path(id, "execute"), &body).await.unwrap().is(201).unwrap();
}

/// Runs a command that waits for the disk, which takes longer than a request may while the pages of the writers are
/// written. The command syncs only its file, because sync without a file waits for all file systems of the host. A
/// sandbox whose writer continues may be paused again before the command ends that writer, and even before the command starts; it
/// is resumed.
async fn run_to_disk(client: &Client, id: &str, command: &str) {
    let body = json!({ "command": command, "detached": true });
    let path = action_path(id, "execute");
    let starting = client.with_own_connections();
    let started = tokio::select! {
        started = starting.post(&path, &body) => started.unwrap().is(201).unwrap(),
        () = keep_running(client, id) => unreachable!(),
    };
    let execution = execution_path(id, &text(&started["executionId"]), "");
    let mut last = Value::Null;
    wait_until(command, async || {
        last = client.get(&execution).await.unwrap().is(200).unwrap();
        if state(client, id).await == "paused" {
            client.post_empty(&action_path(id, "resume")).await.unwrap();
        }
        last["state"] == "exited"
    })
    .await;
    assert_eq!(last["exitCode"], 0, "{command}: {last}");
}

/// Resumes a sandbox whenever it is paused.
async fn keep_running(client: &Client, id: &str) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if state(client, id).await == "paused" {
            client.post_empty(&action_path(id, "resume")).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_are_paused_before_the_disk_is_full_and_others_continue() {
    let _alone = HOST_DISK.lock().await;
    let options = ServiceOptions::default().on_disk_mb(DISK_MB);
    let service = Service::start(&options).await.unwrap();
    let (loud, quiet) = (service.account().await.unwrap(), service.account().await.unwrap());
    let other = create_sandbox(&quiet).await;
    assert_eq!(output(&quiet, &other, "echo before > /kept; cat /kept").await, "before\n");
    let writers = [create_sandbox(&loud).await, create_sandbox(&loud).await];
    // Older than the host watcher's comparison period.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for id in &writers {
        fill(&loud, id).await;
    }
    let mut least = u64::MAX;
    wait_until("both writers are paused", async || {
        least = least.min(service.free_bytes().unwrap());
        state(&loud, &writers[0]).await == "paused" && state(&loud, &writers[1]).await == "paused"
    })
    .await;
    // Dirty pages of the writers are still written to the disk, at a rate that decides how much stays free.
    let ballast = service.leave_free(100 * MB).unwrap();
    least = least.min(service.free_bytes().unwrap());
    wait_until("disk pressure begins", async || {
        sample(&service.read_metrics().await.unwrap(), "sandboxd_host_disk_pressure", &[]) == 1.0
    })
    .await;
    eprintln!("least free space: {} MB of {DISK_MB}", least / MB);
    assert!(least > 16 * MB, "{} MB were free", least / MB);

    for id in &writers {
        let events = loud.get(&format!("{}?type=sandbox.paused", action_path(id, "events"))).await.unwrap();
        assert_eq!(events.is(200).unwrap()["data"][0]["data"]["reason"], "disk_pressure");
    }
    assert_refused(&loud, &writers[0]).await;
    let samples = service.read_metrics().await.unwrap();
    assert_eq!(sample(&samples, "sandboxd_paused_total", &["disk_pressure"]), 2.0, "{samples}");
    assert_eq!(sample(&samples, "sandboxd_host_disk_pressure", &[]), 1.0, "{samples}");

    // The quiet sandbox continues and can write, and commits of the service succeed.
    assert_eq!(state(&quiet, &other).await, "running");
    run_to_disk(&quiet, &other, "echo more >> /kept && sync /kept").await;
    assert_eq!(output(&quiet, &other, "cat /kept").await, "before\nmore\n");
    for number in 0..20 {
        let event = json!({ "type": "agent.thinking", "runId": "run", "data": { "number": number } });
        quiet.post(&action_path(&other, "events"), &event).await.unwrap().is(201).unwrap();
    }

    // A daemon that starts under disk pressure refuses too, and loses nothing.
    service.restart().await.unwrap();
    assert_refused(&loud, &writers[0]).await;
    assert_eq!(output(&quiet, &other, "cat /kept").await, "before\nmore\n");

    // When space is free, the other writer continues and its disk is intact.
    std::fs::remove_file(ballast).unwrap();
    loud.delete(&sandbox_path(&writers[0])).await.unwrap().is(200).unwrap();
    wait_until("space is free again", async || {
        loud.post(&action_path(&writers[1], "resume"), &json!({})).await.unwrap().status == 200
    })
    .await;
    run_to_disk(&loud, &writers[1], "pkill cat; rm /filled && echo ok > /whole && sync /whole").await;
    assert_eq!(output(&loud, &writers[1], "cat /whole").await, "ok\n");
    wait_until("disk pressure ends", async || {
        sample(&service.read_metrics().await.unwrap(), "sandboxd_host_disk_pressure", &[]) == 0.0
    })
    .await;
    create_sandbox(&quiet).await;
}

/// Creates, resumes, snapshots, forks and uploads are refused with an error that names the disk and the configuration key.
async fn assert_refused(client: &Client, paused: &str) {
    let upload = client
        .call(Method::PUT, &format!("{}?path=/x&autoResume=false", action_path(paused, "files")))
        .body("application/octet-stream", vec![0; 10])
        .send()
        .await
        .unwrap();
    for answer in [
        client.post(SANDBOXES, &small()).await.unwrap(),
        client.post_empty(&action_path(paused, "resume")).await.unwrap(),
        client.post(&action_path(paused, "execute"), &json!({ "command": "true" })).await.unwrap(),
        client.post(&action_path(paused, "snapshots"), &json!({})).await.unwrap(),
        client.post(&action_path(paused, "fork"), &json!({ "count": 2 })).await.unwrap(),
        upload,
    ] {
        let error = answer.error(503, "RESOURCE_EXHAUSTED").unwrap();
        assert_eq!(error["details"]["key"], "capacity.reserve_disk_mb", "{error}");
        assert!(error["message"].as_str().unwrap().contains("disk of the host"), "{error}");
    }
}

/// Another program fills the disk: a paused sandbox goes on when there is space.
#[tokio::test]
async fn a_paused_sandbox_outlives_a_full_disk_and_a_start_on_it() {
    let _alone = HOST_DISK.lock().await;
    let service = Service::start(&ServiceOptions::default().on_disk_mb(DISK_MB)).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    assert_eq!(output(&client, &id, "echo before > /kept; sync /kept; cat /kept").await, "before\n");
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let ballast = service.leave_free(MB).unwrap();

    // Nothing that is full keeps a daemon from taking it over.
    service.kill().unwrap();
    let rest = ballast.with_extension("rest");
    let mut filler = std::fs::File::create(&rest).unwrap();
    while filler.write_all(&[1; 1 << 20]).is_ok() {}
    drop(filler);
    service.start_process().await.unwrap();
    assert_eq!(state(&client, &id).await, "paused");
    let refused = client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
    refused.error(503, "RESOURCE_EXHAUSTED").unwrap();

    std::fs::remove_file(rest).unwrap();
    std::fs::remove_file(ballast).unwrap();
    wait_until("space is free again", async || {
        client.post(&action_path(&id, "resume"), &json!({})).await.unwrap().status == 200
    })
    .await;
    assert_eq!(output(&client, &id, "echo after >> /kept; cat /kept").await, "before\nafter\n");
}

/// Without overcommit, only the free space is allocated to sandboxes.
#[tokio::test]
async fn disk_capacity_is_based_on_free_space() {
    let _alone = HOST_DISK.lock().await;
    let options = ServiceOptions::default()
        .on_disk_mb(20_000)
        .with("capacity", "overcommit_disk", "1.0")
        .with("capacity", "reserve_disk_mb", "700");
    let service = Service::new(&options).unwrap();
    service.leave_free(13_000 * MB).unwrap();
    service.start_process().await.unwrap();
    let client = service.account().await.unwrap();
    // Two disks of 5120 MB fit into the free space. The size of the file system would be enough for a third.
    let first = create_sandbox(&client).await;
    create_sandbox(&client).await;
    let error = client.post(SANDBOXES, &small()).await.unwrap().error(503, "RESOURCE_EXHAUSTED").unwrap();
    assert_eq!(error["details"]["key"], "capacity.overcommit_disk", "{error}");
    // Data written to a sandbox's disk does not reduce its capacity twice.
    let free = async || sample(&service.read_metrics().await.unwrap(), "sandboxd_host_disk_free_bytes", &[]);
    wait_until("the disk is measured", async || free().await > 0.0).await;
    let before = free().await;
    output(&client, &first, "head -c 1500M /dev/zero > /big; sync /big").await;
    wait_until("the service has seen the written data", async || free().await < before - 1_400_000_000.0)
        .await;
    client.delete(&sandbox_path(&first)).await.unwrap().is(200).unwrap();
    create_sandbox(&client).await;
}
