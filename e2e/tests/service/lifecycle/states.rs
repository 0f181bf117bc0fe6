//! Every operation in every state, over HTTP.

use e2e::service::Client;
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, output, sandbox_path, shared_service, state, text,
    time, user,
};

async fn paused(client: &Client) -> String {
    let id = create_sandbox(client).await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    id
}

async fn execute(client: &Client, id: &str, body: Value) -> e2e::service::HttpResponse {
    client.post(&action_path(id, "execute"), &body).await.unwrap()
}

#[tokio::test]
async fn operations_on_a_running_sandbox() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    assert_eq!(state(&client, &id).await, "running");
    let refused =
        client.post_empty(&action_path(&id, "resume")).await.unwrap().error(409, "INVALID_STATE").unwrap();
    assert!(text(&refused["message"]).contains("running"), "{refused}");
    assert_eq!(state(&client, &id).await, "running");
    execute(&client, &id, json!({ "command": "true" })).await.is(200).unwrap();
    execute(&client, &id, json!({ "command": "true", "autoResume": false })).await.is(200).unwrap();
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    assert_eq!(state(&client, &id).await, "paused");
}

#[tokio::test]
async fn operations_on_a_paused_sandbox() {
    let (_service, client) = user().await;
    let id = paused(&client).await;
    let refused =
        client.post_empty(&action_path(&id, "pause")).await.unwrap().error(409, "INVALID_STATE").unwrap();
    assert!(text(&refused["message"]).contains("paused"), "{refused}");
    let stay = json!({ "command": "true", "autoResume": false });
    execute(&client, &id, stay).await.error(409, "INVALID_STATE").unwrap();
    assert_eq!(state(&client, &id).await, "paused");
    // A command resumes it.
    let result = execute(&client, &id, json!({ "command": "echo awake" })).await.is(200).unwrap();
    assert_eq!(result["stdout"], "awake\n");
    assert_eq!(state(&client, &id).await, "running");
    // So does a stream; with autoResume false it is refused before it starts.
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let path = action_path(&id, "execute");
    let stay = json!({ "command": "true", "autoResume": false });
    let call = client.call(Method::POST, &path).header("accept", "text/event-stream").json(&stay);
    call.send().await.unwrap().error(409, "INVALID_STATE").unwrap();
    let call = client.call(Method::POST, &path).json(&json!({ "command": "echo awake again" }));
    let events = call.stream().await.unwrap().rest().await.unwrap();
    assert_eq!(events[0].data, "awake again");
    assert_eq!(state(&client, &id).await, "running");
}

#[tokio::test]
async fn running_and_paused_sandboxes_can_be_deleted() {
    let (_service, client) = user().await;
    for id in [create_sandbox(&client).await, paused(&client).await] {
        client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    }
}

/// All operations on a terminated sandbox return 404; its owner gets the reason in the details.
#[tokio::test]
async fn a_terminated_sandbox_is_not_found() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let end = client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let command = json!({ "command": "true" });
    for answer in [
        client.get(&sandbox_path(&id)).await.unwrap(),
        client.post_empty(&action_path(&id, "pause")).await.unwrap(),
        client.post_empty(&action_path(&id, "resume")).await.unwrap(),
        client.delete(&sandbox_path(&id)).await.unwrap(),
        execute(&client, &id, command.clone()).await,
        client
            .call(Method::POST, &action_path(&id, "execute"))
            .header("accept", "text/event-stream")
            .json(&command)
            .send()
            .await
            .unwrap(),
    ] {
        let details = answer.error(404, "SANDBOX_NOT_FOUND").unwrap()["details"].clone();
        assert_eq!(details["sandboxId"], id.as_str());
        assert_eq!(details["state"], "terminated");
        assert_eq!(details["terminatedAt"], end["terminatedAt"]);
        assert_eq!(details["reason"], "deleted");
        time(&details["terminatedAt"]);
    }
    let list = client.get(&format!("{SANDBOXES}?state=terminated")).await.unwrap().is(200).unwrap();
    assert_eq!(list["data"][0]["id"], id.as_str());
}

#[tokio::test]
async fn an_unknown_sandbox_is_not_found() {
    let (service, client) = user().await;
    let stranger = service.account().await.unwrap();
    let of_another = create_sandbox(&stranger).await;
    let long = format!("sb_{}", "a".repeat(200));
    for id in [
        UNKNOWN_ID,
        &of_another,
        "sb_",
        "x",
        "sb_UPPER",
        "sb_0123456789%00",
        "%2e%2e",
        "sb_%F0%9F%98%80",
        &long,
    ] {
        for (method, path) in [
            (Method::GET, sandbox_path(id)),
            (Method::DELETE, sandbox_path(id)),
            (Method::POST, action_path(id, "pause")),
            (Method::POST, action_path(id, "resume")),
        ] {
            let answer = client.call(method.clone(), &path).send().await.unwrap();
            let error =
                answer.error(404, "SANDBOX_NOT_FOUND").unwrap_or_else(|e| panic!("{method} {path}: {e:#}"));
            let reported = text(&error["details"]["sandboxId"]);
            assert!(id.contains('%') || reported == id || id.len() > 100, "{id} is reported as {reported}");
            assert_eq!(error["details"].as_object().unwrap().len(), 1, "{error}");
        }
        let answer = execute(&client, id, json!({ "command": "true" })).await;
        answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
    }
    assert_eq!(state(&stranger, &of_another).await, "running");
}

/// Files, environment and processes persist across a pause, and processes do not run meanwhile.
#[tokio::test]
async fn pause_and_resume_keep_files_variables_and_processes() {
    let (_service, client) = user().await;
    let body = crate::with(crate::small(), "env", json!({ "KEPT": "yes" }));
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    output(&client, &id, "echo kept > file; (while :; do echo x >> ticks; sleep 0.05; done) & echo $! > pid")
        .await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    let printed =
        output(&client, &id, "wc -l < ticks; cat file; echo $KEPT; kill -0 $(cat pid) && echo alive").await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(&lines[1..], ["kept", "yes", "alive"]);
    // 0.7 s of ticks are missing: the process did not run.
    let before: u64 = lines[0].trim().parse().unwrap();
    assert!(before <= 13, "{before} ticks: it ran while paused");
    crate::wait_until("the process continues", async || {
        output(&client, &id, "wc -l < ticks").await.trim().parse::<u64>().unwrap() > before
    })
    .await;
}

/// A command that is admitted while its sandbox is being paused waits for the resume and succeeds.
#[tokio::test]
async fn a_command_concurrent_with_a_pause_succeeds() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for round in 0..30 {
        let (task_client, task_id) = (client.clone(), id.clone());
        let command = tokio::spawn(async move {
            let body = json!({ "command": "echo there", "timeoutMs": 5_000 });
            execute(&task_client, &task_id, body).await
        });
        tokio::time::sleep(std::time::Duration::from_micros(round * 50)).await;
        client.post_empty(&action_path(&id, "pause")).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        client.post_empty(&action_path(&id, "resume")).await.unwrap();
        let result = command.await.unwrap().is(200).unwrap();
        assert_eq!(result["stdout"], "there\n", "round {round}");
    }
}

#[tokio::test]
async fn concurrent_pauses_succeed_exactly_once() {
    let service = shared_service().await;
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    for word in ["pause", "resume", "pause"] {
        let path = action_path(&id, word);
        let mut statuses = Vec::new();
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let (client, path) = (client.clone(), path.clone());
                tokio::spawn(async move { client.post_empty(&path).await.unwrap().status })
            })
            .collect();
        for call in calls {
            statuses.push(call.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409], "{word}");
    }
}
