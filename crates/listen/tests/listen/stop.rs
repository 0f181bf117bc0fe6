//! The graceful stop: no new connections, idle ones are closed at once, active requests may finish, and the rest is
//! cancelled after the grace period.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use listen::Stopped;
use tokio::net::TcpStream;

use crate::kit::*;

const CLEAN: Stopped = Stopped { cut_off: 0 };

#[tokio::test]
async fn idle_connections_are_closed_at_once() {
    let server = start(Kind::Https).await;
    let mut silent = server.tls(&["http/1.1"]).await;
    let mut unspoken = server.tls(&[]).await;
    let mut kept = server.tls(&["http/1.1"]).await;
    send(&mut kept, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(read_response(&mut kept).await.body, "hello");
    let mut half = server.tls(&["http/1.1"]).await;
    send(&mut half, "GET /hello HT").await;
    let bare = server.tcp().await;
    let (mut client, task) = http2(&server, &h2::client::Builder::new()).await;
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
    let begun = Instant::now();
    let address = server.address;
    assert_eq!(server.ended().await, CLEAN);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for stream in [&mut silent, &mut unspoken, &mut kept, &mut half] {
        read_to_end(stream).await;
    }
    let _ = in_time("the HTTP/2 end", task).await.unwrap();
    drop(bare);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

/// An idle client that does not read the GOAWAY.
#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_the_stop() {
    let server = start(Kind::Https).await;
    let mut deaf = server.tls(&["h2"]).await;
    send(&mut deaf, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    assert_eq!(server.ended().await, CLEAN);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn active_requests_are_finished() {
    let server = start(Kind::Https).await;
    let mut old = server.tls(&["http/1.1"]).await;
    send(&mut old, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (mut client, task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _) = client.send_request(request("GET", "/hold"), true).unwrap();
    server.inside.until("both inside", |it| it.held.load(Ordering::SeqCst) == 2).await;
    let (inside, stop) = (server.inside.clone(), server.stop.clone());
    stop.cancel();
    // After the GOAWAY the client opens no stream.
    let refused = async {
        loop {
            let Ok(mut ready) = client.clone().ready().await else { return };
            let Ok((response, _)) = ready.send_request(request("GET", "/hello"), true) else { return };
            if response.await.is_err() {
                return;
            }
        }
    };
    in_time("the refusal", refused).await;
    inside.release.cancel();
    let answer = read_response(&mut old).await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("held", Some("close")));
    let body = in_time("the answer", response).await.unwrap().into_body();
    assert_eq!(collect(body).await.unwrap(), b"held");
    drop(client);
    let _ = in_time("the end", task).await.unwrap();
    assert_eq!(in_time("the server's end", server.task).await.unwrap(), CLEAN);
}

#[tokio::test]
async fn streams_end_when_the_service_stops() {
    let server = start(Kind::Https).await;
    let mut old = server.tls(&["http/1.1"]).await;
    send(&mut old, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _) = client.send_request(request("GET", "/stream"), true).unwrap();
    let new = in_time("an answer", response).await.unwrap().into_body();
    server.inside.until("both inside", |it| it.held.load(Ordering::SeqCst) == 2).await;
    server.stop.cancel();
    server.inside.streams_end.cancel();
    let old = String::from_utf8(read_to_end(&mut old).await).unwrap();
    assert!(old.contains("data: last") && old.ends_with("0\r\n\r\n"), "{old}");
    assert!(collect(new).await.unwrap().ends_with(b"data: last\n\n"));
    drop(client);
    assert_eq!(server.ended().await, CLEAN);
}

#[tokio::test]
async fn requests_are_cancelled_after_the_grace_period() {
    let mut start = Start::new(Kind::Https);
    start.grace = Duration::from_millis(300);
    let server = start.go().await;
    let mut old = server.tls(&["http/1.1"]).await;
    send(&mut old, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (_response, _) = client.send_request(request("GET", "/hold"), true).unwrap();
    server.inside.until("both inside", |it| it.held.load(Ordering::SeqCst) == 2).await;
    let (inside, begun) = (server.inside.clone(), Instant::now());
    let stopped = server.ended().await;
    assert!(stopped.cut_off >= 2, "{stopped:?}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(inside.dropped.load(Ordering::SeqCst), 2, "their requests were dropped");
    let old = String::from_utf8(read_to_end(&mut old).await).unwrap();
    assert!(
        old.contains("data: first") && !old.ends_with("0\r\n\r\n"),
        "the client sees that it is not whole"
    );
}

#[tokio::test]
async fn dropping_the_future_ends_everything() {
    let server = start(Kind::Http).await;
    let mut stream = server.tcp().await;
    send(&mut stream, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.inside.until("a request inside", |it| it.held.load(Ordering::SeqCst) == 1).await;
    server.task.abort();
    server.inside.until("its end", |it| it.dropped.load(Ordering::SeqCst) == 1).await;
    assert!(read_to_end(&mut stream).await.is_empty());
}
