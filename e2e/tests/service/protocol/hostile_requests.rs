//! Invalid request lines and headers, incomplete requests, floods. Each is answered with a suitable 4xx and the error body, or the
//! connection is closed; no 500, no hang, and the service continues to work.

use std::time::{Duration, Instant};

use e2e::service::{Client, HttpResponse, Service, ServiceOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::{SANDBOXES, action_path, create_sandbox, sandbox_path, shared_service, user};

/// Sends bytes on a new connection; returns the response.
async fn exchange(service: &Service, bytes: &[u8]) -> HttpResponse {
    let excerpt = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    let begin = Instant::now();
    let mut raw = service.raw().await.unwrap();
    let answer = raw.exchange(bytes).await.unwrap_or_else(|e| panic!("{excerpt:?}: {e:#}"));
    assert!(begin.elapsed() < Duration::from_secs(15), "{excerpt:?} took {:?}", begin.elapsed());
    answer
}

async fn assert_serves(client: &Client) {
    client.with_own_connections().get(SANDBOXES).await.unwrap().is(200).unwrap();
}

fn get(client: &Client, path: &str, headers: &str) -> Vec<u8> {
    let authorization = client.authorization();
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nConnection: close\r\n{headers}\r\n").into_bytes()
}

#[tokio::test]
async fn invalid_requests_are_answered_with_4xx() {
    let (service, client) = user().await;
    for garbage in [
        &b"\r\n\r\n\r\nnonsense\r\n\r\n"[..],
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET / HTTP/1.1\r\nA B: space\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    ] {
        let answer = exchange(&service, garbage).await;
        let excerpt = String::from_utf8_lossy(garbage);
        // Requests that the parser accepts have no key.
        assert!([400, 401, 404, 413, 501].contains(&answer.status), "{excerpt:?}: {}", answer.status);
    }
    assert_serves(&client).await;
}

/// Contradictory lengths and invalid chunks must not allow request smuggling.
#[tokio::test]
async fn requests_cannot_be_smuggled() {
    let (service, client) = user().await;
    let authorization = client.authorization();
    let head = format!(
        "POST {SANDBOXES} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Type: application/json\r\n"
    );
    let hidden =
        format!("GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Request-Id: hidden-{}\r\n\r\n", std::process::id());
    for body in [
        format!("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n{hidden}"),
        format!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n{hidden}"),
    ] {
        let mut raw = service.raw().await.unwrap();
        let answer = raw
            .exchange(format!("{head}{body}").as_bytes())
            .await
            .unwrap_or_else(|e| panic!("{body:?}: {e:#}"));
        assert!((400..500).contains(&answer.status), "{body:?}: {}", answer.status);
    }
    assert_serves(&client).await;
}

#[tokio::test]
async fn excessive_headers_are_refused() {
    let (service, client) = user().await;
    let many: String = (0..200).map(|n| format!("X-Header-{n}: v\r\n")).collect();
    let large = format!("X-Large: {}\r\n", "v".repeat(40_000));
    let huge = format!("X-Huge: {}\r\n", "v".repeat(5_000_000));
    let long_name = format!("{}: v\r\n", "X".repeat(70_000));
    for headers in [&many, &large, &huge, &long_name] {
        let answer = exchange(&service, &get(&client, SANDBOXES, headers)).await;
        assert_eq!(answer.status, 431, "{headers:.40}");
    }
    let long_path = format!("{SANDBOXES}?metadata.x={}", "y".repeat(100_000));
    let answer = exchange(&service, &get(&client, &long_path, "")).await;
    assert!([414, 431, 400].contains(&answer.status), "{}", answer.status);
    // Requests within the limits are served.
    let fine: String = (0..80).map(|n| format!("X-Header-{n}: {}\r\n", "v".repeat(250))).collect();
    assert_eq!(exchange(&service, &get(&client, SANDBOXES, &fine)).await.status, 200);
}

#[tokio::test]
async fn incomplete_requests_time_out() {
    let (service, client) = user().await;
    let mut open = Vec::new();
    for half in [
        "".to_owned(),
        "GE".to_owned(),
        "GET /v1/health HTTP/1.1\r\n".to_owned(),
        "GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ".to_owned(),
    ] {
        let mut raw = service.raw().await.unwrap();
        assert!(raw.write(half.as_bytes()).await);
        open.push((half, tokio::spawn(async move { raw.closed(Duration::from_secs(20)).await })));
    }
    // A connection without a TLS handshake.
    let silent = TcpStream::connect(service.address).await.unwrap();
    assert_serves(&client).await;
    for (half, closed) in open {
        // A connection without a request is idle and has a longer timeout.
        let closed = closed.await.unwrap();
        if half.is_empty() {
            continue;
        }
        let received = closed.unwrap_or_else(|e| panic!("{half:?}: {e:#}"));
        let received = String::from_utf8_lossy(&received);
        assert!(received.is_empty() || received.starts_with("HTTP/1.1 4"), "{half:?}: {received}");
    }
    let mut byte = [0];
    let closed = tokio::time::timeout(Duration::from_secs(5), async {
        silent.readable().await.unwrap();
        silent.try_read(&mut byte)
    });
    assert!(closed.await.is_ok(), "a connection without a handshake stays open");
}

/// A client that sends headers byte by byte is disconnected, and other clients are not delayed.
#[tokio::test]
async fn slow_headers_are_cut_off() {
    let (service, client) = user().await;
    let mut raw = service.raw().await.unwrap();
    let begin = Instant::now();
    while raw.write(b"X").await {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(begin.elapsed() < Duration::from_secs(25), "slow headers are not cut off");
        if raw.closed(Duration::from_millis(1)).await.is_ok() {
            break;
        }
    }
    assert_serves(&client).await;
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_affect_others() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let authorization = client.authorization();
    for round in 0..30 {
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{{\"command\":",
            action_path(&id, "execute")
        );
        let mut raw = service.raw().await.unwrap();
        assert!(raw.write(&request.as_bytes()[..request.len() * (round + 1) / 30]).await);
        if round % 2 == 0 {
            let _ = raw.0.shutdown().await;
        }
    }
    assert_eq!(crate::output(&client, &id, "echo well").await, "well\n");
    assert_serves(&client).await;
}

#[tokio::test]
async fn path_traversal_is_refused() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    for path in [
        "/v1/sandboxes/../../etc/passwd".to_owned(),
        "/v1/sandboxes/..%2f..%2fetc%2fpasswd".to_owned(),
        "/v1/sandboxes/%2e%2e/%2e%2e".to_owned(),
        format!("/v1/sandboxes/../sandboxes/{id}"),
        format!("/v1/sandboxes/./{id}"),
        format!("/v1/sandboxes/{id}%00"),
        format!("/v1/sandboxes/{id}%0d%0aX-Injected:%20yes"),
        format!("/v1/sandboxes/{id};x"),
        "/docs/../v1/sandboxes".to_owned(),
        "/docs/..%2f..%2fetc/passwd".to_owned(),
        "/docs/%2e%2e/%2e%2e/etc/passwd".to_owned(),
        "//v1/sandboxes".to_owned(),
        "/v1/sandboxes/sb_%ff%fe".to_owned(),
        "/v1/sandboxes/%".to_owned(),
        "/v1/sandboxes/%zz".to_owned(),
    ] {
        let answer = exchange(&service, &get(&client, &path, "")).await;
        assert!([400, 404].contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        assert!(answer.header("x-injected").is_none(), "{path}");
    }
    // The target may be in absolute form; asterisk and authority forms are refused.
    let full = format!("https://localhost{}", sandbox_path(&id));
    assert_eq!(exchange(&service, &get(&client, &full, "")).await.status, 200);
    for request in [
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let answer = exchange(&service, request.as_bytes()).await;
        assert!((400..500).contains(&answer.status), "{request:?}: {}", answer.status);
    }
}

#[tokio::test]
async fn header_values_cannot_inject_headers() {
    let (service, client) = user().await;
    for headers in [
        "X-Request-Id: a\r\n b: c\r\n",
        "X-Request-Id: a\nX-Injected: yes\r\n",
        "X-Request-Id: a\rX-Injected: yes\r\n",
        "X-Request-Id: \u{1b}[31m\r\n",
        "X-Request-Id: a%0d%0aX-Injected: yes\r\n",
        "Idempotency-Key: a\r\n",
        "Accept: \u{1}\r\n",
        "Expect: 200-maybe\r\n",
        "Range: bytes=0-1\r\n",
        "Upgrade: websocket\r\n",
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: h2c\r\n",
    ] {
        let answer = exchange(&service, &get(&client, SANDBOXES, headers)).await;
        assert!([200, 400, 417].contains(&answer.status), "{headers:?}: {}", answer.status);
        assert!(
            answer.header("x-injected").is_none() || headers.contains("a\nX-"),
            "{headers:?}: {:?}",
            answer.headers
        );
    }
}

/// Plain HTTP on the TLS port gets the redirect; nothing is served.
#[tokio::test]
async fn plain_http_on_the_secure_port_is_not_served() {
    let service = shared_service().await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let answer = e2e::service::read_answer(&mut stream).await.unwrap();
    assert_eq!(answer.status, 301);
    assert!(answer.header("location").unwrap().starts_with("https://localhost:"));
}

/// Connections above the limit wait or are refused, and are served when others close.
#[tokio::test]
async fn connections_above_the_limit_do_no_harm() {
    let service =
        Service::start(&ServiceOptions::default().with("http", "max_connections", "20")).await.unwrap();
    let client = service.account().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..60 {
        if let Ok(stream) = TcpStream::connect(service.address).await {
            held.push(stream);
        }
    }
    drop(held);
    crate::wait_until("connections are accepted again", async || {
        let client = client.with_own_connections();
        let health = tokio::time::timeout(Duration::from_secs(2), client.get("/v1/health")).await;
        health.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status == 200))
    })
    .await;
}

/// Many idle connections do not delay the next client.
#[tokio::test]
async fn idle_connections_do_not_delay_others() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(service.tls("localhost", &["http/1.1"]).await.unwrap());
    }
    let begin = Instant::now();
    assert_serves(&client).await;
    assert!(begin.elapsed() < Duration::from_secs(2));
    drop(held);
}
