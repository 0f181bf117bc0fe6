//! Idle phases of plain HTTP connections, when the proxy holds only the sockets.

use std::net::SocketAddrV4;
use std::time::Duration;

use egress::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::fixture::{Fixture, read_to_end, reset, server, take};
use crate::load::{many, resident_bytes};

const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Longer than it takes until a connection is idle.
const A_WHILE: Duration = Duration::from_millis(100);

/// Responds to each request, then passes the connection to a closure.
async fn answering<F>(
    rounds: usize,
    then: impl Fn(TcpStream) -> F + Copy + Send + Sync + 'static,
) -> SocketAddrV4
where
    F: Future<Output = ()> + Send + 'static,
{
    server(move |mut stream| async move {
        for _ in 0..rounds {
            let mut seen = 0;
            while seen < 4 {
                let Ok(byte) = stream.read_u8().await else { return };
                seen = if b"\r\n\r\n"[seen] == byte { seen + 1 } else { usize::from(byte == b'\r') };
            }
            if stream.write_all(OK).await.is_err() {
                return;
            }
        }
        then(stream).await;
    })
    .await
}

async fn ask(client: &mut TcpStream) {
    client.write_all(ASK).await.unwrap();
    assert_eq!(take(client, OK.len()).await, OK);
}

#[tokio::test]
async fn late_split_and_pipelined_requests_share_the_connection() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = answering(usize::MAX, |_| async {}).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    ask(&mut client).await;
    sleep(A_WHILE).await;
    ask(&mut client).await;
    for piece in ASK.chunks(9) {
        client.write_all(piece).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(take(&mut client, OK.len()).await, OK);
    // The second request is incomplete when the first is answered.
    let (half, rest) = ASK.split_at(20);
    client.write_all(&[ASK, half].concat()).await.unwrap();
    assert_eq!(take(&mut client, OK.len()).await, OK);
    sleep(A_WHILE).await;
    client.write_all(&[rest, ASK, ASK].concat()).await.unwrap();
    assert_eq!(take(&mut client, 3 * OK.len()).await, OK.repeat(3));
    assert_eq!(fixture.guest.connections(), 1);
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"");
    fixture.no_refusal();
}

#[tokio::test]
async fn requests_after_an_idle_phase_are_decided_again() {
    for (late, reason, name) in [
        ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", Reason::NameChanged, Some("evil.test".to_owned())),
        ("GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", Reason::Malformed, None),
        ("CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", Reason::Malformed, None),
    ] {
        let mut fixture = Fixture::new(&["good.test"]).await;
        let address = answering(usize::MAX, |_| async {}).await;
        fixture.name("good.test", &[*address.ip()]);
        let mut client = fixture.dial(address).await;
        ask(&mut client).await;
        sleep(A_WHILE).await;
        client.write_all(late.as_bytes()).await.unwrap();
        assert_eq!(reset(&mut client).await, b"", "{late}");
        assert_eq!(fixture.refusal().await, (reason, name), "{late}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_cut_and_closed_like_others() {
    let fixture = Fixture::new(&["good.test"]).await;
    let address = answering(usize::MAX, |_| async {}).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    ask(&mut client).await;
    sleep(A_WHILE).await;
    fixture.parts.registry.admit(&fixture.guest.id, fixture.guest.address, &crate::fixture::policy(&[]));
    reset(&mut client).await;

    // A server that closes, at once or later.
    let fixture = Fixture::new(&["good.test"]).await;
    let address = answering(1, |stream| async move {
        sleep(A_WHILE).await;
        drop(stream);
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    ask(&mut client).await;
    assert_eq!(read_to_end(&mut client).await, b"");

    // A server that sends unrequested data, which must not become the response to the next request.
    let fixture = Fixture::new(&["good.test"]).await;
    let address = answering(1, |mut stream| async move {
        sleep(A_WHILE).await;
        let _ = stream.write_all(OK).await;
        let _ = stream.read(&mut [0; 64]).await;
    })
    .await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    ask(&mut client).await;
    assert_eq!(read_to_end(&mut client).await, b"");
}

/// Set in the process that runs only this test.
const ALONE: &str = "PROXY_TEST_ALONE";

/// In a separate process: memory that other tests have freed would be reused here, and hide the growth.
#[test]
fn idle_http_connections_use_little_memory() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if std::env::var_os(ALONE).is_some() {
        return runtime.block_on(hold_idle_connections());
    }
    let alone = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "turns::idle_http_connections_use_little_memory"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.status.success() && output.contains("1 passed"), "{output}");
}

async fn hold_idle_connections() {
    // A sandbox may have few active HTTP connections in addition.
    const COUNT: usize = 1000;
    assert!(many() >= COUNT, "too few descriptors");
    let fixture = Fixture::new(&["good.test"]).await;
    let address = answering(usize::MAX, |_| async {}).await;
    fixture.name("good.test", &[*address.ip()]);
    let before = resident_bytes();
    let mut open = Vec::new();
    for _ in 0..COUNT {
        let mut client = fixture.dial(address).await;
        ask(&mut client).await;
        open.push(client);
    }
    // What clients and servers hold here is counted as well.
    let grown = resident_bytes().saturating_sub(before);
    println!("{COUNT} resting connections: {} MB, {} bytes each", grown >> 20, grown / COUNT);
    assert!(grown < 100_000_000 / 5000 * COUNT, "{COUNT} connections grew the process by {grown} bytes");
    for client in &mut open {
        ask(client).await;
    }
}
