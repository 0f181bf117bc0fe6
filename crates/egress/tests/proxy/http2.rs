//! HTTP/2 without TLS: each stream is decided.

use std::convert::Infallible;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress::Reason;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest, handshake};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::fixture::{Fixture, LONG, server};

/// Responds with the requested host and the body.
async fn h2_server() -> SocketAddrV4 {
    server(|stream| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut answer = format!("{authority}:").into_bytes();
            answer.extend_from_slice(&body);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer))))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await
}

async fn connect(fixture: &Fixture, to: SocketAddrV4) -> SendRequest<Empty<Bytes>> {
    let stream = fixture.dial(to).await;
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn streams_for_an_allowed_name_share_a_connection() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = h2_server().await;
    fixture.name("good.test", &[*address.ip()]);
    let sender = connect(&fixture, address).await;
    let asked = (0..50).map(|number| {
        let mut sender = sender.clone();
        tokio::spawn(async move {
            let answer = sender.send_request(request(&format!("http://good.test/{number}"))).await.unwrap();
            answer.into_body().collect().await.unwrap().to_bytes()
        })
    });
    for answer in asked.collect::<Vec<_>>() {
        assert_eq!(timeout(LONG, answer).await.unwrap().unwrap(), "good.test:");
    }
    assert_eq!(fixture.guest.connections(), 1);
    fixture.no_refusal();
}

#[tokio::test]
async fn a_stream_for_another_name_resets_the_connection() {
    let mut fixture = Fixture::new(&["good.test", "also.test"]).await;
    let address = h2_server().await;
    for name in ["good.test", "also.test", "evil.test"] {
        fixture.name(name, &[*address.ip()]);
    }
    let mut sender = connect(&fixture, address).await;
    assert!(timeout(LONG, sender.send_request(request("http://evil.test/"))).await.unwrap().is_err());
    assert_eq!(fixture.refusal().await, (Reason::NotAllowed, Some("evil.test".into())));
    let mut sender = connect(&fixture, address).await;
    sender.send_request(request("http://good.test/")).await.unwrap();
    assert!(timeout(LONG, sender.send_request(request("http://also.test/"))).await.unwrap().is_err());
    assert_eq!(fixture.refusal().await, (Reason::NameChanged, Some("also.test".into())));
    assert!(timeout(LONG, sender.send_request(request("http://good.test/"))).await.unwrap().is_err());
    // Two different hosts.
    let mut sender = connect(&fixture, address).await;
    let mut torn = request("http://good.test/");
    torn.headers_mut().insert("host", "evil.test".parse().unwrap());
    assert!(timeout(LONG, sender.send_request(torn)).await.unwrap().is_err());
    assert_eq!(fixture.refusal().await, (Reason::Malformed, None));
}

#[tokio::test]
async fn a_server_without_http_2_is_reported() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        while let Ok(1..) = stream.read(&mut buffer).await {}
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut sender = connect(&fixture, address).await;
    assert!(timeout(LONG, sender.send_request(request("http://good.test/"))).await.unwrap().is_err());
    assert_eq!(fixture.refusal().await, (Reason::BadAnswer, Some("good.test".into())));
}

#[tokio::test]
async fn heads_of_responses_have_the_limit_of_requests() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = server(|stream| async move {
        let service = service_fn(|_: Request<Incoming>| async move {
            let long = Response::builder().header("x-long", "y".repeat(24_000));
            Ok::<_, Infallible>(long.body(Empty::<Bytes>::new()).unwrap())
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(1 << 20);
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let stream = fixture.dial(address).await;
    let (mut sender, connection) = Builder::new(TokioExecutor::new())
        .max_header_list_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut asked = request("http://good.test/");
    asked.headers_mut().insert("x-long", "z".repeat(24_000).parse().unwrap());
    let answer = timeout(LONG, sender.send_request(asked)).await.unwrap().unwrap();
    assert_eq!(answer.headers()["x-long"].len(), 24_000);
    fixture.no_refusal();
}

/// An HTTP/2 connection can hold much more memory than one of HTTP/1.
#[tokio::test]
async fn connections_and_streams_are_limited() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let held = Arc::new(AtomicUsize::new(0));
    let address = server({
        let held = Arc::clone(&held);
        move |stream| {
            let held = Arc::clone(&held);
            async move {
                // Responds only to the first.
                let service = service_fn(move |request: Request<Incoming>| {
                    let held = Arc::clone(&held);
                    async move {
                        if request.uri().path() == "/held" {
                            held.fetch_add(1, Ordering::SeqCst);
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            }
        }
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut open = Vec::new();
    for _ in 0..32 {
        let mut sender = connect(&fixture, address).await;
        timeout(LONG, sender.send_request(request("http://good.test/"))).await.unwrap().unwrap();
        open.push(sender);
    }
    let mut more = connect(&fixture, address).await;
    assert!(timeout(LONG, more.send_request(request("http://good.test/"))).await.unwrap().is_err());
    assert_eq!(fixture.refusal().await, (Reason::TooMany, None));
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let mut sender = open[0].clone();
            tokio::spawn(async move { sender.send_request(request("http://good.test/held")).await.is_ok() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(held.load(Ordering::SeqCst), 64);
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    // A permit is free as soon as a connection has ended.
    open.truncate(1);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut again = connect(&fixture, address).await;
    timeout(LONG, again.send_request(request("http://good.test/"))).await.unwrap().unwrap();
}
