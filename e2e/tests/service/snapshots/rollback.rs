//! Rollbacks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    SNAPSHOTS, action_path, create_sandbox, execution_path, output, sandbox_path, state, take_snapshot, text,
    user, wait_until,
};
use e2e::service::Client;

async fn roll_back(client: &Client, id: &str, snapshot: &str) -> Value {
    let body = json!({ "snapshotId": snapshot });
    client.post(&action_path(id, "rollback"), &body).await.unwrap().is(200).unwrap()
}

#[tokio::test]
async fn a_snapshot_is_found_by_its_name() {
    let (_service, client) = user().await;
    let (id, other) = (create_sandbox(&client).await, create_sandbox(&client).await);
    let named = json!({ "name": "after setup" });
    let mut taken = Vec::new();
    for (sandbox, content) in [(&id, "first"), (&id, "second"), (&other, "other")] {
        output(&client, sandbox, &format!("echo {content} > file")).await;
        let snapshot =
            client.post(&action_path(sandbox, "snapshots"), &named).await.unwrap().is(201).unwrap();
        taken.push(text(&snapshot["id"]));
    }
    output(&client, &id, "rm file").await;
    // The newest of this sandbox.
    roll_back(&client, &id, "after setup").await;
    assert_eq!(output(&client, &id, "cat file").await, "second\n");
    let body = json!({ "snapshotId": "before setup" });
    let rollback = action_path(&id, "rollback");
    client.post(&rollback, &body).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();

    let path = format!("{SNAPSHOTS}/after%20setup");
    assert_eq!(client.get(&path).await.unwrap().is(200).unwrap()["id"], taken[2].as_str());
    // Which one is to be deleted is not guessed.
    let refused = client.delete(&path).await.unwrap().error(409, "INVALID_STATE").unwrap();
    assert!(taken.iter().all(|id| refused.to_string().contains(id)), "{refused}");
    for id in &taken[1..] {
        client.delete(&format!("{SNAPSHOTS}/{id}")).await.unwrap().is(200).unwrap();
    }
    assert_eq!(client.delete(&path).await.unwrap().is(200).unwrap()["id"], taken[0].as_str());
    client.delete(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn a_rollback_restores_files_and_keeps_the_rest() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "echo before > file; echo gone > deleted").await;
    let snapshot = take_snapshot(&client, &id).await;
    output(&client, &id, "echo after > file; rm deleted; echo new > new").await;
    client.post(&action_path(&id, "ports"), &json!({ "port": 8080 })).await.unwrap().is(201).unwrap();
    let body = json!({ "command": "sleep 600", "detached": true });
    let started = client.post(&action_path(&id, "execute"), &body).await.unwrap().is(201).unwrap();
    let before = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let view = roll_back(&client, &id, &snapshot).await;
    for field in ["id", "state", "image", "resources", "env", "metadata", "network", "createdAt", "startedAt"]
    {
        assert_eq!(view[field], before[field], "{field}");
    }
    assert_eq!(
        output(&client, &id, "cat file deleted; ls; pgrep -c sleep || true").await,
        "before\ngone\ndeleted\nfile\n0\n"
    );
    let ports = client.get(&action_path(&id, "ports")).await.unwrap().is(200).unwrap();
    assert_eq!(ports["data"][0]["port"], 8080);
    // The execution is lost, and says so.
    let execution =
        client.get(&execution_path(&id, &text(&started["executionId"]), "")).await.unwrap().is(200).unwrap();
    assert_eq!(execution["state"], "lost", "{execution}");
    // Again, and from another state.
    output(&client, &id, "echo later > file").await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    assert_eq!(roll_back(&client, &id, &snapshot).await["state"], "running");
    assert_eq!(output(&client, &id, "cat file").await, "before\n");
    let events = client
        .get(&format!("/v1/sandboxes/{id}/events?type=sandbox.rolled_back"))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    assert_eq!(events["data"].as_array().unwrap().len(), 2, "{events}");
    assert_eq!(events["data"][0]["data"]["snapshotId"], snapshot.as_str());
    // A snapshot taken after a rollback can be rolled back to as well, and the first one still.
    output(&client, &id, "echo second > file").await;
    let second = take_snapshot(&client, &id).await;
    roll_back(&client, &id, &snapshot).await;
    assert_eq!(output(&client, &id, "cat file").await, "before\n");
    roll_back(&client, &id, &second).await;
    assert_eq!(output(&client, &id, "cat file").await, "second\n");
}

#[tokio::test]
async fn a_running_command_gets_an_error_at_a_rollback() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let snapshot = take_snapshot(&client, &id).await;
    let (running, path) = (client.with_own_connections(), action_path(&id, "execute"));
    let command =
        tokio::spawn(async move { running.post(&path, &json!({ "command": "sleep 100" })).await.unwrap() });
    wait_until("the command runs", async || output(&client, &id, "pgrep -c sleep || true").await == "1\n")
        .await;
    roll_back(&client, &id, &snapshot).await;
    let answer = tokio::time::timeout(Duration::from_secs(10), command).await.unwrap().unwrap();
    answer.error(502, "EXECUTION_ERROR").unwrap();
    assert_eq!(state(&client, &id).await, "running");
}

#[tokio::test]
async fn concurrent_rollbacks_take_effect_one_after_the_other() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut snapshots = Vec::new();
    for number in 0..2 {
        output(&client, &id, &format!("echo {number} > file")).await;
        snapshots.push(take_snapshot(&client, &id).await);
    }
    let calls = snapshots.iter().cycle().take(6).map(|snapshot| roll_back(&client, &id, snapshot));
    for view in futures_util::future::join_all(calls).await {
        assert_eq!(view["state"], "running");
    }
    let file = output(&client, &id, "cat file").await;
    assert!(file == "0\n" || file == "1\n", "{file}");
}

#[tokio::test]
async fn only_own_snapshots_can_be_rolled_back_to() {
    let (_service, client) = user().await;
    let (one, two) = (create_sandbox(&client).await, create_sandbox(&client).await);
    let of_two = take_snapshot(&client, &two).await;
    let path = action_path(&one, "rollback");
    let error = client
        .post(&path, &json!({ "snapshotId": of_two }))
        .await
        .unwrap()
        .error(400, "INVALID_CONFIG")
        .unwrap();
    assert_eq!(error["details"]["field"], "snapshotId");
    for unknown in ["snap_00000000000000000000", "x"] {
        let error = client.post(&path, &json!({ "snapshotId": unknown })).await.unwrap();
        error.error(404, "SNAPSHOT_NOT_FOUND").unwrap();
    }
    client.post(&path, &json!({})).await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    client.delete(&format!("{SNAPSHOTS}/{of_two}")).await.unwrap().is(200).unwrap();
    client
        .post(&action_path(&two, "rollback"), &json!({ "snapshotId": of_two }))
        .await
        .unwrap()
        .error(404, "SNAPSHOT_NOT_FOUND")
        .unwrap();
    assert_eq!(output(&client, &two, "echo unharmed").await, "unharmed\n");
}
