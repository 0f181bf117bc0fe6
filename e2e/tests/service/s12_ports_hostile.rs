//! Programs that answer in bad faith, and clients that ask in it.

use std::time::Duration;

use e2e::service::{Service, ServiceOptions};
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::portal::{Door, PORT, expose, host_of, listen, opened};
use crate::{created, output, until, user};

#[tokio::test]
async fn bad_answers_are_told_and_never_passed_on() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    for bad in ["garbage", "lengths", "negative", "coding", "nothing", "half", "header", "protocol"] {
        for told in [
            door.get(&format!("/bad?{bad}")).await,
            door.send_h2(door.request("GET", &format!("/bad?{bad}"))).await,
        ] {
            assert_eq!((told.status, told.code().as_str()), (502, "PORT_UNREACHABLE"), "{bad}: {told:?}");
        }
    }
    for endless in ["endless", "interim"] {
        let told = door.get(&format!("/{endless}")).await;
        assert_eq!((told.status, told.code().as_str()), (502, "PORT_UNREACHABLE"), "{endless}");
    }
    // Of two lengths that of the chunks counts, and is said anew.
    assert_eq!(door.get("/bad?both").await.text(), "abcd");
    assert_eq!(door.get("/").await.status, 200);
}

/// What a client reads of an answer that ends too early, on a connection that it would use again.
async fn cut(door: &Door, path: &str) -> String {
    let token = door.token.clone().unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nX-Sandbox-Token: {token}\r\n\r\n", door.host);
    // The second is not answered from what the first left.
    let mut stream = door.raw(&format!("{request}{request}")).await;
    let mut said = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await.unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    for bad in ["chunk", "short"] {
        let said = cut(&door, &format!("/bad?{bad}")).await;
        // It may break off before its head was sent.
        assert!(said.matches("HTTP/1.1").count() <= 1, "{said}");
        assert!(!said.ends_with("0\r\n\r\n"), "{said}");
    }
    // Bytes behind an answer belong to nobody.
    let token = door.token.clone().unwrap();
    let ask = |path: &str, last: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nX-Sandbox-Token: {token}\r\nConnection: {last}\r\n\r\n",
            door.host
        )
    };
    let mut stream = door.raw(&format!("{}{}", ask("/bad?second", "keep-alive"), ask("/", "close"))).await;
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert_eq!(said.matches("HTTP/1.1 200").count(), 2, "{said}");
    assert!(!said.contains("poison") && said.ends_with("it is port 8080"), "{said}");
}

#[tokio::test]
async fn a_silent_program_is_given_up_and_its_place_comes_back() {
    let options =
        ServiceOptions::default().with("ports", "idle_seconds", "5").with("ports", "max_connections", "3");
    let service = std::sync::Arc::new(Service::start(&options).await.unwrap());
    let client = service.account().await.unwrap();
    let (_id, door) = opened(&service, &client).await;
    let told = door.get("/silent").await;
    assert_eq!((told.status, told.text().contains("PORT_UNREACHABLE")), (504, true), "{told:?}");
    assert!(cut(&door, "/stall").await.ends_with("half"));
    // A websocket on which nothing moves.
    let mut socket = door.websocket().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(30), socket.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
    // Three at once are the most, of this sandbox alone.
    let held = futures_util::future::join_all((0..3).map(|_| door.websocket())).await;
    let told = door.get("/").await;
    assert_eq!((told.status, told.code().as_str()), (429, "RATE_LIMITED"));
    assert_eq!(told.headers["retry-after"], "1");
    drop(held);
    until("there is room", async || door.get("/").await.status == 200).await;
}

/// Sends bytes to a port's host; all that comes back.
async fn said(door: &Door, bytes: &str) -> String {
    let mut stream = door.raw(bytes).await;
    let mut said = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await.unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn requests_that_two_could_read_differently_are_refused() {
    let (service, client) = user().await;
    let id = created(&client).await;
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    let door = Door { service: service.clone(), host: host_of(&port), token: None };
    let host = &door.host;
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
        let answer =
            said(&door, &format!("POST /count HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n0\r\n\r\n{inner}"))
                .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{framing:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{framing:?}: {answer}");
    }
    // A header that `Connection` names does not change how long the body is.
    let sly = format!(
        "POST /count HTTP/1.1\r\nHost: {host}\r\nConnection: content-length, close\r\nContent-Length: {}\r\n\r\n{inner}",
        inner.len()
    );
    let answer = said(&door, &sly).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("\r\n\r\n{}", inner.len())),
        "{answer}"
    );
}

