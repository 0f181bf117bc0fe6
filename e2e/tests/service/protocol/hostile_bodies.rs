//! Invalid bodies: broken JSON and UTF-8, huge numbers, duplicate fields, deep nesting, excessive size, wrong types.

use std::time::{Duration, Instant};

use e2e::service::{Client, Service, ServiceOptions, read_answer};
use hyper::Method;
use serde_json::json;

use crate::ports::{expose, host_of};
use crate::{SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, shared_service, text, user};

async fn refused(client: &Client, path: &str, body: Vec<u8>) {
    let excerpt = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
    let begin = Instant::now();
    let answer = client
        .call(Method::POST, path)
        .body("application/json", body)
        .send()
        .await
        .unwrap_or_else(|e| panic!("{excerpt}: {e:#}"));
    answer.error(400, "INVALID_REQUEST").unwrap_or_else(|e| panic!("{path} {excerpt}: {e:#}"));
    assert!(begin.elapsed() < Duration::from_secs(5), "{excerpt}: {:?}", begin.elapsed());
}

#[tokio::test]
async fn invalid_json_and_utf_8_are_refused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let good = r#"{"image":"ubuntu:24.04","command":"true"}"#;
    let mut bodies: Vec<Vec<u8>> = (0..good.len()).map(|length| good.as_bytes()[..length].to_vec()).collect();
    for broken in [
        "nonsense",
        "{}}",
        "{} {}",
        "[]",
        "\"text\"",
        "5",
        "null",
        "true",
        "{\"image\" \"x\"}",
        "{image:\"x\"}",
        "{\"image\":\"x\",}",
        "{\"image\":\"a\tb\"}",
        "{\"image\":\"\\x\"}",
        "{\"image\":\"\\ud800\"}",
        "{\"image\":NaN}",
        "{\"image\":01}",
        "{\"image\":'x'}",
        "// comment\n{}",
        "\u{feff}{}",
        "{\"command\":1e999}",
        "\0",
    ] {
        bodies.push(broken.as_bytes().to_vec());
    }
    for bytes in [
        &b"\xff\xfe"[..],
        b"{\"image\":\"\xff\"}",
        b"{\"image\":\"\xc3\"}",
        b"{\"image\":\"\xed\xa0\x80\"}",
        b"{\"\xff\":1}",
    ] {
        bodies.push(bytes.to_vec());
        bodies.push([&b"{\"command\":\""[..], bytes, b"\"}"].concat());
    }
    for body in bodies {
        refused(&client, SANDBOXES, body.clone()).await;
        refused(&client, &action_path(&id, "execute"), body).await;
    }
}

#[tokio::test]
async fn numbers_are_judged_by_value() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let long = "9".repeat(1_000);
    for number in [
        "99999999999999999999",
        "-99999999999999999999",
        "1e400",
        "-0",
        "1e3",
        "300000.0",
        "0.1",
        &long,
        "9223372036854775808",
    ] {
        for (path, body) in [
            (SANDBOXES.to_owned(), format!("{{\"image\":\"ubuntu:24.04\",\"timeoutMs\":{number}}}")),
            (
                SANDBOXES.to_owned(),
                format!("{{\"image\":\"ubuntu:24.04\",\"resources\":{{\"cpu\":{number}}}}}"),
            ),
            (action_path(&id, "execute"), format!("{{\"command\":\"true\",\"timeoutMs\":{number}}}")),
        ] {
            let answer = client
                .call(Method::POST, &path)
                .body("application/json", body.clone().into_bytes())
                .send()
                .await
                .unwrap();
            // Whole numbers out of range are INVALID_CONFIG, others INVALID_REQUEST. The value counts, not the notation:
            // 1e3 is a whole number.
            if ["1e3", "300000.0"].contains(&number) && !body.contains("cpu") {
                assert!([200, 201].contains(&answer.status), "{body}: {}", answer.text());
                continue;
            }
            assert_eq!(answer.status, 400, "{body:.80}: {}", answer.text());
            let code = text(&answer.json().unwrap()["error"]["code"]);
            assert!(["INVALID_REQUEST", "INVALID_CONFIG"].contains(&code.as_str()));
            if number == "0.1" {
                assert_eq!(code, "INVALID_REQUEST", "{body}");
            }
            if number.starts_with("99999999999999999999") && number.len() == 20 {
                assert_eq!(code, "INVALID_CONFIG", "{body}");
            }
        }
    }
}

