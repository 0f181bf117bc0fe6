//! Detached executions: start, list, output from any position, stdin, signals, cancellation, and access.

use std::time::Duration;

use e2e::service::{Client, Event, Events, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    action_path, create_sandbox, execution_path, number, output, sandbox_path, text, user, wait_until,
};

/// The body of a detached command.
fn detached(command: &str) -> Value {
    json!({ "command": command, "detached": true })
}

async fn start_detached(client: &Client, id: &str, body: Value) -> String {
    let answer = client.post(&action_path(id, "execute"), &body).await.unwrap();
    let location = answer.headers["location"].to_str().unwrap().to_owned();
    let view = answer.is(201).unwrap();
    assert_eq!(view["state"], "running");
    assert_eq!(location, execution_path(id, &text(&view["executionId"]), ""));
    text(&view["executionId"])
}

async fn status(client: &Client, id: &str, execution: &str) -> Value {
    client.get(&execution_path(id, execution, "")).await.unwrap().is(200).unwrap()
}

async fn wait_for_end(client: &Client, id: &str, execution: &str) -> Value {
    wait_until("the execution has ended", async || status(client, id, execution).await["state"] != "running")
        .await;
    status(client, id, execution).await
}

async fn stream(client: &Client, id: &str, execution: &str, after: Option<&str>) -> Events {
    let client = client.with_own_connections();
    let path = execution_path(id, execution, "/output");
    let call = client.call(Method::GET, &path);
    match after {
        Some(after) => call.header("last-event-id", after).stream().await.unwrap(),
        None => call.stream().await.unwrap(),
    }
}

async fn lines(client: &Client, id: &str, execution: &str, after: Option<&str>) -> Vec<Event> {
    stream(client, id, execution, after).await.rest().await.unwrap()
}

#[tokio::test]
async fn a_detached_command_is_read_from_any_position() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let command = "for i in $(seq 1 200); do echo line $i; echo err $i >&2; done; printf rest; exit 5";
    let execution = start_detached(&client, &id, detached(command)).await;
    let all = lines(&client, &id, &execution, None).await;
    let data = |name: &str| {
        let matching = all.iter().filter(|event| event.name == name);
        matching.map(|event| event.data.clone()).collect::<Vec<_>>()
    };
    let expected: Vec<String> = (1..=200).map(|i| format!("line {i}")).chain(["rest".to_owned()]).collect();
    assert_eq!(data("stdout"), expected);
    assert_eq!(data("stderr").len(), 200);
    let done = all.last().unwrap();
    assert_eq!(
        (done.name.as_str(), done.id.as_deref(), &done.json().unwrap()["exitCode"]),
        ("done", Some("end"), &json!(5))
    );
    for position in [0, 1, 57, 200, 399] {
        let after = all[position].id.clone().unwrap();
        assert_eq!(lines(&client, &id, &execution, Some(&after)).await, all[position + 1..], "after {after}");
    }
    let view = wait_for_end(&client, &id, &execution).await;
    assert_eq!(
        (&view["exitCode"], &view["signal"], &view["command"]),
        (&json!(5), &json!(null), &json!(command))
    );
    let whole = client.get(&execution_path(&id, &execution, "/output")).await.unwrap().is(200).unwrap();
    assert_eq!(text(&whole["stdout"]), expected.join("\n"));
    assert_eq!(whole["next"], view["outputEnd"]);
    let rest =
        client.get(&execution_path(&id, &execution, "/output?after=5.0")).await.unwrap().is(200).unwrap();
    assert_eq!(text(&rest["stdout"]), expected.join("\n")[5..]);
    let nothing = client
        .call(Method::GET, &execution_path(&id, &execution, "/output"))
        .header("accept", "text/event-stream");
    assert_eq!(nothing.header("last-event-id", "end").send().await.unwrap().status, 204);
}

