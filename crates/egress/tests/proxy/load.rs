//! Many concurrent connections.

use std::net::SocketAddrV4;
use std::time::Duration;

use egress::Reason;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::fixture::{Fixture, echo_server, reset, server_address, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_limited_and_do_not_affect_others() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let silent = SocketAddrV4::new(server_address(), 443);
    let mut waiting = Vec::new();
    for _ in 0..512 {
        waiting.push(fixture.dial(silent).await);
    }
    if let Ok(mut refused) = fixture.try_dial(fixture.guest.address, silent).await {
        reset(&mut refused).await;
    }
    assert_eq!(fixture.refusal().await, (Reason::TooMany, None));
    // A permit is free as soon as a connection has ended.
    drop(waiting);
    sleep(Duration::from_millis(200)).await;
    let echo = echo_server().await;
    fixture.learn("good.test", *echo.ip());
    let mut client = fixture.dial(echo).await;
    client.write_all(b"\x00").await.unwrap();
    take(&mut client, 1).await;
}

/// The required number of connections, or as many as the file limit permits: each takes four descriptors here.
pub fn many() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let descriptors = limit.maximum.unwrap_or(1 << 20);
    usize::try_from(descriptors.saturating_sub(6000) / 4).unwrap().min(5000)
}

pub fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_use_little_memory() {
    let count = many();
    let fixture = Fixture::new(&["good.test"]).await;
    let echo = echo_server().await;
    fixture.name("good.test", &[*echo.ip()]);
    let hello = crate::tls::hello("good.test");
    let before = resident_bytes();
    let mut open = Vec::new();
    for _ in 0..count {
        let mut client = fixture.dial(echo).await;
        client.write_all(&hello).await.unwrap();
        take(&mut client, hello.len()).await;
        open.push(client);
    }
    // What clients and servers hold here is counted as well.
    let grown = resident_bytes().saturating_sub(before);
    println!("{count} idle connections: {} MB, {} bytes each", grown >> 20, grown / count);
    assert!(grown < 100_000_000 / 5000 * count, "{count} connections grew the process by {grown} bytes");
    // All of them still work.
    for client in &mut open {
        client.write_all(b"still").await.unwrap();
    }
    for client in &mut open {
        assert_eq!(take(client, 5).await, b"still");
    }
}