#[tokio::test]
async fn hosts_that_say_two_things_are_refused() {
    let (service, client) = user().await;
    let (id, door) = opened(&service, &client).await;
    let (host, token) = (&door.host, door.token.clone().unwrap());
    let other = created(&client).await;
    let public = expose(&client, &other, &json!({ "port": PORT, "visibility": "public" })).await;
    let public = host_of(&public);
    let lines = |target: &str, host: &str| {
        format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nX-Sandbox-Token: {token}\r\nConnection: close\r\n\r\n"
        )
    };
    for (target, named, status) in [
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
        let answer = said(&door, &lines(&target, &named)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {named}: {answer}");
    }
    // Neither does the interface answer under a port's name, nor a port under the interface's.
    let answer = said(&door, &lines("/v1/sandboxes", host)).await;
    assert!(answer.ends_with("it is port 8080"), "{answer}");
    let connect = said(&door, &format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    assert!(connect.starts_with("HTTP/1.1 400 "), "{connect}");
    assert_eq!(output(&client, &id, "true").await, "");
}

#[tokio::test]
async fn clients_that_go_away_leave_nothing() {
    let (service, client) = user().await;
    let (id, door) = opened(&service, &client).await;
    let head = format!("Host: {}\r\nX-Sandbox-Token: {}\r\n", door.host, door.token.clone().unwrap());
    let serving = async || output(&client, &id, "pgrep -fc 'portal.p[l]'").await;
    for begin in [
        format!("GET /big?5000000000 HTTP/1.1\r\n{head}\r\n"),
        format!("POST /count HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\nhalf"),
        door.handshake(),
    ] {
        let stream = door.raw(&begin).await;
        until("the program serves", async || serving().await == "2\n").await;
        drop(stream);
        until("the program has nothing to do", async || serving().await == "1\n").await;
    }
    assert_eq!(door.get("/").await.text(), "it is port 8080");
}

/// A key that somebody sends to a port by mistake, in whatever form, never reaches the program; nor does a header by which a
/// client could pass for somebody else.
#[tokio::test]
async fn the_program_gets_no_key_and_no_forged_forwarding_header() {
    let (service, client) = user().await;
    let id = created(&client).await;
    listen(&client, &id, PORT).await;
    let port = expose(&client, &id, &json!({ "port": PORT, "visibility": "public" })).await;
    let door = Door { service: service.clone(), host: host_of(&port), token: None };
    let key = client.authorization().strip_prefix("Bearer ").unwrap().to_owned();
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
    let check = |what: &str, told: &crate::portal::Told| {
        assert_eq!(told.status, 200, "{what}: {told:?}");
        let seen = told.text();
        assert!(seen.contains("GET /head"), "{what}: {seen}");
        for secret in &secrets {
            assert!(!seen.to_lowercase().contains(&secret.to_lowercase()), "{what}: {seen}");
        }
    };
    for (name, value) in &headers {
        let request = || {
            let mut request = door.request("GET", "/head");
            request.headers_mut().insert(*name, value.parse().unwrap());
            request
        };
        check(name, &door.send(request()).await);
        check(name, &door.send_h2(request()).await);
    }
    for path in [
        format!("/head?a=1&key={key}&b=2"),
        format!("/head?key={}", percent(&key)),
        format!("/head?key={}", percent(&percent(&key))),
        format!("/head?basic={user}"),
    ] {
        check(&path, &door.get(&path).await);
    }
    for path in [format!("/head/{key}"), format!("/head/{}", percent(&key)), format!("/{password}/head")] {
        let told = door.get(&path).await;
        assert_eq!((told.status, told.code().as_str()), (400, "INVALID_REQUEST"), "{path}");
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
