//! Floods of connections, streams, resets and header frames. A flood ends only its own connection; other clients are
//! served.

use std::sync::atomic::Ordering;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::*;

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_slots_are_reused() {
    let server = Start::new(Kind::Http).limits(|it| it.max_connections = 2).go().await;
    let hello = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = server.tcp().await;
        send(&mut stream, hello).await;
        assert_eq!(read_response(&mut stream).await.body, "hello");
        kept.push(stream);
    }
    let mut third = server.tcp().await;
    assert!(read_to_end(&mut third).await.is_empty());
    send(&mut kept[0], hello).await;
    assert_eq!(read_response(&mut kept[0]).await.body, "hello");
    kept.pop();
    let again = async {
        loop {
            let mut stream = server.tcp().await;
            let _ = stream.write_all(hello.as_bytes()).await;
            let mut first = [0];
            if matches!(stream.read(&mut first).await, Ok(1)) {
                return;
            }
        }
    };
    in_time("a place", again).await;
}

const HELLO: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn one_address_cannot_hold_all_connections() {
    for kind in [Kind::Http, Kind::Https, Kind::Redirect { port: 1 }] {
        let limits = |it: &mut listen::Limits| (it.max_connections, it.max_connections_per_address) = (20, 5);
        let mut start = Start::new(kind).limits(limits);
        start.is_exempt = std::sync::Arc::new(|address| address.to_string() == "127.0.0.9");
        let server = start.go().await;
        // Connections are accepted in order: the sixth of an address is closed before its first byte is read.
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(server.tcp_from("127.0.0.2").await);
        }
        for _ in 0..10 {
            assert!(read_to_end(&mut server.tcp_from("127.0.0.2").await).await.is_empty());
        }
        let honest = async |source: &str| {
            let mut stream = server.tcp_from(source).await;
            send(&mut stream, HELLO).await;
            let status = read_response(&mut stream).await.status;
            assert_eq!(status, if kind == Kind::Http { 200 } else { 301 }, "{source}");
            stream
        };
        let mut others = vec![honest("127.0.0.3").await];
        for _ in 0..10 {
            others.push(honest("127.0.0.9").await);
        }
        // A freed slot can be used again.
        drop(held.pop());
        let again = async {
            loop {
                let mut stream = server.tcp_from("127.0.0.2").await;
                let _ = stream.write_all(HELLO.as_bytes()).await;
                let mut first = [0];
                if matches!(stream.read(&mut first).await, Ok(1)) {
                    return;
                }
            }
        };
        in_time("a slot", again).await;
    }
}

#[tokio::test]
async fn one_address_cannot_hold_all_handshakes() {
    let limits = |it: &mut listen::Limits| {
        it.max_handshakes_per_address = 2;
        it.handshake_timeout = std::time::Duration::from_secs(2);
    };
    let server = Start::new(Kind::Https).limits(limits).go().await;
    let trusted = CertificateDer::from_pem_file(server.certificate()).unwrap();
    let begun = std::time::Instant::now();
    let mut half = Vec::new();
    for _ in 0..2 {
        let mut stream = server.tcp_from("127.0.0.2").await;
        send(&mut stream, [0x16, 3, 1, 2, 0, 1]).await;
        half.push(stream);
    }
    // Clients that send nothing do not count as handshakes.
    let _silent = server.tcp_from("127.0.0.3").await;
    let other = tls(server.tcp_from("127.0.0.3").await, trusted.clone(), &["http/1.1"]).await;
    assert!(other.is_ok() && begun.elapsed() < std::time::Duration::from_secs(1));
    // The same address waits until its incomplete handshakes have timed out, which is before its own timeout.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let waited = tls(server.tcp_from("127.0.0.2").await, trusted, &["http/1.1"]).await;
    assert!(
        waited.is_ok() && begun.elapsed() > std::time::Duration::from_millis(1500),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn streams_beyond_the_limit_wait() {
    let server = Start::new(Kind::Http).limits(|it| it.max_streams = 5).go().await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    // The client knows the limit after the server's first frame.
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
    let requests: Vec<_> = (0..8)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                client = client.ready().await.unwrap();
                exchange(&mut client, request("GET", "/hold")).await.body
            })
        })
        .collect();
    server.inside.until("five inside", |it| it.held.load(Ordering::SeqCst) == 5).await;
    server.inside.release.cancel();
    for request in requests {
        assert_eq!(in_time("an answer", request).await.unwrap(), "held");
    }
}

async fn assert_serves(server: &Running) {
    let mut stream = server.connect().await;
    send(&mut stream, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(read_response(&mut stream).await.body, "hello");
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `:method: GET`, `:scheme: http`, `:path: /hold` and an authority, without any table.
const HEAD: &[u8] = b"\x82\x86\x04\x05/hold\x01\x01a";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// Sends frames until the server closes the connection. Returns the code of its GOAWAY.
async fn flood(server: &Running, mut next_frame: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let (mut reading, mut writing) = server.tcp().await.into_split();
    let reader = tokio::spawn(async move { read_to_end(&mut reading).await });
    send(&mut writing, [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    let sending = async {
        for number in 0..200_000 {
            if writing.write_all(&next_frame(number)).await.is_err() {
                return;
            }
        }
        panic!("200,000 frames were accepted");
    };
    in_time("the end of the flood", sending).await;
    let read = in_time("the end", reader).await.unwrap();
    let mut frames = &read[..];
    let mut code = None;
    while let Some((head, after)) = frames.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, after)) = after.split_at_checked(length) else { break };
        if head[3] == 7 {
            code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        frames = after;
    }
    code
}

const ENHANCE_YOUR_CALM: u32 = 11;

#[tokio::test]
async fn rapid_resets_end_their_connection() {
    let server = Start::new(Kind::Http).go().await;
    let resets = |number: u32| {
        let stream = 2 * number + 1;
        [frame(HEADERS, 0x5, stream, HEAD), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let code = flood(&server, resets).await;
    assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{code:?}");
    server
        .inside
        .until("no request left", |it| it.held.load(Ordering::SeqCst) == it.dropped.load(Ordering::SeqCst))
        .await;
    assert_serves(&server).await;
}

#[tokio::test]
async fn endless_header_frames_end_their_connection() {
    let server = Start::new(Kind::Http).go().await;
    // One literal header per frame, none with END_HEADERS.
    let mut literal = b"\x00\x01x\x7f\x81\x7f".to_vec();
    literal.extend_from_slice(&[b'y'; 256]);
    let mut sent = false;
    let code = flood(&server, |_| {
        let kind = if std::mem::replace(&mut sent, true) { CONTINUATION } else { HEADERS };
        frame(kind, 0, 1, &literal)
    })
    .await;
    assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{code:?}");
    assert_serves(&server).await;
}

#[tokio::test]
async fn invalid_http_2_ends_its_connection() {
    let server = Start::new(Kind::Http)
        .limits(|it| it.linger_timeout = std::time::Duration::from_millis(200))
        .go()
        .await;
    for bytes in [
        vec![0xff; 100],
        frame(SETTINGS, 0, 1, &[0; 6]),
        frame(HEADERS, 0x4, 0, HEAD),
        frame(HEADERS, 0x5, 2, HEAD),
        frame(HEADERS, 0x5, 1, &[0xff; 30]),
        frame(CONTINUATION, 0x4, 1, HEAD),
    ] {
        let mut stream = server.tcp().await;
        send(&mut stream, [PREFACE, &frame(SETTINGS, 0, 0, &[]), &bytes].concat()).await;
        read_to_end(&mut stream).await;
    }
    assert_serves(&server).await;
}
