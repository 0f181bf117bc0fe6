//! Protocol upgrades that a handler accepts, and those that it refuses.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use listen::{Limits, Listener, Server, Takeover, bind, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::kit::*;

async fn answer(request: Request) -> Response {
    let status = if request.uri().path() == "/yes" { 101 } else { 200 };
    let takeover = Takeover::new(|mut stream| async move {
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes).await {
            let shouted = bytes[..count].to_ascii_uppercase();
            if stream.write_all(&shouted).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
        let _ = stream.shutdown().await;
    });
    let head = Response::builder().status(status).extension(takeover);
    if status == 101 {
        head.header("connection", "upgrade").header("upgrade", "shout").body(Body::empty()).unwrap()
    } else {
        head.body(Body::from("no")).unwrap()
    }
}

async fn started() -> (std::net::SocketAddr, CancellationToken) {
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, stop) = (socket.local_addr().unwrap(), CancellationToken::new());
    let server = Server {
        application: Arc::new(Router::new().fallback(answer)),
        answers: Arc::new(TestAnswers),
        is_exempt: Arc::new(|_| false),
        limits: Limits::default(),
    };
    let listeners = vec![Listener::Http { socket }];
    tokio::spawn(serve(server, listeners, stop.clone(), std::time::Duration::from_secs(1)));
    (address, stop)
}

const UPGRADE_HEADERS: &str = "Host: a\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n";

#[tokio::test]
async fn bytes_flow_both_ways_after_the_early_ones() {
    let (address, stop) = started().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    send(&mut stream, format!("GET /yes HTTP/1.1\r\n{UPGRADE_HEADERS}ahead ")).await;
    let head = read_response(&mut stream).await;
    assert_eq!((head.status, head.header("upgrade")), (101, Some("shout")));
    send(&mut stream, "and behind").await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, b"AHEAD AND BEHIND");
    stop.cancel();
}

#[tokio::test]
async fn only_a_101_response_switches_the_protocol() {
    let (address, stop) = started().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        send(&mut stream, format!("GET /no HTTP/1.1\r\n{UPGRADE_HEADERS}")).await;
        assert_eq!(read_response(&mut stream).await.body, "no");
    }
    stop.cancel();
}

#[tokio::test]
async fn a_stop_ends_an_upgraded_connection_after_the_grace_period() {
    let (address, stop) = started().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    send(&mut stream, format!("GET /yes HTTP/1.1\r\n{UPGRADE_HEADERS}")).await;
    assert_eq!(read_response(&mut stream).await.status, 101);
    send(&mut stream, "a").await;
    assert_eq!(stream.read_u8().await.unwrap(), b'A');
    stop.cancel();
    assert!(in_time("the end", read_to_end(&mut stream)).await.is_empty());
}
