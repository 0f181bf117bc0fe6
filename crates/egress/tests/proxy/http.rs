//! Plain HTTP/1: each request is decided.

use std::net::SocketAddrV4;
use std::time::Duration;

use egress::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::fixture::{Fixture, LONG, read_to_end, reset, server, take};

/// Reads up to the blank line after a head.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

async fn expect_head(stream: &mut TcpStream) -> String {
    timeout(LONG, head(stream)).await.expect("no head comes").expect("it broke off amid a head")
}

/// A server with a fixed response, and the received requests.
async fn answering(answer: &'static [u8]) -> (SocketAddrV4, mpsc::UnboundedReceiver<String>) {
    let (out, seen) = mpsc::unbounded_channel();
    let address = server(move |mut stream| {
        let out = out.clone();
        async move {
            while let Some(head) = head(&mut stream).await {
                let _ = out.send(head);
                if stream.write_all(answer).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (address, seen)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nX-CaSe: Kept\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn requests_for_an_allowed_name_pass_unchanged_on_one_connection() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let (address, mut seen) = answering(OK).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    for request in [
        "GET /a?b=c HTTP/1.1\r\nHost: good.test\r\nX-MiXed-CASE: yes\r\n\r\n",
        "GET /second HTTP/1.1\r\nhost: GOOD.test:8080\r\n\r\n",
        "GET http://good.test/whole HTTP/1.1\r\nHost: good.test\r\n\r\n",
    ] {
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = expect_head(&mut client).await;
        assert_eq!(answer.as_bytes(), &OK[..OK.len() - 2]);
        assert_eq!(take(&mut client, 2).await, b"ok");
        assert_eq!(seen.recv().await.unwrap(), request);
    }
    // Leading blank lines, lines that end short, two requests in one go.
    client
        .write_all(b"\r\n\r\nGET /1 HTTP/1.1\nHost: good.test\n\nGET /2 HTTP/1.1\r\nHost: good.test\r\n\r\n")
        .await
        .unwrap();
    for path in ["/1", "/2"] {
        assert!(seen.recv().await.unwrap().starts_with(&format!("GET {path} HTTP/1.1\r\n")));
        expect_head(&mut client).await;
        take(&mut client, 2).await;
    }
    assert_eq!(fixture.guest.connections(), 1);
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"");
    fixture.no_refusal();
}

#[tokio::test]
async fn requests_without_a_unique_host_are_reset() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let (address, mut seen) = answering(OK).await;
    fixture.name("good.test", &[*address.ip()]);
    fixture.name("evil.test", &[*address.ip()]);
    let evil = Some("evil.test".to_owned());
    for (request, reason, name) in [
        ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", Reason::NotAllowed, evil.clone()),
        ("GET / HTTP/1.1\r\nX: y\r\n\r\n", Reason::NoName, None),
        ("GET / HTTP/1.0\r\n\r\n", Reason::NoName, None),
        ("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", Reason::NoName, None),
        ("GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", Reason::NoName, None),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Reason::NoName, None),
        ("GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/1.1\r\nHost: evil.test\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/1.1\r\nHost: good.test, evil.test\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/1.1\r\nHost: evil.test@good.test\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/1.1\r\nHost: good.test/evil\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/1.1\r\nHost: good.test\r\n : evil.test\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/1.1\r\nHost : good.test\r\n\r\n", Reason::Malformed, None),
        ("GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
        ("GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", Reason::Malformed, None),
        ("GET http://good.test/ HTTP/1.1\r\n\r\n", Reason::NoName, None),
        ("GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
        ("CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
        ("GET /\r\n\r\n", Reason::Malformed, None),
        ("GET / HTTP/3.7\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
        ("GET / http/1.1\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
        (
            "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            Reason::Malformed,
            None,
        ),
    ] {
        // Each in a separate fixture, because the same refusal is reported only once.
        let mut other = Fixture::new(&["good.test"]).await;
        other.name("good.test", &[*address.ip()]);
        let mut client = other.dial(address).await;
        client.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(reset(&mut client).await, b"", "{request}");
        assert_eq!(other.refusal().await, (reason, name), "{request}");
        assert!(seen.try_recv().is_err(), "{request}");
    }
    fixture.no_refusal();
}

#[tokio::test]
async fn a_later_request_for_another_name_ends_the_connection() {
    let mut fixture = Fixture::new(&["good.test", "also.test"]).await;
    let (address, mut seen) = answering(OK).await;
    for name in ["good.test", "also.test", "evil.test"] {
        fixture.name(name, &[*address.ip()]);
    }
    for name in ["evil.test", "also.test"] {
        let mut client = fixture.dial(address).await;
        client.write_all(b"GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
        expect_head(&mut client).await;
        take(&mut client, 2).await;
        assert!(seen.recv().await.unwrap().contains("/1"));
        let second = format!("GET /2 HTTP/1.1\r\nHost: {name}\r\n\r\n");
        client.write_all(second.as_bytes()).await.unwrap();
        assert_eq!(reset(&mut client).await, b"");
        assert_eq!(fixture.refusal().await, (Reason::NameChanged, Some(name.to_owned())));
        assert!(seen.try_recv().is_err(), "it was not led on");
    }
}

#[tokio::test]
async fn a_request_inside_a_body_is_not_a_request() {
    // Two framings in one head: what the server gets has one, and holds the smuggled request as a body.
    let fixture = Fixture::new(&["good.test"]).await;
    let (address, mut seen) = answering(OK).await;
    fixture.name("good.test", &[*address.ip()]);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let mut client = fixture.dial(address).await;
    let request = format!(
        "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let first = seen.recv().await.unwrap().to_ascii_lowercase();
    assert!(first.contains("transfer-encoding") && !first.contains("content-length"), "{first}");
    // Such a client gets one response, and the connection is closed.
    let answer = String::from_utf8(read_to_end(&mut client).await).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1, "{answer}");
    while let Ok(head) = seen.try_recv() {
        assert!(!head.contains("smuggled"), "{head}");
    }
}

#[tokio::test]
async fn bodies_are_streamed_with_back_pressure() {
    let fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        let head = head(&mut stream).await.unwrap();
        assert!(head.contains("Content-Length: 5000000\r\n"), "{head}");
        // Slower than the client; nothing may pile up on the way.
        sleep(Duration::from_millis(300)).await;
        let mut body = vec![0; 5_000_000];
        stream.read_exact(&mut body).await.unwrap();
        assert!(body.iter().all(|byte| *byte == 9));
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n")
            .await
            .unwrap();
        for _ in 0..20 {
            stream.write_all(b"5\r\nhello\r\n").await.unwrap();
            sleep(Duration::from_millis(5)).await;
        }
        stream.write_all(b"0\r\nX-End: yes\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client
        .write_all(b"PUT /x HTTP/1.1\r\nHost: good.test\r\nTE: trailers\r\nConnection: close, TE\r\nContent-Length: 5000000\r\n\r\n")
        .await
        .unwrap();
    client.write_all(&vec![9; 5_000_000]).await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut client).await).unwrap();
    assert_eq!(answer.matches("hello").count(), 20);
    assert!(
        answer.ends_with("0\r\nx-end: yes\r\n\r\n") || answer.ends_with("0\r\nX-End: yes\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn expect_100_continue_is_answered_by_the_server() {
    let fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        let head = head(&mut stream).await.unwrap();
        assert!(head.contains("Expect: 100-continue\r\n"), "{head}");
        if head.starts_with("PUT /no") {
            stream.write_all(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            sleep(Duration::from_secs(5)).await;
            return;
        }
        sleep(Duration::from_millis(200)).await;
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 4];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").await.unwrap();
        stream.write_all(&body).await.unwrap();
        let _ = stream.read(&mut body).await;
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    let put = b"PUT /yes HTTP/1.1\r\nHost: good.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    client.write_all(put).await.unwrap();
    assert_eq!(expect_head(&mut client).await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"body").await.unwrap();
    assert!(expect_head(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(take(&mut client, 4).await, b"body");
    let mut client = fixture.dial(address).await;
    let put = b"PUT /no HTTP/1.1\r\nHost: good.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    client.write_all(put).await.unwrap();
    assert!(expect_head(&mut client).await.starts_with("HTTP/1.1 417 No\r\n"));
}

#[tokio::test]
async fn http_1_0_head_requests_and_half_closes_work() {
    let fixture = Fixture::new(&["good.test"]).await;
    // Ends its answer by ending the connection.
    let address = server(|mut stream| async move {
        let head = head(&mut stream).await.unwrap();
        let answer = if head.starts_with("HEAD") {
            "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
        } else {
            "HTTP/1.0 200 OK\r\n\r\nall there is"
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client.write_all(b"GET / HTTP/1.0\r\nHost: good.test\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut client).await).unwrap();
    assert!(
        answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\nall there is"),
        "{answer}"
    );
    let mut client = fixture.dial(address).await;
    client.write_all(b"HEAD / HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut client).await).unwrap().to_ascii_lowercase();
    assert!(answer.contains("content-length: 1234\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    // A client that ends its side right after its request is still answered.
    let mut client = fixture.dial(address).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut client).await).unwrap();
    assert!(answer.contains("all there is"), "{answer}");
}

#[tokio::test]
async fn a_truncated_response_is_truncated_for_the_client() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await.unwrap();
        sleep(Duration::from_millis(50)).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
    let came = reset(&mut client).await;
    assert!(came.ends_with(b"half"));
    fixture.no_refusal();
}

#[tokio::test]
async fn unusual_valid_responses_pass() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let many: String = (0..200).map(|number| format!("X-{number}: {number}\r\n")).collect();
    for (headers, expected) in [
        (many.clone(), many),
        ("X-Folded: one\r\n  two\r\n".to_owned(), "X-Folded: one two\r\n".to_owned()),
        ("X-Spaced : one\r\n".to_owned(), "X-Spaced: one\r\n".to_owned()),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 2\r\n\r\nok");
        let address = server(move |mut stream| {
            let answer = answer.clone();
            async move {
                head(&mut stream).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                let _ = stream.read_u8().await;
            }
        })
        .await;
        fixture.name("good.test", &[*address.ip()]);
        let mut client = fixture.dial(address).await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
        let came = expect_head(&mut client).await;
        assert!(came.contains(&expected), "{came}");
        assert_eq!(take(&mut client, 2).await, b"ok");
    }
    fixture.no_refusal();
}

#[tokio::test]
async fn an_invalid_response_is_reported() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let (address, _seen) = answering(b"HTTP/1.1 200 OK\r\nno header at all\r\n\r\n").await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
    assert_eq!(reset(&mut client).await, b"");
    assert_eq!(fixture.refusal().await, (Reason::BadAnswer, Some("good.test".into())));
}

#[tokio::test]
async fn upgraded_protocols_are_forwarded() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        let head = head(&mut stream).await.unwrap();
        if !head.to_ascii_lowercase().contains("upgrade: websocket") {
            assert!(!head.to_ascii_lowercase().contains("h2c"), "{head}");
            stream.write_all(OK).await.unwrap();
            let _ = stream.read_u8().await;
            return;
        }
        // The first bytes of the other protocol follow the head directly.
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")
            .await
            .unwrap();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..read]).await.unwrap();
        }
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client
        .write_all(b"GET /chat HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
        .await
        .unwrap();
    let answer = expect_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("websocket"), "{answer}");
    assert_eq!(take(&mut client, 4).await, b"\x81\x02hi");
    for _ in 0..3 {
        client.write_all(b"\x82\x05frame").await.unwrap();
        assert_eq!(take(&mut client, 7).await, b"\x82\x05frame");
    }
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"");

    // Upgrades to protocols that name hosts are not forwarded.
    let mut client = fixture.dial(address).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
        .await
        .unwrap();
    assert!(expect_head(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"));
    fixture.no_refusal();
}

#[tokio::test]
async fn a_new_policy_cuts_http_connections() {
    let fixture = Fixture::new(&["good.test"]).await;
    let (address, _seen) = answering(OK).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n").await.unwrap();
    expect_head(&mut client).await;
    take(&mut client, 2).await;
    fixture.parts.registry.admit(&fixture.guest.id, fixture.guest.address, &crate::fixture::policy(&[]));
    timeout(Duration::from_millis(100), reset(&mut client)).await.unwrap();
}

#[tokio::test]
async fn endless_heads_are_reset() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let (address, _seen) = answering(OK).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: good.test\r\n").await.unwrap();
    let filler = format!("X: {}\r\n", "y".repeat(1000));
    while client.write_all(filler.as_bytes()).await.is_ok() {}
    assert_eq!(fixture.refusal().await.0, Reason::Malformed);
    let mut client = fixture.dial(SocketAddrV4::new(*address.ip(), address.port())).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: go").await.unwrap();
    let came = timeout(Duration::from_secs(15), reset(&mut client)).await.unwrap();
    assert_eq!(came, b"");
}
