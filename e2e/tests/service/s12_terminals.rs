//! Terminals over the service's websocket, by the client library.

use std::time::Duration;

use e2e::service::{Service, ServiceOptions};
use hyper::Method;
use sandboxd_client::{Client, Shown, Terminal};
use serde_json::json;

use crate::{created, text, user, verb};

const PATIENCE: Duration = Duration::from_secs(30);

/// The library's client for a key of ours.
fn library(service: &Service, client: &e2e::service::Client) -> Client {
    let key = client.authorization().trim_start_matches("Bearer ").to_owned();
    let builder = Client::builder().url(format!("https://{}", service.address)).key(key);
    builder.certificate_file(service.certificate_file().unwrap()).build().unwrap()
}

/// Reads until the screen has had `wanted`; all that it showed.
async fn shown(terminal: &mut Terminal, seen: &mut String, wanted: &str) {
    let reading = async {
        while !seen.contains(wanted) {
            match terminal.next().await.unwrap() {
                Some(Shown::Bytes(bytes)) => seen.push_str(&String::from_utf8_lossy(&bytes)),
                Some(Shown::Ended(ended)) => {
                    panic!("it ended ({:?}) before {wanted:?} in {seen:?}", ended.exit_code)
                }
                Some(_) => {}
                None => panic!("nothing more, and no {wanted:?} in {seen:?}"),
            }
        }
    };
    assert!(tokio::time::timeout(PATIENCE, reading).await.is_ok(), "no {wanted:?} in {seen:?}");
}

async fn exit_code(terminal: &mut Terminal) -> Option<i32> {
    loop {
        match tokio::time::timeout(PATIENCE, terminal.next()).await.unwrap().unwrap() {
            Some(Shown::Ended(ended)) => return ended.exit_code,
            Some(_) => {}
            None => panic!("it does not say how it ended"),
        }
    }
}

#[tokio::test]
async fn a_terminal_is_one_has_a_size_and_can_be_shared_and_come_back_to() {
    let (service, user) = user().await;
    let id = created(&user).await;
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let mut terminal = sandbox.terminal().size(97, 31).await.unwrap();
    let mut seen = String::new();
    terminal.write("test -t 0 && stty size\r").await.unwrap();
    shown(&mut terminal, &mut seen, "31 97").await;
    terminal.resize(120, 40).await.unwrap();
    terminal.write("stty size\r").await.unwrap();
    shown(&mut terminal, &mut seen, "40 120").await;
    // Another one sees all of it from the beginning, and what either types.
    let execution = terminal.execution().clone();
    let (mut other, mut also) = (execution.attach().await.unwrap(), String::new());
    shown(&mut other, &mut also, "40 120").await;
    other.write("echo fr''om-other\r").await.unwrap();
    shown(&mut terminal, &mut seen, "from-other").await;
    shown(&mut other, &mut also, "from-other").await;
    // Ctrl-C reaches what runs in the foreground.
    terminal.write("sleep 600; echo in''terrupted\r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    terminal.write("\x03").await.unwrap();
    terminal.write("\recho go''es-on\r").await.unwrap();
    shown(&mut terminal, &mut seen, "goes-on").await;
    drop(terminal);
    // From an offset: only what comes after it.
    let end: u64 = execution.status().await.unwrap().output_end.split('.').next().unwrap().parse().unwrap();
    let (mut again, mut rest) = (execution.attach_from(end).await.unwrap(), String::new());
    again.write("echo se''cond; exit 7\r").await.unwrap();
    shown(&mut again, &mut rest, "second").await;
    assert!(!rest.contains("from-other"), "{rest:?}");
    assert_eq!(exit_code(&mut again).await, Some(7));
    assert_eq!(exit_code(&mut other).await, Some(7));
    // Of one that has ended it is still there.
    let (mut late, mut all) = (execution.attach().await.unwrap(), String::new());
    shown(&mut late, &mut all, "from-other").await;
    assert_eq!(exit_code(&mut late).await, Some(7));
}

#[tokio::test]
async fn a_terminal_outlives_the_daemon_that_opened_it() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let user = service.account().await.unwrap();
    let id = created(&user).await;
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let (mut terminal, mut seen) = (sandbox.terminal().await.unwrap(), String::new());
    terminal.write("echo be''fore $$\r").await.unwrap();
    shown(&mut terminal, &mut seen, "before ").await;
    for round in 0..2 {
        service.kill().unwrap();
        service.boot().await.unwrap();
        let reading = async { while !matches!(terminal.next().await.unwrap(), Some(Shown::Back)) {} };
        tokio::time::timeout(PATIENCE, reading).await.unwrap();
        terminal.write(format!("echo aft''er-{round}\r")).await.unwrap();
        shown(&mut terminal, &mut seen, &format!("after-{round}")).await;
    }
    // Nothing of it came twice: it is what is kept.
    let output = terminal.execution().output().await.unwrap();
    assert!(output.stdout.matches("after-0").count() == 1, "{:?}", output.stdout);
    terminal.write("exit\r").await.unwrap();
    assert_eq!(exit_code(&mut terminal).await, Some(0));
}