/// With duplicate fields, one value might be checked and the other used.
#[tokio::test]
async fn duplicate_fields_are_refused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for body in [
        r#"{"image":"ubuntu:24.04","image":"ubuntu:24.04"}"#,
        r#"{"image":"ubuntu:24.04","resources":{"cpu":2,"cpu":4}}"#,
        r#"{"image":"ubuntu:24.04","env":{"A":"1","A":"2"}}"#,
        r#"{"image":"ubuntu:24.04","metadata":{"A":"1","A":"2"}}"#,
        r#"{"image":"ubuntu:24.04","network":{"egress":{"default":"deny","default":"allow"}}}"#,
        r#"{"image":"ubuntu:24.04","timeoutMs":5,"timeoutMs":6}"#,
    ] {
        refused(&client, SANDBOXES, body.as_bytes().to_vec()).await;
    }
    refused(&client, &action_path(&id, "execute"), br#"{"command":"true","command":"false"}"#.to_vec()).await;
    refused(&client, &action_path(&id, "execute"), br#"{"command":"true","env":{"A":"","A":"x"}}"#.to_vec())
        .await;
}

#[tokio::test]
async fn deeply_nested_bodies_are_refused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [200, 100_000] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            for body in [
                deep.clone(),
                format!("{{\"image\":{deep}}}"),
                format!("{{\"image\":\"ubuntu:24.04\",\"metadata\":{{\"x\":{deep}}}}}"),
                // An unknown field is skipped if its value can be parsed.
                format!("{{\"command\":7,\"unknown\":{deep}}}"),
                open.repeat(depth),
            ] {
                refused(&client, SANDBOXES, body.clone().into_bytes()).await;
                refused(&client, &action_path(&id, "execute"), body.into_bytes()).await;
            }
        }
    }
}

#[tokio::test]
async fn other_content_types_are_refused() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let body = json!({ "image": "ubuntu:24.04", "command": "true" }).to_string().into_bytes();
    for path in [SANDBOXES.to_owned(), action_path(&id, "execute")] {
        for content_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/xml",
            "application/jsonp",
            "json",
            "",
            "application/json; charset=utf-16",
        ] {
            let answer =
                client.call(Method::POST, &path).body(content_type, body.clone()).send().await.unwrap();
            let error =
                answer.error(400, "INVALID_REQUEST").unwrap_or_else(|e| panic!("{content_type:?}: {e:#}"));
            assert!(text(&error["message"]).to_lowercase().contains("content-type"), "{error}");
        }
    }
    for content_type in
        ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"]
    {
        let answer = client
            .call(Method::POST, &action_path(&id, "execute"))
            .body(content_type, body.clone())
            .send()
            .await
            .unwrap();
        answer.is(200).unwrap_or_else(|e| panic!("{content_type}: {e:#}"));
    }
}

#[tokio::test]
async fn bodies_above_the_limit_are_refused() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let authorization = client.authorization().to_owned();
    for (path, most) in [(SANDBOXES.to_owned(), 1_usize << 20), (action_path(&id, "execute"), 16 << 20)] {
        // Declared as too large: refused before it is sent.
        for length in [most + 1, 100 << 20, 1 << 50] {
            let mut raw = service.raw().await.unwrap();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{"
            );
            let answer = raw.exchange(head.as_bytes()).await.unwrap();
            answer.error(413, "INVALID_REQUEST").unwrap();
        }
        // Found to be too large while chunks arrive.
        let mut raw = service.raw().await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let piece = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
        let mut bytes = head.into_bytes();
        for _ in 0..100 * 16 {
            bytes.extend_from_slice(&piece);
        }
        raw.exchange(&bytes).await.unwrap().error(413, "INVALID_REQUEST").unwrap();
    }
    // 100 MB that are really sent, by a client that reads the response only afterwards.
    let padded = format!("{{\"command\":\"true\",\"x\":\"{}\"}}", "x".repeat(100 << 20));
    let mut raw = service.raw().await.unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        action_path(&id, "execute"),
        padded.len()
    );
    let begin = Instant::now();
    raw.exchange(&[head.as_bytes(), padded.as_bytes()].concat())
        .await
        .unwrap()
        .error(413, "INVALID_REQUEST")
        .unwrap();
    assert!(begin.elapsed() < Duration::from_secs(15));
    // The maximum is accepted.
    let fill = (16 << 20) - r#"{"command":"wc -c","stdin":""}"#.len();
    let body = json!({ "command": "wc -c", "stdin": "x".repeat(fill) });
    assert_eq!(body.to_string().len(), 16 << 20);
    assert_eq!(crate::run_command(&client, &id, body).await["stdout"], format!("{fill}\n"));
}

