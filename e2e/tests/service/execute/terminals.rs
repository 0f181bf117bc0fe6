//! Terminals over websockets, with the client library.

use std::time::Duration;

use e2e::service::{Service, ServiceOptions};
use hyper::Method;
use sandboxd_client::{Client, EndReason, Terminal, TerminalEvent};
use serde_json::json;

use crate::{action_path, create_sandbox, execution_path, small, text, user, with};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of the client library with the key of a test client.
fn library(service: &Service, client: &e2e::service::Client) -> Client {
    let key = client.key().to_owned();
    let builder = Client::builder().url(format!("https://{}", service.address)).key(key);
    builder.certificate_file(service.certificate_file().unwrap()).build().unwrap()
}

/// Reads until the terminal's output contains `wanted`.
async fn read_until(terminal: &mut Terminal, screen: &mut String, wanted: &str) {
    let reading = async {
        while !screen.contains(wanted) {
            match terminal.next().await.unwrap() {
                Some(TerminalEvent::Bytes(bytes)) => screen.push_str(&String::from_utf8_lossy(&bytes)),
                Some(TerminalEvent::Ended(ended)) => {
                    panic!("the terminal ended ({:?}) without {wanted:?} in {screen:?}", ended.exit_code)
                }
                Some(_) => {}
                None => panic!("the stream ended without {wanted:?} in {screen:?}"),
            }
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, reading).await.is_ok(), "no {wanted:?} in {screen:?}");
}

async fn exit_code(terminal: &mut Terminal) -> Option<i32> {
    loop {
        match tokio::time::timeout(TIMEOUT, terminal.next()).await.unwrap().unwrap() {
            Some(TerminalEvent::Ended(ended)) => return ended.exit_code,
            Some(_) => {}
            None => panic!("the stream ended without an exit code"),
        }
    }
}