#[tokio::test]
async fn a_websocket_is_refused_to_who_may_not_or_does_not_ask_for_one() {
    let (service, user) = user().await;
    let id = created(&user).await;
    let opened = user.post(&verb(&id, "terminals"), &json!({})).await.unwrap().is(201).unwrap();
    let execution = text(&opened["executionId"]);
    let path = format!("{}/{execution}/attach", verb(&id, "executions"));
    user.get(&path).await.unwrap().error(426, "INVALID_REQUEST").unwrap();
    service.over_http2(&user).unwrap().get(&path).await.unwrap().error(426, "INVALID_REQUEST").unwrap();
    user.get(&format!("{path}?after=999999")).await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    let anonymous = service.anonymous().unwrap();
    anonymous.get(&path).await.unwrap().error(401, "UNAUTHORIZED").unwrap();
    let reader = service.client_of("only-reads", "read").await.unwrap();
    reader.get(&path).await.unwrap().error(403, "FORBIDDEN").unwrap();
    // A HEAD is no way around the scope, nor does it open anything.
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
        user.post(&verb(&id, "terminals"), &body).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    }
    let ended = user.call(Method::DELETE, &format!("{}/{execution}", verb(&id, "executions"))).send().await;
    ended.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn what_is_typed_wakes_a_paused_sandbox() {
    let (service, user) = user().await;
    let id = created(&user).await;
    let sandbox = library(&service, &user).sandbox(&id).unwrap();
    let (mut terminal, mut seen) = (sandbox.terminal().await.unwrap(), String::new());
    terminal.write("echo be''fore\r").await.unwrap();
    shown(&mut terminal, &mut seen, "before").await;
    user.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
    terminal.write("echo aw''ake\r").await.unwrap();
    shown(&mut terminal, &mut seen, "awake").await;
}

/// Nobody is at a terminal that is being opened, and its sandbox sleeps as soon as it may: not before the terminal is open.
#[tokio::test]
async fn a_terminal_opens_in_a_sandbox_that_falls_asleep_at_once() {
    let (_service, user) = user().await;
    let body = crate::with(crate::small(), "idleTimeoutMs", json!(1));
    let sandbox = user.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
    let id = text(&sandbox["id"]);
    for _ in 0..20 {
        let (path, body) = (verb(&id, "terminals"), json!({}));
        let opening = tokio::time::timeout(PATIENCE, user.post(&path, &body));
        let opened = opening.await.expect("it waits for ever").unwrap();
        let execution = text(&opened.is(201).unwrap()["executionId"]);
        let at = format!("/v1/sandboxes/{id}/executions/{execution}");
        user.delete(&at).await.unwrap().is(200).unwrap();
    }
}