/// An incomplete body is waited for only as long as the limits allow.
#[tokio::test]
async fn an_incomplete_body_times_out() {
    let (service, client) = user().await;
    let mut raw = service.raw().await.unwrap();
    let head = format!(
        "POST {SANDBOXES} HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{\"image\":",
        client.authorization()
    );
    assert!(raw.write(head.as_bytes()).await);
    let received = raw.closed(Duration::from_secs(45)).await.unwrap();
    let received = String::from_utf8_lossy(&received);
    assert!(received.is_empty() || received.starts_with("HTTP/1.1 4"), "{received}");
}

/// A client that sends the body in a packet of its own can go on with the connection, whichever API refused the request.
#[tokio::test]
async fn a_refused_request_is_followed_by_the_next_one_on_its_connection() {
    let options = ServiceOptions::default().with("e2b", "enabled", "true");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let port = expose(&client, &id, &json!({ "port": 8080 })).await;
    let (private, unknown) =
        (host_of(&port), format!("8080-{}.sandboxes.localhost", UNKNOWN_ID.replace('_', "-")));
    let authorization = format!("Authorization: {}\r\n", client.authorization());
    let refused = [
        (401, "x", SANDBOXES.to_owned(), ""),
        (404, "x", action_path(UNKNOWN_ID, "execute"), authorization.as_str()),
        (404, "x", "/v1/nothing".to_owned(), authorization.as_str()),
        (401, "x", "/mcp".to_owned(), ""),
        (401, "x", "/sandboxes".to_owned(), ""),
        (401, private.as_str(), "/".to_owned(), ""),
        (404, unknown.as_str(), "/".to_owned(), ""),
    ];
    for (status, host, path, key) in &refused {
        for attempt in 0..40 {
            let mut raw = service.raw().await.unwrap();
            // With and without a length.
            let (framing, body) = if attempt % 2 == 0 {
                ("Content-Length: 5", "hello")
            } else {
                ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")
            };
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\n{key}Content-Type: application/json\r\n{framing}\r\n\r\n"
            );
            assert!(raw.write(head.as_bytes()).await);
            if attempt % 4 < 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(raw.write(body.as_bytes()).await);
            let answer = read_answer(&mut raw.0).await.unwrap();
            assert_eq!(answer.status, *status, "{host} {path}");
            if framing.starts_with("Transfer") && answer.header("connection") == Some("close") {
                // On a busy machine chunks can be later than the response waits.
                continue;
            }
            assert_eq!(answer.header("connection"), None, "{host} {path}");
            assert!(raw.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n").await);
            let next = raw.answer().await.unwrap_or_else(|e| panic!("{host} {path}: {e:#}"));
            assert_eq!(next.status, 200);
        }
    }
}

/// A body that is too long to be drained ends the connection with notice, and the client reads the response although it still sends.
#[tokio::test]
async fn the_refusal_of_a_long_body_announces_the_end_of_the_connection() {
    let service = shared_service().await;
    let mut raw = service.raw().await.unwrap();
    let length = 8 << 20;
    let head = format!("POST {SANDBOXES} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    assert!(raw.write(head.as_bytes()).await);
    assert!(raw.write(&vec![b' '; length]).await, "the server takes the body");
    let answer = raw.answer().await.unwrap();
    answer.error(401, "UNAUTHORIZED").unwrap();
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(raw.closed(Duration::from_secs(5)).await.unwrap().is_empty());
}
