//! Requests that are answered before their bodies were read: the next request on the connection is answered, or the response says
//! that the connection ends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use listen::Stopped;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::*;

const HELLO: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
const SHORT: Duration = Duration::from_millis(300);
/// Much longer than any of the waits, and shorter than the limits that would end a connection otherwise.
const PROMPT: Duration = Duration::from_secs(8);
/// The most bytes that are drained.
const DRAINED: usize = 64 * 1024;

fn post(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n")
}

fn with_length(path: &str, length: usize) -> String {
    post(path, &format!("Content-Length: {length}"))
}

/// Asserts that the connection answers another request.
async fn assert_open(stream: &mut impl Stream) {
    send(stream, HELLO).await;
    assert_eq!(read_response(stream).await.body, "hello");
}

/// Asserts that the server ends the connection in an orderly way: a client that is still sending is not reset.
async fn assert_ends(stream: &mut impl Stream) {
    let end = in_time("the end", stream.read(&mut [0])).await;
    assert_eq!(end.expect("no reset"), 0);
}

#[tokio::test]
async fn a_body_in_a_packet_of_its_own_is_followed_by_the_next_request() {
    for kind in [Kind::Http, Kind::Https] {
        let server = start(kind).await;
        for attempt in 0..40 {
            let mut stream = server.connect().await;
            send(&mut stream, with_length("/refuse", 5)).await;
            match attempt % 4 {
                0 => {}
                1 => tokio::task::yield_now().await,
                2 => tokio::time::sleep(Duration::from_millis(2)).await,
                // The response comes before the body.
                _ => assert_eq!(read_response(&mut stream).await.status, 413),
            }
            send(&mut stream, "hello").await;
            if attempt % 4 != 3 {
                let answer = read_response(&mut stream).await;
                assert_eq!((answer.status, answer.header("connection")), (413, None), "{attempt}");
            }
            assert_open(&mut stream).await;
        }
    }
}

#[tokio::test]
async fn a_chunked_body_in_a_packet_of_its_own_is_followed_by_the_next_request() {
    let server = Start::new(Kind::Https).limits(|it| it.chunks_wait = TIMEOUT).go().await;
    for pieces in [&["5\r\nhello\r\n0\r\n\r\n"][..], &["5\r\nhel", "lo\r\n0\r\n", "a: b\r\n\r\n"]] {
        let mut stream = server.connect().await;
        for _ in 0..10 {
            send(&mut stream, post("/refuse", "Transfer-Encoding: chunked")).await;
            for piece in pieces {
                tokio::time::sleep(Duration::from_millis(2)).await;
                send(&mut stream, piece).await;
            }
            let answer = read_response(&mut stream).await;
            assert_eq!((answer.status, answer.header("connection")), (413, None));
        }
        assert_open(&mut stream).await;
    }
}

#[tokio::test]
async fn only_a_short_announced_body_is_drained() {
    for kind in [Kind::Http, Kind::Https] {
        let server = start(kind).await;
        let mut stream = server.connect().await;
        send(&mut stream, with_length("/refuse", DRAINED)).await;
        assert_eq!(read_response(&mut stream).await.header("connection"), None);
        send(&mut stream, vec![b'x'; DRAINED]).await;
        assert_open(&mut stream).await;

        send(&mut stream, with_length("/refuse", DRAINED + 1)).await;
        let answer = read_response(&mut stream).await;
        assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
        // The server lingers.
        send(&mut stream, vec![b'x'; DRAINED + 1]).await;
        assert_ends(&mut stream).await;
    }
}

#[tokio::test]
async fn chunks_that_are_many_or_late_end_the_connection_with_notice() {
    let server = Start::new(Kind::Http).limits(|it| it.chunks_wait = TIMEOUT).go().await;
    let mut stream = server.connect().await;
    let head = post("/refuse", "Transfer-Encoding: chunked");
    send(&mut stream, [head.as_bytes(), b"10001\r\n", &[b'x'; DRAINED + 1], b"\r\n"].concat()).await;
    assert_eq!(read_response(&mut stream).await.header("connection"), Some("close"));
    send(&mut stream, [&b"10001\r\n"[..], &[b'x'; DRAINED + 1], b"\r\n0\r\n\r\n"].concat()).await;
    assert_ends(&mut stream).await;

    let mut stream = server.connect().await;
    send(&mut stream, format!("{head}not chunks\r\n")).await;
    assert_eq!(read_response(&mut stream).await.header("connection"), Some("close"));

    let server = Start::new(Kind::Http).limits(|it| it.chunks_wait = SHORT).go().await;
    let mut stream = server.connect().await;
    let begun = Instant::now();
    send(&mut stream, format!("{head}5\r\nhello\r\n")).await;
    assert_eq!(read_response(&mut stream).await.header("connection"), Some("close"));
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    send(&mut stream, "0\r\n\r\n").await;
    assert_ends(&mut stream).await;
}

