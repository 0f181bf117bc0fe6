//! Each error code that a client can cause, and the error body.

use hyper::Method;
use serde_json::json;

use crate::{
    SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, sandbox_path, shared_service, small, text, user, with,
};

#[tokio::test]
async fn each_client_error_has_status_and_code() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let anonymous = service.anonymous().unwrap();
    let reader = service.client_with_new_key("rows", "read").await.unwrap();
    let execute = action_path(&id, "execute");
    let three = crate::start_sleepers(&client, &id, 3).await;
    let long = json!({ "command": "x".repeat(65_537) });
    for (status, code, method, path, body) in [
        (400, "INVALID_REQUEST", Method::POST, SANDBOXES.to_owned(), json!({ "image": 1 })),
        (400, "INVALID_REQUEST", Method::GET, format!("{SANDBOXES}?limit=0"), json!(null)),
        (400, "INVALID_REQUEST", Method::POST, execute.clone(), json!({})),
        (
            400,
            "INVALID_CONFIG",
            Method::POST,
            SANDBOXES.to_owned(),
            with(small(), "resources", json!({ "cpu": 3 })),
        ),
        (400, "COMMAND_TOO_LONG", Method::POST, execute.clone(), long),
        (404, "SANDBOX_NOT_FOUND", Method::GET, sandbox_path(UNKNOWN_ID), json!(null)),
        (404, "NOT_FOUND", Method::GET, "/v1/nothing".to_owned(), json!(null)),
        (405, "METHOD_NOT_ALLOWED", Method::PATCH, SANDBOXES.to_owned(), json!(null)),
        (409, "INVALID_STATE", Method::POST, action_path(&id, "resume"), json!(null)),
        (429, "RATE_LIMITED", Method::POST, execute.clone(), json!({ "command": "true" })),
    ] {
        let call = client.call(method.clone(), &path);
        let call = if body.is_null() { call } else { call.json(&body) };
        let answer = call.send().await.unwrap();
        answer.error(status, code).unwrap_or_else(|e| panic!("{method} {path}: {e:#}"));
    }
    anonymous.get(SANDBOXES).await.unwrap().error(401, "UNAUTHORIZED").unwrap();
    reader.delete(&sandbox_path(UNKNOWN_ID)).await.unwrap().error(403, "FORBIDDEN").unwrap();
    drop(three);
}

/// A command whose agent is killed from outside fails with EXECUTION_ERROR.
#[tokio::test]
async fn a_broken_sandbox_is_an_execution_error() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let running = {
        let (client, path) = (client.with_own_connections(), action_path(&id, "execute"));
        tokio::spawn(async move {
            client.post(&path, &json!({ "command": "touch /begun; sleep 600" })).await.unwrap()
        })
    };
    crate::wait_until("it has begun", async || {
        crate::output(&client, &id, "ls /begun 2>/dev/null; true").await == "/begun\n"
    })
    .await;
    let procs = ["freezer/", ""]
        .map(|hierarchy| format!("/sys/fs/cgroup/{hierarchy}{}/{id}/cgroup.procs", service.layout.name));
    let pids = procs.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap();
    for pid in pids.lines() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        // Killing the agent ends the others, which may then be gone.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let answer = running.await.unwrap();
    let error = answer.error(502, "EXECUTION_ERROR").unwrap();
    assert!(!text(&error["message"]).is_empty());
    // The service still answers for the sandbox.
    let after = client.get(&sandbox_path(&id)).await.unwrap();
    assert!([200, 404].contains(&after.status), "{}", after.text());
    create_sandbox(&client).await;
}

/// Messages contain no paths of the host, type names or source locations.
#[tokio::test]
async fn messages_contain_no_internals() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut messages = Vec::new();
    for body in [
        "",
        "{",
        "[]",
        "5",
        "null",
        "\"x\"",
        "{\"image\":}",
        "{\"image\":\"a\",}",
        "{\"image\":\"\\ud800\"}",
        "{'image':1}",
    ] {
        for path in [SANDBOXES.to_owned(), action_path(&id, "execute")] {
            let call = client.call(Method::POST, &path).body("application/json", body.as_bytes().to_vec());
            messages
                .push(text(&call.send().await.unwrap().error(400, "INVALID_REQUEST").unwrap()["message"]));
        }
    }
    for message in messages {
        let internals = ["/work", ".rs", "::", "Some(", "struct ", "panicked", &service.layout.name];
        assert!(!internals.iter().any(|word| message.contains(word)), "{message}");
        assert!(message.len() < 500, "{message}");
    }
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let service = shared_service().await;
    let client = service.account().await.unwrap();
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/sandboxes",
        "/sandboxes",
        "/v1/sandboxes/",
        "/v1/sandboxes/x/y/z",
        "/favicon.ico",
        "/v1/sandbox",
    ] {
        let error = client.get(path).await.unwrap();
        error.error(404, "NOT_FOUND").unwrap_or_else(|e| panic!("{path}: {e:#}"));
    }
}
