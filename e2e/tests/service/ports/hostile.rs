//! Hostile programs and hostile clients of ports.

use std::time::Duration;

use e2e::service::{Service, ServiceOptions};
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::ports::{PORT, PortClient, expose, host_of, listen, open_port};
use crate::{create_sandbox, output, user, wait_until};

#[tokio::test]
async fn invalid_responses_are_reported_and_not_forwarded() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    for bad in ["garbage", "lengths", "negative", "coding", "nothing", "half", "header", "protocol"] {
        for response in [
            port_client.get(&format!("/bad?{bad}")).await,
            port_client.send_h2(port_client.request("GET", &format!("/bad?{bad}"))).await,
        ] {
            assert_eq!(
                (response.status, response.code().as_str()),
                (502, "PORT_UNREACHABLE"),
                "{bad}: {response:?}"
            );
        }
    }
    for endless in ["endless", "interim"] {
        let response = port_client.get(&format!("/{endless}")).await;
        assert_eq!((response.status, response.code().as_str()), (502, "PORT_UNREACHABLE"), "{endless}");
    }
    // Chunked encoding overrides Content-Length, which is not forwarded.
    assert_eq!(port_client.get("/bad?both").await.text(), "abcd");
    assert_eq!(port_client.get("/").await.status, 200);
}

/// The bytes that a client receives for a truncated response, on a connection with a second request.
async fn read_cut_response(port_client: &PortClient, path: &str) -> String {
    let token = port_client.token.clone().unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nX-Sandbox-Token: {token}\r\n\r\n", port_client.host);
    // The second request must not be answered with remains of the first response.
    let mut stream = port_client.raw(&format!("{request}{request}")).await;
    let mut received = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut received)).await.unwrap();
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn truncated_responses_are_cut() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    for bad in ["chunk", "short"] {
        let received = read_cut_response(&port_client, &format!("/bad?{bad}")).await;
        // It may be cut before the head was sent.
        assert!(received.matches("HTTP/1.1").count() <= 1, "{received}");
        assert!(!received.ends_with("0\r\n\r\n"), "{received}");
    }
    // Bytes after a response are discarded.
    let token = port_client.token.clone().unwrap();
    let ask = |path: &str, last: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nX-Sandbox-Token: {token}\r\nConnection: {last}\r\n\r\n",
            port_client.host
        )
    };
    let mut stream =
        port_client.raw(&format!("{}{}", ask("/bad?second", "keep-alive"), ask("/", "close"))).await;
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    assert_eq!(received.matches("HTTP/1.1 200").count(), 2, "{received}");
    assert!(!received.contains("poison") && received.ends_with("it is port 8080"), "{received}");
}

#[tokio::test]
async fn a_silent_program_times_out_and_frees_its_connection() {
    let options =
        ServiceOptions::default().with("ports", "idle_seconds", "5").with("ports", "max_connections", "3");
    let service = std::sync::Arc::new(Service::start(&options).await.unwrap());
    let client = service.account().await.unwrap();
    let (_id, port_client) = open_port(&service, &client).await;
    let response = port_client.get("/silent").await;
    assert_eq!((response.status, response.text().contains("PORT_UNREACHABLE")), (504, true), "{response:?}");
    assert!(read_cut_response(&port_client, "/stall").await.ends_with("half"));
    // A websocket without traffic.
    let mut socket = port_client.websocket().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(30), socket.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
    // At most three connections per sandbox.
    let held = futures_util::future::join_all((0..3).map(|_| port_client.websocket())).await;
    let response = port_client.get("/").await;
    assert_eq!((response.status, response.code().as_str()), (429, "RATE_LIMITED"));
    assert_eq!(response.headers["retry-after"], "1");
    drop(held);
    wait_until("a connection is free", async || port_client.get("/").await.status == 200).await;
}

/// Sends bytes to a port's host; returns all bytes received.
async fn exchange(port_client: &PortClient, bytes: &str) -> String {
    let mut stream = port_client.raw(bytes).await;
    let mut received = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut received)).await.unwrap();
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    let port_client = PortClient { service: service.clone(), host: host_of(&port), token: None };
    let host = &port_client.host;
    let inner = format!("GET /head HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\u{b}chunked\r\n",
        "Content-Length: +5\r\n",
    ] {
        let answer = exchange(
            &port_client,
            &format!("POST /count HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n0\r\n\r\n{inner}"),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{framing:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{framing:?}: {answer}");
    }
    // Content-Length named in `Connection` still determines the length of the body.
    let request = format!(
        "POST /count HTTP/1.1\r\nHost: {host}\r\nConnection: content-length, close\r\nContent-Length: {}\r\n\r\n{inner}",
        inner.len()
    );
    let answer = exchange(&port_client, &request).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("\r\n\r\n{}", inner.len())),
        "{answer}"
    );
}