#[tokio::test]
async fn a_refused_expectation_is_not_asked_for_its_body() {
    let server = Start::new(Kind::Https).limits(|it| it.chunks_wait = TIMEOUT).go().await;
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut stream = server.connect().await;
        send(&mut stream, post("/refuse", &format!("{framing}\r\nExpect: 100-Continue"))).await;
        // Not 100.
        let answer = read_response(&mut stream).await;
        assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
        assert_ends(&mut stream).await;
    }
}

#[tokio::test]
async fn pipelined_requests_follow_unread_bodies() {
    let server = Start::new(Kind::Http).limits(|it| it.chunks_wait = TIMEOUT).go().await;
    let all = [
        with_length("/refuse", 5),
        "GET /".to_owned(),
        post("/refuse", "Transfer-Encoding: chunked"),
        "5\r\nGET /\r\n0\r\n\r\n".to_owned(),
        with_length("/echo", 5),
        "hello".to_owned(),
        "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
    ]
    .concat();
    for step in [1, 7, 100, all.len()] {
        let mut stream = server.tcp().await;
        stream.set_nodelay(true).unwrap();
        for piece in all.as_bytes().chunks(step) {
            send(&mut stream, piece).await;
        }
        let answers = answers(&read_to_end(&mut stream).await, Bodies::Inline);
        let seen: Vec<_> = answers.iter().map(|it| (it.status, it.body.as_str())).collect();
        assert_eq!(seen, [(413, ""), (413, ""), (200, "5 bytes"), (200, "hello")], "in pieces of {step}");
    }
}

#[tokio::test]
async fn a_slow_body_is_drained_and_the_idle_time_begins_at_its_end() {
    let server = Start::new(Kind::Http).limits(|it| it.idle_timeout = 5 * SHORT).go().await;
    let mut stream = server.connect().await;
    send(&mut stream, with_length("/refuse", 10)).await;
    assert_eq!(read_response(&mut stream).await.header("connection"), None);
    // Longer than the idle time; the rest of it is long enough for a busy machine.
    for _ in 0..10 {
        tokio::time::sleep(SHORT / 2 + SHORT / 10).await;
        send(&mut stream, "x").await;
    }
    tokio::time::sleep(SHORT / 2).await;
    assert_open(&mut stream).await;
}

#[tokio::test]
async fn a_client_that_does_not_send_its_body_is_disconnected() {
    let server = Start::new(Kind::Https).limits(|it| it.body_timeout = SHORT).go().await;
    for sent in ["", "hel"] {
        let mut stream = server.connect().await;
        let begun = Instant::now();
        send(&mut stream, with_length("/refuse", 5)).await;
        assert_eq!(read_response(&mut stream).await.status, 413);
        send(&mut stream, sent).await;
        assert_ends(&mut stream).await;
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    }
}

/// A client that drips its body within the time cannot hold the connection for longer.
#[tokio::test]
async fn the_time_to_drain_a_body_is_not_extended_by_its_bytes() {
    let server = Start::new(Kind::Http).limits(|it| it.body_timeout = 2 * SHORT).go().await;
    let (mut reading, mut writing) = server.tcp().await.into_split();
    send(&mut writing, with_length("/refuse", DRAINED)).await;
    assert_eq!(read_response(&mut reading).await.status, 413);
    let begun = Instant::now();
    let drip = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(read_to_end(&mut reading).await.is_empty());
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    drip.abort();
}

#[tokio::test]
async fn the_last_request_of_a_client_is_not_waited_for() {
    let server = start(Kind::Http).await;
    let begun = Instant::now();
    for head in [
        post("/refuse", "Content-Length: 5\r\nConnection: close"),
        post("/refuse", "Transfer-Encoding: chunked\r\nConnection: close"),
        "POST /refuse HTTP/1.0\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n".to_owned(),
    ] {
        let mut stream = server.tcp().await;
        send(&mut stream, head).await;
        assert_eq!(read_response(&mut stream).await.status, 413);
        assert_ends(&mut stream).await;
    }
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
}