#[tokio::test]
async fn invalid_positions_and_executions_are_refused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let execution = start_detached(&client, &id, detached("echo hi; sleep 600")).await;
    wait_until("it has printed a line", async || {
        status(&client, &id, &execution).await["outputEnd"] == "3.0"
    })
    .await;
    for position in ["4", "3.1", "end", "-1", "x", "1.2.3", "99999999999999999999", "01", ""] {
        let answer =
            client.get(&execution_path(&id, &execution, &format!("/output?after={position}"))).await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
    }
    for wrong in ["ex_00000000000000000000", "sb_00000000000000000000", "..%2f..", "%00"] {
        for (method, what) in
            [(Method::GET, ""), (Method::GET, "/output"), (Method::DELETE, ""), (Method::POST, "/stdin")]
        {
            let answer = client.call(method, &execution_path(&id, wrong, what)).send().await.unwrap();
            answer.error(404, "EXECUTION_NOT_FOUND").unwrap();
        }
    }
    client
        .get(&execution_path(&id, &execution, "/attach"))
        .await
        .unwrap()
        .error(409, "NOT_A_TERMINAL")
        .unwrap();
    client.delete(&execution_path(&id, &execution, "")).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn stdin_signals_and_cancellation_work() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let write = async |execution: &str, query: &str, body: &[u8]| {
        let call = client.call(Method::POST, &execution_path(&id, execution, &format!("/stdin{query}")));
        call.body("application/octet-stream", body.to_vec()).send().await.unwrap()
    };
    let cat = start_detached(
        &client,
        &id,
        json!({ "command": "cat", "detached": true, "openStdin": true, "stdin": "a" }),
    )
    .await;
    write(&cat, "", b"\0\xff\n").await.is(200).unwrap();
    let written = write(&cat, "?close=true", b"end").await.is(200).unwrap();
    assert_eq!((number(&written["bytesWritten"]), &written["closed"]), (3, &json!(true)));
    assert_eq!(wait_for_end(&client, &id, &cat).await["exitCode"], 0);
    assert_eq!(wait_for_end(&client, &id, &cat).await["outputEnd"], "7.0");
    write(&cat, "", b"late").await.error(409, "EXECUTION_ENDED").unwrap();

    let trap = start_detached(
        &client,
        &id,
        detached("trap 'echo caught; kill $!; exit 9' INT; sleep 60 & echo set; wait"),
    )
    .await;
    write(&trap, "", b"x").await.error(409, "STDIN_CLOSED").unwrap();
    wait_until("the trap is set", async || status(&client, &id, &trap).await["outputEnd"] != "0.0").await;
    let signal = |name: &str| json!({ "signal": name });
    client
        .post(&execution_path(&id, &trap, "/signal"), &signal("SIGNIFY"))
        .await
        .unwrap()
        .error(400, "INVALID_CONFIG")
        .unwrap();
    client.post(&execution_path(&id, &trap, "/signal"), &signal("SIGINT")).await.unwrap().is(200).unwrap();
    assert_eq!(wait_for_end(&client, &id, &trap).await["exitCode"], 9);

    let tree = start_detached(
        &client,
        &id,
        detached("setsid sleep 4321 & setsid nohup bash -c 'sleep 4321 & wait' & wait"),
    )
    .await;
    let alive = async || output(&client, &id, "pgrep -xc sleep || true").await.trim().to_owned();
    wait_until("both processes run", async || alive().await == "2").await;
    let view = client.delete(&execution_path(&id, &tree, "")).await.unwrap().is(200).unwrap();
    assert_eq!((&view["state"], &view["signal"]), (&json!("exited"), &json!("SIGKILL")));
    assert_eq!(alive().await, "0");
    client.delete(&execution_path(&id, &tree, "")).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn executions_are_listed_for_their_account_only() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut all = Vec::new();
    for index in 0..3 {
        all.insert(0, start_detached(&client, &id, detached(&format!("echo {index}"))).await);
        wait_for_end(&client, &id, &all[0]).await;
    }
    let page = client
        .get(&format!("{}?limit=2&offset=1", action_path(&id, "executions")))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    let ids: Vec<String> =
        page["data"].as_array().unwrap().iter().map(|view| text(&view["executionId"])).collect();
    assert_eq!((ids, number(&page["pagination"]["total"])), (all[1..].to_vec(), 3));
    let other = service.account().await.unwrap();
    for (method, what) in
        [(Method::GET, ""), (Method::GET, "/output"), (Method::GET, "/attach"), (Method::DELETE, "")]
    {
        let answer = other.call(method, &execution_path(&id, &all[0], what)).send().await.unwrap();
        answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
    }
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    client.get(&execution_path(&id, &all[0], "")).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn starts_are_idempotent_and_limited() {
    let options = ServiceOptions::default().with("limits", "concurrent_executions", "1").with(
        "limits",
        "detached_executions",
        "2",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "execute");
    let start = async || {
        let call = client.call(Method::POST, &path).header("idempotency-key", "once");
        call.json(&detached("sleep 600")).send().await.unwrap().is(201).unwrap()
    };
    let first = start().await;
    assert_eq!(start().await["executionId"], first["executionId"]);
    start_detached(&client, &id, detached("sleep 600")).await;
    let refused = client.post(&path, &detached("true")).await.unwrap().error(429, "RATE_LIMITED").unwrap();
    assert_eq!(refused["details"]["key"], "limits.detached_executions");
    assert_eq!(refused["details"]["value"], 2);
    // A terminal is refused by the same limit; the attached command has a slot of its own.
    let terminal = client.post(&action_path(&id, "terminals"), &json!({})).await.unwrap();
    terminal.error(429, "RATE_LIMITED").unwrap();
    client.post(&path, &json!({ "command": "true" })).await.unwrap().is(200).unwrap();
    client.delete(&execution_path(&id, &text(&first["executionId"]), "")).await.unwrap().is(200).unwrap();
    start_detached(&client, &id, detached("true")).await;
}

