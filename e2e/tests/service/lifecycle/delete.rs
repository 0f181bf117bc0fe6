//! Deleting a sandbox removes all its resources from the host.

use e2e::Expected;
use e2e::service::{Service, ServiceOptions};
use serde_json::json;

use crate::{action_path, create_sandbox, output, sandbox_path, user};

#[tokio::test]
async fn a_deleted_sandbox_leaves_nothing_on_the_host() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let (kept, running, paused) =
        (create_sandbox(&client).await, create_sandbox(&client).await, create_sandbox(&client).await);
    output(&client, &running, "head -c 10000000 /dev/urandom > file; sleep 600 > /dev/null 2>&1 &").await;
    client.post_empty(&action_path(&paused, "pause")).await.unwrap().is(200).unwrap();
    for id in [&running, &paused] {
        client.delete(&sandbox_path(id)).await.unwrap().is(200).unwrap();
    }
    let alive = [kept.parse().unwrap()].into();
    let expected = Expected { alive, daemon: service.pid(), ..Expected::default() };
    assert_eq!(unexpected_resources(&service, &expected).await, Vec::<String>::new());
    assert_eq!(output(&client, &kept, "echo here").await, "here\n");
}

/// Unexpected and missing resources on the host.
async fn unexpected_resources(service: &Service, expected: &Expected) -> Vec<String> {
    e2e::wait_for_resources(&service.layout, expected).await
}

#[tokio::test]
async fn a_running_command_is_killed_by_delete() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let command = json!({ "command": "touch begun; sleep 60" });
    let running = {
        let (client, path) = (client.with_own_connections(), action_path(&id, "execute"));
        tokio::spawn(async move { client.post(&path, &command).await.unwrap() })
    };
    crate::wait_until("the command has begun", async || output(&client, &id, "ls").await == "begun\n").await;
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let result = running.await.unwrap().is(200).unwrap();
    assert_eq!((&result["exitCode"], &result["signal"]), (&json!(null), &json!("SIGKILL")));
    let message = format!("sandbox '{id}' was terminated: its termination was requested");
    assert_eq!((&result["reason"], &result["message"]), (&json!("terminated"), &json!(message)));
}

#[tokio::test]
async fn concurrent_deletes_succeed_exactly_once() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let (client, path) = (client.clone(), sandbox_path(&id));
            tokio::spawn(async move { client.delete(&path).await.unwrap().status })
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404, 404, 404, 404, 404, 404, 404]);
}
