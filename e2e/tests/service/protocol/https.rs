//! HTTPS, the redirect, content types, request ids, timestamps.

use std::collections::HashSet;

use e2e::service::read_answer;
use hyper::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::{
    SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, now_ms, sandbox_path, shared_service, small, time,
    user,
};

async fn plain(request: &str) -> e2e::service::HttpResponse {
    let service = shared_service().await;
    let mut stream = TcpStream::connect(service.plain).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_answer(&mut stream).await.unwrap()
}

#[tokio::test]
async fn plain_http_is_redirected_to_the_same_target_over_https() {
    let service = shared_service().await;
    let port = service.address.port();
    for (method, target) in [
        ("GET", "/v1/health"),
        ("POST", "/v1/sandboxes"),
        ("GET", "/v1/sandboxes?limit=5&metadata.userId=a%20b&state=running"),
        ("DELETE", "/v1/sandboxes/sb_0123456789"),
        ("GET", "/"),
        ("GET", "/no/such/../place"),
    ] {
        let answer = plain(&format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost:{}\r\nContent-Length: 0\r\n\r\n",
            service.plain.port()
        ))
        .await;
        assert_eq!(answer.status, 301, "{method} {target}");
        assert_eq!(answer.header("location"), Some(format!("https://localhost:{port}{target}").as_str()));
        assert!(answer.header("x-request-id").is_some());
    }
}

#[tokio::test]
async fn the_redirect_uses_only_valid_hosts() {
    let service = shared_service().await;
    let port = service.address.port();
    // Valid host names are kept in the redirect.
    for host in ["sandboxes.example.com", "sandboxes.example.com:8080", "192.0.2.7", "[2001:db8::1]:80"] {
        let answer = plain(&format!("GET /v1/health HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let name = host.strip_suffix(":8080").or(host.strip_suffix(":80")).unwrap_or(host);
        assert_eq!(answer.status, 301);
        assert_eq!(answer.header("location"), Some(format!("https://{name}:{port}/v1/health").as_str()));
    }
    // Hosts that lead elsewhere or break the header are not used.
    for host in ["evil.example/..", "user@evil.example", "evil.example#", "a b", "evil.example\\@x", ""] {
        let answer = plain(&format!("GET /v1/health HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        match answer.status {
            301 => {
                let location = answer.header("location").unwrap();
                assert!(location.ends_with(&format!(":{port}/v1/health")), "{host}: {location}");
                assert!(!location.contains("evil") && !location.contains(' '), "{host}: {location}");
            }
            status => assert_eq!(status, 400, "{host}"),
        }
    }
}

#[tokio::test]
async fn the_certificate_covers_all_names() {
    let service = shared_service().await;
    for name in ["localhost", "127.0.0.1"] {
        service.tls(name, &["http/1.1"]).await.unwrap();
    }
    assert!(service.tls("sandboxes.example.com", &["http/1.1"]).await.is_err());
    let h2 = service.tls("localhost", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(h2.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let h1 = service.tls("localhost", &["http/1.1"]).await.unwrap();
    assert_eq!(h1.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn http_2_and_http_1_give_the_same_results() {
    let (service, client) = user().await;
    let http2 = service.over_http2(&client).unwrap();
    let id = create_sandbox(&http2).await;
    let one = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let two = http2.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(one, two);
    let result = http2.post(&action_path(&id, "execute"), &json!({ "command": "echo hi" })).await.unwrap();
    assert_eq!(result.is(200).unwrap()["stdout"], "hi\n");
    http2.get(&sandbox_path(UNKNOWN_ID)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    let command = json!({ "command": "echo a; echo b" });
    let events =
        http2.call(Method::POST, &action_path(&id, "execute")).json(&command).stream().await.unwrap();
    let names: Vec<String> = events.rest().await.unwrap().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["stdout", "stdout", "done"]);
}

/// The client checks every response; here each kind of response occurs once.
#[tokio::test]
async fn every_response_is_json_with_a_request_id_and_rate_headers() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let anonymous = service.anonymous().unwrap();
    let mut seen = HashSet::new();
    for answer in [
        anonymous.get("/v1/health").await.unwrap(),
        anonymous.get(SANDBOXES).await.unwrap(),
        anonymous.get("/nowhere").await.unwrap(),
        client.get("/nowhere").await.unwrap(),
        client.get("/v1/openapi.json").await.unwrap(),
        client.get(SANDBOXES).await.unwrap(),
        client.get(&sandbox_path(&id)).await.unwrap(),
        client.call(Method::PUT, SANDBOXES).send().await.unwrap(),
        client.post(SANDBOXES, &json!({})).await.unwrap(),
        client.post(SANDBOXES, &json!({ "image": "no-such" })).await.unwrap(),
        client.post_empty(&action_path(&id, "pause")).await.unwrap(),
        client.post_empty(&action_path(&id, "pause")).await.unwrap(),
        client.post_empty(&action_path(&id, "resume")).await.unwrap(),
        client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap(),
        client.delete(&sandbox_path(&id)).await.unwrap(),
        client.delete(&sandbox_path(&id)).await.unwrap(),
    ] {
        answer.check().unwrap();
        assert!(seen.insert(answer.header("x-request-id").unwrap().to_owned()), "a request id is not unique");
    }
}

#[tokio::test]
async fn a_well_formed_request_id_of_the_client_is_used() {
    let (_service, client) = user().await;
    let longest = "x".repeat(128);
    for own in ["abc-123", "7f.A_b:9", "x", &longest] {
        for path in ["/v1/health", "/nowhere", SANDBOXES] {
            let answer = client.call(Method::GET, path).header("x-request-id", own).send().await.unwrap();
            assert_eq!(answer.header("x-request-id"), Some(own));
        }
    }
    let too_long = "x".repeat(129);
    for bad in ["", "a b", "a/b", "<script>", "ä", &too_long] {
        let answer = client.call(Method::GET, "/nowhere").header("x-request-id", bad).send().await.unwrap();
        assert_ne!(answer.header("x-request-id"), Some(bad), "{bad:?} was accepted");
    }
    let call =
        client.call(Method::GET, "/v1/health").header("x-request-id", "one").header("x-request-id", "two");
    call.send().await.unwrap().check().unwrap();
}

#[tokio::test]
async fn timestamps_are_utc_with_milliseconds() {
    let (_service, client) = user().await;
    let before = now_ms();
    let sandbox = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    let health = client.get("/v1/health").await.unwrap().is(200).unwrap();
    let after = now_ms();
    for moment in [&sandbox["createdAt"], &sandbox["startedAt"], &health["timestamp"]] {
        assert!((before..=after).contains(&time(moment)), "{moment} is not in {before}..={after}");
    }
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut raw = service.raw().await.unwrap();
    for _ in 0..20 {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\n\r\n",
            sandbox_path(&id),
            client.authorization()
        );
        let answer = raw.exchange(request.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200);
    }
    // Two pipelined requests are answered in order.
    let authorization = client.authorization();
    let pair = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n",
        sandbox_path(&id)
    );
    assert!(raw.write(pair.as_bytes()).await);
    assert_eq!(raw.answer().await.unwrap().json().unwrap()["id"], id.as_str());
    assert_eq!(raw.answer().await.unwrap().json().unwrap()["status"], "ok");
}
