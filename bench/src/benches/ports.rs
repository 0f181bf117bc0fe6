//! Requests and websockets through an exposed port: latency with 200 open websockets, and their memory in the daemon.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::host;
use crate::report::{Figure, OURS, Row};
use crate::samples::Samples;
use crate::service::{Service, with_service};

const SOCKETS: usize = 200;
const ROUNDS: usize = 10;
const REQUESTS: usize = 200;
const PORT: u16 = 8080;
const MESSAGE: [u8; 125] = [b'm'; 125];
/// The program of the tests.
const PROGRAM: &str = include_str!("../../../e2e/tests/service/ports/portal.pl");

pub async fn run() -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let client = service.client()?;
        let sandbox = client.create(e2e::service::Service::image()).await?;
        let start = format!(
            "cat > portal.pl; (perl portal.pl {PORT} > log 2>&1 &); for i in $(seq 100); do curl -s http://127.0.0.1:{PORT}/ && exit 0; sleep 0.1; done; cat log; exit 1"
        );
        let started = sandbox.execute(start).stdin(PROGRAM).await?;
        ensure!(started.exit_code == Some(0), "the program does not listen: {}", started.stdout);
        let port = sandbox.expose(PORT).public().await?;
        let host = port.url.trim_start_matches("https://").split(':').next().context("no host")?.to_owned();
        let rows = measure(service, &host).await?;
        sandbox.terminate().await?;
        Ok(rows)
    })
    .await
}

async fn measure(service: &Service, host: &str) -> Result<Vec<Row>> {
    let quiet = requests(service, host).await?;
    let before = memory_mb(service)?;
    let mut sockets = Vec::with_capacity(SOCKETS);
    for _ in 0..SOCKETS {
        sockets.push(websocket(service, host).await?);
    }
    let mut echoes = Samples::default();
    for _ in 0..ROUNDS {
        for socket in &mut sockets {
            let begin = Instant::now();
            socket.write_all(&MESSAGE).await?;
            let mut back = [0; MESSAGE.len()];
            socket.read_exact(&mut back).await?;
            echoes.push(begin.elapsed());
            ensure!(back == MESSAGE, "the echo differs");
        }
    }
    let growth = memory_mb(service)? - before;
    let crowded = requests(service, host).await?;
    Ok(vec![
        Row::times("ports", OURS, &echoes).note("round trip of a message on one of 200 open websockets"),
        Row::times("ports", "request", &quiet).note("GET on a new TLS connection without other load"),
        Row::times("ports", "request-crowded", &crowded).note("the same with 200 open websockets"),
        Row::new("ports", "growth", Figure::Megabytes(growth), SOCKETS)
            .note("growth of the daemon by 200 websockets"),
    ])
}

fn memory_mb(service: &Service) -> Result<f64> {
    Ok(host::resident_kb(&service.pid().to_string())? as f64 / 1024.0)
}

async fn websocket(service: &Service, host: &str) -> Result<TlsStream<TcpStream>> {
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    let mut stream = service.tls(host).await?;
    stream.write_all(head.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\nhello") {
        head.push(stream.read_u8().await?);
        ensure!(head.len() < 4096, "no websocket: {}", String::from_utf8_lossy(&head));
    }
    Ok(stream)
}

async fn requests(service: &Service, host: &str) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..REQUESTS {
        let mut stream = service.tls(host).await?;
        let begin = Instant::now();
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        samples.push(begin.elapsed());
        ensure!(response.ends_with("it is port 8080"), "{response}");
    }
    Ok(samples)
}
