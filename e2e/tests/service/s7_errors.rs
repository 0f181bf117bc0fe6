//! Section 7: each row of the table once, and that every error has the one body.

use hyper::Method;
use serde_json::json;

use crate::{NOBODY, SANDBOXES, at, created, shared, small, text, user, verb, with};

#[tokio::test]
async fn each_row_that_a_client_can_cause() {
    let (service, client) = user().await;
    let id = created(&client).await;
    let anonymous = service.anonymous().unwrap();
    let reader = service.client_of("rows", "read").await.unwrap();
    let execute = verb(&id, "execute");
    let three = crate::occupied(&client, &id, 3).await;
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
        (404, "SANDBOX_NOT_FOUND", Method::GET, at(NOBODY), json!(null)),
        (404, "NOT_FOUND", Method::GET, "/v1/nothing".to_owned(), json!(null)),
        (405, "METHOD_NOT_ALLOWED", Method::PATCH, SANDBOXES.to_owned(), json!(null)),
        (409, "INVALID_STATE", Method::POST, verb(&id, "resume"), json!(null)),
        (429, "RATE_LIMITED", Method::POST, execute.clone(), json!({ "command": "true" })),
    ] {
        let call = client.call(method.clone(), &path);
        let call = if body.is_null() { call } else { call.json(&body) };
        let answer = call.send().await.unwrap();
        answer.error(status, code).unwrap_or_else(|e| panic!("{method} {path}: {e:#}"));
    }
    anonymous.get(SANDBOXES).await.unwrap().error(401, "UNAUTHORIZED").unwrap();
    reader.delete(&at(NOBODY)).await.unwrap().error(403, "FORBIDDEN").unwrap();
    drop(three);
}

/// The agent of a sandbox killed from outside: the fault is ours, and said to be.
#[tokio::test]
async fn a_broken_sandbox_is_an_execution_error() {
    let (service, client) = user().await;
    let id = created(&client).await;
    let running = {
        let (client, path) = (client.apart(), verb(&id, "execute"));
        tokio::spawn(async move {
            client.post(&path, &json!({ "command": "touch /begun; sleep 600" })).await.unwrap()
        })
    };
    crate::until("it has begun", async || {
        crate::output(&client, &id, "ls /begun 2>/dev/null; true").await == "/begun\n"
    })
    .await;
    let procs = ["freezer/", ""]
        .map(|hierarchy| format!("/sys/fs/cgroup/{hierarchy}{}/{id}/cgroup.procs", service.place.name));
    let pids = procs.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap();
    for pid in pids.lines() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        // The first to go takes the others along.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let answer = running.await.unwrap();
    let error = answer.error(502, "EXECUTION_ERROR").unwrap();
    assert!(!text(&error["message"]).is_empty());
    // Whatever the engine makes of the sandbox, it answers.
    let after = client.get(&at(&id)).await.unwrap();
    assert!([200, 404].contains(&after.status), "{}", after.text());
    created(&client).await;
}

/// Messages do not show what is inside: no path of the host, no name of a type, no line of source.
#[tokio::test]
async fn messages_are_for_people() {
    let (service, client) = user().await;
    let id = created(&client).await;
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
        for path in [SANDBOXES.to_owned(), verb(&id, "execute")] {
            let call = client.call(Method::POST, &path).body("application/json", body.as_bytes().to_vec());
            messages
                .push(text(&call.send().await.unwrap().error(400, "INVALID_REQUEST").unwrap()["message"]));
        }
    }
    for message in messages {
        let inside = ["/work", ".rs", "::", "Some(", "struct ", "panicked", &service.place.name];
        assert!(!inside.iter().any(|word| message.contains(word)), "{message}");
        assert!(message.len() < 500, "{message}");
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found_whatever_it_looks_like() {
    let service = shared().await;
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
