//! Slow clients are disconnected in bounded time; clients that wait for the service are not.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::*;

const SHORT: Duration = Duration::from_millis(300);

/// Runs work that the server has to end.
async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = in_time(what, work).await;
    let took = begun.elapsed();
    assert!(took >= SHORT / 2 && took < Duration::from_secs(60), "{what} took {took:?}");
    done
}

#[tokio::test]
async fn a_slow_head_is_answered_408() {
    for kind in [Kind::Http, Kind::Https] {
        let server = Start::new(kind).limits(|it| it.head_timeout = SHORT).go().await;
        let (mut reading, mut writing) = tokio::io::split(server.connect().await);
        let drip = tokio::spawn(async move {
            let head = "GET /hello HTTP/1.1\r\nHost: a\r\n".to_owned() + &"a: b\r\n".repeat(10_000);
            for byte in head.bytes() {
                if writing.write_all(&[byte]).await.is_err() || writing.flush().await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let answer = bounded("the answer", read_response(&mut reading)).await;
        assert_error(&answer, 408);
        drip.abort();
    }
}

#[tokio::test]
async fn a_silent_client_is_disconnected() {
    let server = Start::new(Kind::Http).limits(|it| it.idle_timeout = SHORT).go().await;
    let mut silent = server.tcp().await;
    assert!(bounded("the end", read_to_end(&mut silent)).await.is_empty());
    let mut kept = server.tcp().await;
    send(&mut kept, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(read_response(&mut kept).await.body, "hello");
    assert!(bounded("the end", read_to_end(&mut kept)).await.is_empty());
}

#[tokio::test]
async fn the_idle_time_begins_at_the_end_of_a_request() {
    let server = Start::new(Kind::Http).limits(|it| it.idle_timeout = 2 * SHORT).go().await;
    let mut stream = server.tcp().await;
    send(&mut stream, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").await;
    tokio::time::sleep(4 * SHORT).await;
    server.inside.release.cancel();
    assert_eq!(read_response(&mut stream).await.body, "held");
    tokio::time::sleep(SHORT).await;
    send(&mut stream, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(read_response(&mut stream).await.body, "hello");
    assert!(bounded("the end", read_to_end(&mut stream)).await.is_empty());
}

#[tokio::test]
async fn a_partial_preface_times_out() {
    let server = Start::new(Kind::Http).limits(|it| it.head_timeout = SHORT).go().await;
    let mut stream = server.tcp().await;
    send(&mut stream, "PRI * HT").await;
    assert_error(&bounded("the answer", read_response(&mut stream)).await, 408);
}

#[tokio::test]
async fn a_missing_handshake_times_out() {
    let server = Start::new(Kind::Https).limits(|it| it.handshake_timeout = SHORT).go().await;
    let mut silent = server.tcp().await;
    assert!(bounded("the end", read_to_end(&mut silent)).await.is_empty());
    let mut half = server.tcp().await;
    send(&mut half, [0x16, 3, 1, 2, 0, 1]).await;
    assert!(bounded("the end", read_to_end(&mut half)).await.is_empty());
}

#[tokio::test]
async fn a_missing_or_slow_body_times_out() {
    let limits = |it: &mut listen::Limits| {
        it.body_timeout = SHORT;
        it.body_min_bytes_per_second = 1000;
    };
    let server = Start::new(Kind::Http).limits(limits).go().await;
    for framing in ["Content-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nffff\r\n"] {
        let mut stream = server.tcp().await;
        send(&mut stream, format!("POST /echo HTTP/1.1\r\nHost: a\r\n{framing}")).await;
        let answer = bounded("the answer", read_response(&mut stream)).await;
        assert_error(&answer, 400);
        assert!(answer.body.contains("too slowly"), "{answer:?}");
        assert_eq!(answer.header("connection"), Some("close"));

        // 100 bytes per second are below the minimum rate.
        let (mut reading, mut writing) = server.tcp().await.into_split();
        send(&mut writing, format!("POST /echo HTTP/1.1\r\nHost: a\r\n{framing}")).await;
        let drip = tokio::spawn(async move {
            while writing.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert_error(&bounded("the answer", read_response(&mut reading)).await, 400);
        drip.abort();
    }
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _sending) = client.send_request(request("POST", "/echo"), false).unwrap();
    let response = bounded("the answer", response).await.unwrap();
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn a_slow_body_above_the_minimum_rate_is_accepted() {
    let limits = |it: &mut listen::Limits| {
        it.body_timeout = SHORT;
        it.body_min_bytes_per_second = 1000;
    };
    let server = Start::new(Kind::Http).limits(limits).go().await;
    let mut stream = server.tcp().await;
    send(&mut stream, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n").await;
    let begun = Instant::now();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        send(&mut stream, [b'x'; 1000]).await;
    }
    assert!(begun.elapsed() > 2 * SHORT);
    assert_eq!(read_response(&mut stream).await.body, "20000 bytes");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    for kind in [Kind::Http, Kind::Https] {
        let server = Start::new(kind).limits(|it| it.write_timeout = Duration::from_secs(1)).go().await;
        let mut stream = server.connect().await;
        send(&mut stream, "GET /big?1000 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        // Only the server can end this connection, which it counts.
        let ended = server.stop.clone();
        ended.cancel();
        let stopped = in_time("the server's end", server.task).await.unwrap();
        assert_eq!(stopped.cut_off, 0, "it ended before the grace was over");
        let mut sum = 0;
        let mut scrap = vec![0; 1 << 20];
        while let Ok(count @ 1..) = in_time("what was on its way", stream.read(&mut scrap)).await {
            sum += count;
        }
        assert!(sum < 50 << 20, "{sum} bytes were on their way");
    }
}

#[tokio::test]
async fn a_slow_reader_gets_the_whole_response() {
    let server = Start::new(Kind::Https).limits(|it| it.write_timeout = Duration::from_secs(1)).go().await;
    let mut stream = server.connect().await;
    send(&mut stream, "GET /big?4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let mut sum = 0;
    let mut scrap = vec![0; 64 * 1024];
    let begun = Instant::now();
    loop {
        let count = in_time("a piece", stream.read(&mut scrap)).await.unwrap();
        if count == 0 {
            break;
        }
        sum += count;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(sum > 4 << 20 && begun.elapsed() > Duration::from_secs(1), "{sum} in {:?}", begun.elapsed());
}

#[tokio::test]
async fn an_idle_http_2_connection_gets_a_goaway() {
    let server = Start::new(Kind::Https).limits(|it| it.idle_timeout = SHORT).go().await;
    let (mut client, task) = http2(&server, &h2::client::Builder::new()).await;
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
    let ended = bounded("the end", task).await.unwrap();
    assert!(ended.is_ok() || ended.unwrap_err().is_go_away());
}

#[tokio::test]
async fn an_event_stream_without_events_stays_open() {
    let limits = |it: &mut listen::Limits| {
        (it.idle_timeout, it.head_timeout, it.write_timeout, it.body_timeout) = (SHORT, SHORT, SHORT, SHORT);
    };
    let server = Start::new(Kind::Https).limits(limits).go().await;
    let mut old = server.connect().await;
    send(&mut old, "GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _) = client.send_request(request("GET", "/stream"), true).unwrap();
    let new = in_time("an answer", response).await.unwrap().into_body();
    tokio::time::sleep(5 * SHORT).await;
    server.inside.streams_end.cancel();
    assert!(String::from_utf8(read_to_end(&mut old).await).unwrap().contains("data: last"));
    assert!(String::from_utf8(collect(new).await.unwrap()).unwrap().contains("data: last"));
}

#[tokio::test]
async fn a_client_without_window_is_disconnected() {
    let server = Start::new(Kind::Http).limits(|it| it.write_timeout = SHORT).go().await;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (mut client, task) = http2(&server, &builder).await;
    let mut bodies = Vec::new();
    for _ in 0..10 {
        let (response, _) = client.send_request(request("GET", "/big?1"), true).unwrap();
        bodies.push(in_time("a head", response).await.unwrap().into_body());
    }
    let _ = bounded("the end", task).await.unwrap();
    for body in bodies {
        assert!(collect(body).await.is_err());
    }
}

/// A connection whose windows of all streams follow the sent sizes.
async fn with_windows(
    server: &Running,
) -> (h2::client::SendRequest<axum::body::Bytes>, tokio::sync::mpsc::UnboundedSender<u32>) {
    let (client, mut connection) =
        in_time("HTTP/2", h2::client::handshake(server.tcp().await)).await.unwrap();
    let (windows, mut wanted) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = &mut connection => return,
                Some(window) = wanted.recv() => connection.set_initial_window_size(window).unwrap(),
            }
        }
    });
    (in_time("HTTP/2", client.ready()).await.unwrap(), windows)
}

#[tokio::test]
async fn unread_responses_beside_an_open_event_stream_are_released() {
    for window in [0, 1, 16, 1000, 20_000] {
        let server = Start::new(Kind::Http).limits(|it| it.write_timeout = SHORT).go().await;
        let (mut client, windows) = with_windows(&server).await;
        let (response, _) = client.send_request(request("GET", "/stream"), true).unwrap();
        let mut events = in_time("a head", response).await.unwrap().into_body();
        let first = in_time("an event", events.data()).await.unwrap().unwrap();
        assert_eq!(first, "data: first\n\n");
        events.flow_control().release_capacity(first.len()).unwrap();
        windows.send(window).unwrap();
        // The settings are on their way before the requests.
        let _ = in_time("an answer", client.send_request(request("GET", "/peer"), true).unwrap().0).await;
        let mut unread = Vec::new();
        for path in ["/held-body", "/late-body"].repeat(5) {
            client = in_time("a free stream", client.ready()).await.unwrap();
            let (response, _) = client.send_request(request("GET", path), true).unwrap();
            unread.push(in_time("a head", response).await.unwrap().into_body());
        }
        // Of a response that is one chunk, hyper holds that chunk.
        client = in_time("a free stream", client.ready()).await.unwrap();
        let (small, _) = client.send_request(request("GET", "/hello"), true).unwrap();
        let small = in_time("a head", small).await.unwrap().into_body();
        let count = |it: &std::sync::atomic::AtomicUsize| it.load(std::sync::atomic::Ordering::SeqCst);
        // The event stream is one of the held bodies.
        bounded("the release", server.inside.until("all bodies are released", |it| count(&it.dropped) == 10))
            .await;
        assert_eq!(count(&server.inside.held), 11);
        for body in unread {
            assert!(collect(body).await.is_err(), "cut off, not ended");
        }
        if window == 0 {
            assert!(collect(small).await.is_err(), "cut off, not ended");
        }
        windows.send(1000).unwrap();
        server.inside.streams_end.cancel();
        assert_eq!(collect(events).await.unwrap(), b"data: last\n\n", "{window}");
    }
}

#[tokio::test]
async fn a_slow_reader_of_one_stream_gets_the_whole_response() {
    let server = Start::new(Kind::Http).limits(|it| it.write_timeout = 2 * SHORT).go().await;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(100_000);
    let (mut client, _task) = http2(&server, &builder).await;
    let (response, _) = client.send_request(request("GET", "/held-body"), true).unwrap();
    let mut body = in_time("a head", response).await.unwrap().into_body();
    let (mut sum, mut unreleased, begun) = (0, 0, Instant::now());
    while let Some(piece) = in_time("a piece", body.data()).await {
        let piece = piece.unwrap();
        (sum, unreleased) = (sum + piece.len(), unreleased + piece.len());
        if unreleased >= 40_000 {
            tokio::time::sleep(SHORT / 3).await;
            body.flow_control().release_capacity(std::mem::take(&mut unreleased)).unwrap();
        }
    }
    assert_eq!(sum, 1 << 20);
    assert!(begun.elapsed() > 4 * SHORT, "slower than the timeout as a whole: {:?}", begun.elapsed());
}