#[tokio::test]
async fn contradictory_hosts_are_refused() {
    let (service, client) = user().await;
    let (id, port_client) = open_port(&service, &client).await;
    let (host, token) = (&port_client.host, port_client.token.clone().unwrap());
    let other = create_sandbox(&client).await;
    let public = expose(&client, &other, &json!({ "port": PORT, "visibility": "public" })).await;
    let public = host_of(&public);
    let lines = |target: &str, host: &str| {
        format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nX-Sandbox-Token: {token}\r\nConnection: close\r\n\r\n"
        )
    };
    for (target, host_header, status) in [
        (format!("https://{host}/"), host.clone(), 200),
        (format!("https://{host}/"), format!("{host}:1"), 200),
        ("/".to_owned(), format!("{}.", host.to_uppercase()), 200),
        (format!("https://{host}/"), "localhost".to_owned(), 400),
        ("https://localhost/".to_owned(), host.clone(), 400),
        (format!("https://{host}/"), public.clone(), 400),
        (format!("https://user@{host}/"), host.clone(), 400),
        ("/".to_owned(), format!("{host}@localhost"), 400),
        ("/".to_owned(), format!("{host}, localhost"), 400),
        ("/".to_owned(), format!("x.{host}"), 404),
        ("/".to_owned(), "sandboxes.localhost".to_owned(), 401),
    ] {
        let answer = exchange(&port_client, &lines(&target, &host_header)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {host_header}: {answer}");
    }
    // The API is not served under a port's name.
    let answer = exchange(&port_client, &lines("/v1/sandboxes", host)).await;
    assert!(answer.ends_with("it is port 8080"), "{answer}");
    let connect =
        exchange(&port_client, &format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    assert!(connect.starts_with("HTTP/1.1 400 "), "{connect}");
    assert_eq!(output(&client, &id, "true").await, "");
}

#[tokio::test]
async fn clients_that_disconnect_leave_nothing() {
    let (service, client) = user().await;
    let (id, port_client) = open_port(&service, &client).await;
    let head =
        format!("Host: {}\r\nX-Sandbox-Token: {}\r\n", port_client.host, port_client.token.clone().unwrap());
    let serving = async || output(&client, &id, "pgrep -fc 'portal.p[l]'").await;
    for begin in [
        format!("GET /big?5000000000 HTTP/1.1\r\n{head}\r\n"),
        format!("POST /count HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\nhalf"),
        port_client.handshake(),
    ] {
        let stream = port_client.raw(&begin).await;
        wait_until("the program handles the request", async || serving().await == "2\n").await;
        drop(stream);
        wait_until("the program is idle", async || serving().await == "1\n").await;
    }
    assert_eq!(port_client.get("/").await.text(), "it is port 8080");
}

/// API keys that are sent to a port by mistake, in any form, and forged forwarding headers do not reach the program.
#[tokio::test]
async fn keys_and_forged_forwarding_headers_do_not_reach_the_program() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    let port_client = PortClient { service: service.clone(), host: host_of(&port), token: None };
    let key = client.key().to_owned();
    let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let (user, password) = (base64(&format!("{key}:")), base64(&format!("me:{key}")));
    let headers = [
        ("authorization", format!("Bearer {key}")),
        ("authorization", format!("Basic {user}")),
        ("authorization", format!("Basic {password}")),
        ("proxy-authorization", format!("Basic {password}")),
        ("x-api-key", key.clone()),
        ("x-anything", percent(&key)),
        ("cookie", format!("a=1; key={key}")),
        ("cookie", format!("a=1; key={}", percent(&key))),
        ("referer", format!("https://x/?key={key}")),
        ("sec-websocket-protocol", format!("bearer.{key}")),
        ("x_forwarded_for", "203.0.113.9".to_owned()),
        ("x-forwarded-port", "203113".to_owned()),
        ("x_forwarded_proto", "203.0.113.9".to_owned()),
        ("true-client-ip", "203.0.113.9".to_owned()),
        ("x-real-ip", "203.0.113.9".to_owned()),
        ("x_real_ip", "203.0.113.9".to_owned()),
        ("forwarded", "for=203.0.113.9".to_owned()),
        ("cf-connecting-ip", "203.0.113.9".to_owned()),
        ("x-client-ip", "203.0.113.9".to_owned()),
        ("x-forwarded-for", "203.0.113.9".to_owned()),
    ];
    let secrets =
        [key.clone(), percent(&key), user.clone(), password.clone(), "203.0.113.9".into(), "203113".into()];
    let check = |what: &str, response: &crate::ports::PortResponse| {
        assert_eq!(response.status, 200, "{what}: {response:?}");
        let head = response.text();
        assert!(head.contains("GET /head"), "{what}: {head}");
        for secret in &secrets {
            assert!(!head.to_lowercase().contains(&secret.to_lowercase()), "{what}: {head}");
        }
    };
    for (name, value) in &headers {
        let request = || {
            let mut request = port_client.request("GET", "/head");
            request.headers_mut().insert(*name, value.parse().unwrap());
            request
        };
        check(name, &port_client.send(request()).await);
        check(name, &port_client.send_h2(request()).await);
    }
    for path in [
        format!("/head?a=1&key={key}&b=2"),
        format!("/head?key={}", percent(&key)),
        format!("/head?key={}", percent(&percent(&key))),
        format!("/head?basic={user}"),
    ] {
        check(&path, &port_client.get(&path).await);
    }
    for path in [format!("/head/{key}"), format!("/head/{}", percent(&key)), format!("/{password}/head")] {
        let response = port_client.get(&path).await;
        assert_eq!((response.status, response.code().as_str()), (400, "INVALID_REQUEST"), "{path}");
    }
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for group in text.as_bytes().chunks(3) {
        let number = (0..3).fold(0, |number, at| number << 8 | u32::from(*group.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at) & 63) as usize];
            encoded.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    encoded
}