/// hyper takes a response for sent when it is buffered; with an `Upgrade` header it also ends in another way.
#[tokio::test]
async fn a_long_response_to_an_unread_upload_arrives_whole() {
    for kind in [Kind::Http, Kind::Https] {
        let server = start(kind).await;
        for upgrade in ["", "\r\nConnection: Upgrade\r\nUpgrade: h2c"] {
            let mut stream = server.connect().await;
            let head = post("/refuse-at-length", &format!("Content-Length: {}{upgrade}", 100 << 20));
            send(&mut stream, head).await;
            send(&mut stream, [b'x'; 1000]).await;
            // Until the buffers are full.
            tokio::time::sleep(SHORT).await;
            let answer = read_response(&mut stream).await;
            assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
            assert_eq!(answer.body.len(), LONG_RESPONSE_BYTES);
        }
    }
}

#[tokio::test]
async fn a_handler_may_read_the_body_while_it_responds() {
    let server = start(Kind::Http).await;
    let mut stream = server.connect().await;
    // "?0": the handler drops the body when its response has begun.
    for (path, count) in [("/early", 5), ("/early?0", 0)] {
        send(&mut stream, with_length(path, 5)).await;
        let head = read_until(&mut stream, "begun ").await;
        assert!(!head.contains("connection: close"), "{head}");
        send(&mut stream, "hello").await;
        let rest = read_until(&mut stream, "\r\n0\r\n\r\n").await;
        assert!(rest.contains(&format!("{count} bytes read")), "{rest}");
        assert_open(&mut stream).await;
    }
    for framing in ["Transfer-Encoding: chunked".to_owned(), format!("Content-Length: {}", DRAINED + 1)] {
        let mut stream = server.connect().await;
        send(&mut stream, post("/early?0", &framing)).await;
        let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
        assert!(answer.contains("connection: close") && answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_redirect_is_followed_by_the_next_request() {
    for kind in [Kind::Redirect { port: 443 }, Kind::Https] {
        let server = start(kind).await;
        for _ in 0..10 {
            let mut stream = server.tcp().await;
            for _ in 0..2 {
                send(&mut stream, with_length("/echo", 5)).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                send(&mut stream, "hello").await;
                let answer = read_response(&mut stream).await;
                assert_eq!((answer.status, answer.header("connection")), (301, None));
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_does_not_delay_the_stop() {
    let server = start(Kind::Https).await;
    let mut old = server.connect().await;
    send(&mut old, with_length("/refuse", 5)).await;
    assert_eq!(read_response(&mut old).await.status, 413);
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _sending) = client.send_request(request("POST", "/refuse"), false).unwrap();
    assert_eq!(in_time("an answer", response).await.unwrap().status(), 413);
    let begun = Instant::now();
    assert_eq!(server.ended().await, Stopped { cut_off: 0 });
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// RFC 9113 section 8.1.
#[tokio::test]
async fn a_stream_whose_body_does_not_come_is_reset_without_an_error() {
    let server = Start::new(Kind::Https).limits(|it| it.linger_timeout = SHORT).go().await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (held, _) = client.send_request(request("GET", "/hold"), true).unwrap();
    server.inside.until("a request inside", |it| it.held.load(Ordering::SeqCst) == 1).await;
    let begun = Instant::now();
    let (response, mut sending) = client.send_request(request("POST", "/refuse"), false).unwrap();
    assert_eq!(in_time("an answer", response).await.unwrap().status(), 413);
    let reset = in_time("the reset", std::future::poll_fn(|cx| sending.poll_reset(cx))).await;
    assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
    assert!(begun.elapsed() >= SHORT / 2 && begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    // The other stream, and the next one.
    server.inside.release.cancel();
    let body = in_time("an answer", held).await.unwrap().into_body();
    assert_eq!(collect(body).await.unwrap(), b"held");
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
}

#[tokio::test]
async fn a_refused_expectation_over_http_2_is_reset_without_an_error() {
    let server = Start::new(Kind::Https).limits(|it| it.linger_timeout = TIMEOUT).go().await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let begun = Instant::now();
    let mut expecting = request("POST", "/refuse");
    expecting.headers_mut().insert("expect", "100-continue".parse().unwrap());
    let (response, mut sending) = client.send_request(expecting, false).unwrap();
    assert_eq!(in_time("an answer", response).await.unwrap().status(), 413);
    let reset = in_time("the reset", std::future::poll_fn(|cx| sending.poll_reset(cx))).await;
    assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
}