#[tokio::test]
async fn terminals_can_be_resized_shared_and_reattached() {
    let (service, user) = user().await;
    let id = create_sandbox(&user).await;
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let mut terminal = sandbox.terminal().size(97, 31).await.unwrap();
    let mut screen = String::new();
    terminal.write("test -t 0 && stty size\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "31 97").await;
    terminal.resize(120, 40).await.unwrap();
    terminal.write("stty size\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "40 120").await;
    // A second client sees the output from the beginning and the input of both.
    let execution = terminal.execution().clone();
    let (mut other, mut other_screen) = (execution.attach().await.unwrap(), String::new());
    read_until(&mut other, &mut other_screen, "40 120").await;
    other.write("echo fr''om-other\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "from-other").await;
    read_until(&mut other, &mut other_screen, "from-other").await;
    // Ctrl-C reaches the foreground process, which exists when it prints.
    terminal.write("bash -c 'echo sle\"\"eping; exec sleep 600'; echo in''terrupted\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "sleeping").await;
    terminal.write("\x03").await.unwrap();
    terminal.write("\recho go''es-on\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "goes-on").await;
    drop(terminal);
    // Attached at an offset, only later output is received.
    let end: u64 = execution.status().await.unwrap().output_end.split('.').next().unwrap().parse().unwrap();
    let (mut again, mut rest) = (execution.attach_from(end).await.unwrap(), String::new());
    again.write("echo se''cond; exit 7\r").await.unwrap();
    read_until(&mut again, &mut rest, "second").await;
    assert!(!rest.contains("from-other"), "{rest:?}");
    assert_eq!(exit_code(&mut again).await, Some(7));
    assert_eq!(exit_code(&mut other).await, Some(7));
    // The output of an ended terminal is still available.
    let (mut late, mut all) = (execution.attach().await.unwrap(), String::new());
    read_until(&mut late, &mut all, "from-other").await;
    assert_eq!(exit_code(&mut late).await, Some(7));
}

#[tokio::test]
async fn a_terminal_is_warned_of_the_timeout_and_says_why_it_ended() {
    let (service, user) = user().await;
    let body = with(small(), "timeoutMs", json!(6_000));
    let created = user.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
    let id = text(&created["id"]);
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let mut terminal = sandbox.terminal().await.unwrap();
    let mut warnings = Vec::new();
    let ended = loop {
        match tokio::time::timeout(TIMEOUT, terminal.next()).await.unwrap().unwrap() {
            Some(TerminalEvent::Warning(warning)) => warnings.push(warning),
            Some(TerminalEvent::Ended(ended)) => break ended,
            Some(_) => {}
            None => panic!("the stream ended without an end"),
        }
    };
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.starts_with(&format!("sandbox '{id}' will be terminated in ")), "{warning}");
    assert_eq!(ended.reason, Some(EndReason::Terminated));
    assert_eq!(ended.message.unwrap(), format!("sandbox '{id}' was terminated: its timeout ended"));
}

#[tokio::test]
async fn a_terminal_survives_kills_of_the_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let user = service.account().await.unwrap();
    let id = create_sandbox(&user).await;
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let (mut terminal, mut screen) = (sandbox.terminal().await.unwrap(), String::new());
    terminal.write("echo be''fore $$\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "before ").await;
    for round in 0..2 {
        service.kill().unwrap();
        service.start_process().await.unwrap();
        let reading =
            async { while !matches!(terminal.next().await.unwrap(), Some(TerminalEvent::Reconnected)) {} };
        tokio::time::timeout(TIMEOUT, reading).await.unwrap();
        terminal.write(format!("echo aft''er-{round}\r")).await.unwrap();
        read_until(&mut terminal, &mut screen, &format!("after-{round}")).await;
    }
    // The execution log has no duplicates.
    let output = terminal.execution().output().await.unwrap();
    assert!(output.stdout.matches("after-0").count() == 1, "{:?}", output.stdout);
    terminal.write("exit\r").await.unwrap();
    assert_eq!(exit_code(&mut terminal).await, Some(0));
}

#[tokio::test]
async fn attaching_needs_a_websocket_and_the_scope() {
    let (service, user) = user().await;
    let id = create_sandbox(&user).await;
    let created = user.post(&action_path(&id, "terminals"), &json!({})).await.unwrap().is(201).unwrap();
    let execution = text(&created["executionId"]);
    let path = format!("{}/{execution}/attach", action_path(&id, "executions"));
    user.get(&path).await.unwrap().error(426, "INVALID_REQUEST").unwrap();
    service.over_http2(&user).unwrap().get(&path).await.unwrap().error(426, "INVALID_REQUEST").unwrap();
    user.get(&format!("{path}?after=999999")).await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    let anonymous = service.anonymous().unwrap();
    anonymous.get(&path).await.unwrap().error(401, "UNAUTHORIZED").unwrap();
    let reader = service.client_with_new_key("only-reads", "read").await.unwrap();
    reader.get(&path).await.unwrap().error(403, "FORBIDDEN").unwrap();
    // HEAD does not bypass the scope and opens nothing.
    for (client, status) in [(&reader, "403"), (&user, "426")] {
        let mut raw = service.raw().await.unwrap();
        let head = format!(
            "HEAD {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            client.authorization()
        );
        assert!(raw.write(head.as_bytes()).await);
        let answer = raw.head().await.unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
    }
    for body in [json!({"cols": 0}), json!({"rows": 1001}), json!({"timeoutMs": 86_400_001})] {
        user.post(&action_path(&id, "terminals"), &body).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    }
    let ended =
        user.call(Method::DELETE, &format!("{}/{execution}", action_path(&id, "executions"))).send().await;
    ended.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn input_resumes_a_paused_sandbox() {
    let (service, user) = user().await;
    let id = create_sandbox(&user).await;
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let (mut terminal, mut screen) = (sandbox.terminal().await.unwrap(), String::new());
    terminal.write("echo be''fore\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "before").await;
    user.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    terminal.write("echo aw''ake\r").await.unwrap();
    read_until(&mut terminal, &mut screen, "awake").await;
}

/// A terminal that is being opened has no attached client; the idle pause must not prevent opening it.
#[tokio::test]
async fn a_terminal_opens_despite_a_minimal_idle_timeout() {
    let (_service, user) = user().await;
    let body = crate::with(crate::small(), "idleTimeoutMs", json!(1));
    let sandbox = user.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
    let id = text(&sandbox["id"]);
    for _ in 0..20 {
        let (path, body) = (action_path(&id, "terminals"), json!({}));
        let opening = tokio::time::timeout(TIMEOUT, user.post(&path, &body));
        let created = opening.await.expect("opening the terminal timed out").unwrap();
        let execution = text(&created.is(201).unwrap()["executionId"]);
        user.delete(&execution_path(&id, &execution, "")).await.unwrap().is(200).unwrap();
    }
}
