//! Plain HTTP is redirected to HTTPS, and only to the intended host.

use crate::kit::*;

fn assert_moved(answer: &Answer, location: &str) {
    assert_error(answer, 301);
    assert_eq!(answer.header("location"), Some(location));
}

#[tokio::test]
async fn path_and_query_are_preserved() {
    let server = start(Kind::Redirect { port: 8443 }).await;
    let rows = [
        (
            "GET /v1/sandboxes?state=running&metadata.a=b%20c HTTP/1.1\r\nHost: a.example",
            "https://a.example:8443/v1/sandboxes?state=running&metadata.a=b%20c",
        ),
        (
            "POST /v1/sandboxes HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 0",
            "https://a.example:8443/v1/sandboxes",
        ),
        ("DELETE / HTTP/1.1\r\nHost: [::1]:8080", "https://[::1]:8443/"),
        ("GET http://other.example/x?y HTTP/1.1\r\nHost: a.example", "https://a.example:8443/x?y"),
        ("OPTIONS * HTTP/1.1\r\nHost: a.example", "https://a.example:8443/"),
        ("GET /x HTTP/1.0", "https://configured.example:8443/x"),
        ("GET /x HTTP/1.1", "https://configured.example:8443/x"),
        ("GET /x HTTP/1.1\r\nHost:", "https://configured.example:8443/x"),
        ("GET /x HTTP/1.1\r\nHost: a/b@c", "https://configured.example:8443/x"),
        ("GET /x HTTP/1.1\r\nHost: a%0d%0aSet-Cookie:b", "https://configured.example:8443/x"),
        ("GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: a", "https://a:8443/%0d%0aSet-Cookie:%20a=b"),
        ("GET /caf\u{e9} HTTP/1.1\r\nHost: a", "https://a:8443/caf%C3%A9"),
    ];
    let mut stream = server.tcp().await;
    for (request, location) in rows {
        if request.contains("HTTP/1.0") {
            assert_moved(&exchange_http1(&server, format!("{request}\r\n\r\n")).await[0], location);
            continue;
        }
        send(&mut stream, format!("{request}\r\n\r\n")).await;
        assert_moved(&read_response(&mut stream).await, location);
    }
}

#[tokio::test]
async fn the_default_port_is_left_out() {
    let server = start(Kind::Redirect { port: 443 }).await;
    let answers = exchange_http1(&server, "GET /x HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n").await;
    assert_moved(&answers[0], "https://a/x");
}

#[tokio::test]
async fn no_header_can_be_injected() {
    let server = start(Kind::Redirect { port: 443 }).await;
    for (request, status) in [
        ("GET /x\rSet-Cookie: a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nHost: a\rSet-Cookie: b\r\nConnection: close\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nHost: a\r\nSet-Cookie: b\r\nConnection: close\r\n\r\n", 301),
    ] {
        let answers = exchange_http1(&server, request).await;
        assert_eq!(answers.len(), 1);
        assert_error(&answers[0], status);
        assert_eq!(answers[0].header("set-cookie"), None);
    }
}

#[tokio::test]
async fn plain_http_on_the_https_port_is_redirected() {
    let server = start(Kind::Https).await;
    let port = server.address.port();
    let mut stream = server.tcp().await;
    send(
        &mut stream,
        format!("GET /v1/health?x HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"),
    )
    .await;
    let moved = answers(&read_to_end(&mut stream).await, Bodies::Inline);
    assert_moved(&moved[0], &format!("https://localhost:{port}/v1/health?x"));
    let mut stream = server.tcp().await;
    send(&mut stream, "GET /\r\n\r\n").await;
    assert_error(&answers(&read_to_end(&mut stream).await, Bodies::Inline)[0], 400);
}

#[tokio::test]
async fn a_large_body_to_the_plain_port_is_redirected() {
    let server = start(Kind::Redirect { port: 443 }).await;
    let mut stream = server.tcp().await;
    send(&mut stream, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n").await;
    send(&mut stream, vec![0; 9_000_000]).await;
    assert_moved(&read_response(&mut stream).await, "https://a/x");
}