/// `SANDBOXD_EVENT_KILLS` sets the number of kills (default 5).
#[tokio::test]
async fn a_follower_receives_every_line_once_across_kills() {
    let kills: u32 = std::env::var("SANDBOXD_EVENT_KILLS").map_or(5, |text| text.parse().unwrap());
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let command =
        "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; echo e$i >&2; sleep 0.01; done; echo last";
    let execution = start_detached(&client, &id, detached(command)).await;
    let mut received: Vec<Event> = Vec::new();
    let mut last: Option<String> = None;
    for _ in 0..kills {
        let mut events = stream(&client, &id, &execution, last.as_deref()).await;
        let enough = received.len() + 50;
        while received.len() < enough {
            received.push(events.next().await.unwrap().unwrap());
        }
        service.kill().unwrap();
        // Read what was already sent.
        while let Ok(Some(event)) = events.next().await {
            received.push(event);
        }
        last = events.last_id.clone();
        tokio::time::sleep(Duration::from_millis(50)).await;
        service.start_process().await.unwrap();
    }
    let client = client.with_own_connections();
    output(&client, &id, "touch /tmp/stop").await;
    received.extend(lines(&client, &id, &execution, last.as_deref()).await);
    let data = |name: &str| {
        let matching = received.iter().filter(|event| event.name == name);
        matching.map(|event| event.data.clone()).collect::<Vec<_>>()
    };
    let mut stdout = data("stdout");
    assert_eq!(stdout.pop().as_deref(), Some("last"));
    let expected: Vec<String> = (1..=stdout.len()).map(|i| i.to_string()).collect();
    assert_eq!(stdout, expected);
    let expected: Vec<String> = (1..=stdout.len()).map(|i| format!("e{i}")).collect();
    assert_eq!(data("stderr"), expected);
    assert_eq!(received.last().unwrap().name, "done");
    println!("{kills} kills, {} lines", stdout.len());
}
