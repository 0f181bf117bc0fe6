//! Memory of 2,000 connections, and running out of files. The server runs in a separate process of this test program,
//! so that the clients' memory is not counted.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpStream;

use crate::kit::*;

/// The file limit of the server process.
const VARIABLE: &str = "LISTEN_TEST_SERVER_FILES";
const CONNECTIONS_PER_USE: usize = 300;

/// Not a test: the server process, which the tests below start.
#[tokio::test]
async fn server_process() {
    let Ok(files) = std::env::var(VARIABLE) else { return };
    let limit =
        Rlimit { current: Some(files.parse().unwrap()), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = start(Kind::Https).await;
    println!("\nready {} {}", server.address, server.certificate().display());
    std::io::stdout().flush().unwrap();
    // The parent closes standard input at its end.
    let wait = || std::io::stdin().lines().for_each(drop);
    tokio::task::spawn_blocking(wait).await.unwrap();
    server.ended().await;
}

struct Own {
    child: Child,
    address: SocketAddr,
    certificate: PathBuf,
    /// Kept open for the server's last output.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Own {
    fn start(files: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory::server_process", "--nocapture"])
            .env(VARIABLE, files.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("ready ")).unwrap();
        let mut words = ready.split(' ').skip(1);
        let address = words.next().unwrap().parse().unwrap();
        Self { child, address, certificate: PathBuf::from(words.next().unwrap()), _output: lines }
    }

    fn resident_kb(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Closing its input ends the server.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[derive(Debug, Clone, Copy)]
enum Use {
    /// Connected, nothing sent.
    Silent,
    /// One request was answered, and the connection is idle.
    KeepAlive,
    /// Requested a large response, and stopped reading.
    Stalled,
    /// An open event stream without events.
    Stream,
}

/// What keeps a connection open.
type Open = Box<dyn Send>;

async fn open(address: SocketAddr, certificate: PathBuf, protocol: &str, usage: Use) -> Open {
    let trusted = CertificateDer::from_pem_file(certificate).unwrap();
    let mut tls = tls(TcpStream::connect(address).await.unwrap(), trusted, &[protocol]).await.unwrap();
    let path = match usage {
        Use::Stream => "/stream",
        Use::Stalled => "/big?100",
        Use::Silent | Use::KeepAlive => "/hello",
    };
    match (protocol, usage) {
        ("h2", _) => {
            let (client, connection) = h2::client::handshake(tls).await.unwrap();
            let (mut client, task) = (client.ready().await.unwrap(), tokio::spawn(connection));
            if matches!(usage, Use::KeepAlive) {
                assert_eq!(exchange(&mut client, request("GET", path)).await.body, "hello");
                return Box::new((client, task));
            }
            let (response, _) = client.send_request(request("GET", path), true).unwrap();
            Box::new((in_time("an answer", response).await.unwrap().into_body(), client, task))
        }
        (_, Use::Silent) => Box::new(tls),
        _ => {
            send(&mut tls, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            let mut head = [0; 12];
            tokio::io::AsyncReadExt::read_exact(&mut tls, &mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200");
            Box::new(tls)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_connections_stay_within_their_memory() {
    listen::raise_file_limit().unwrap();
    let server = Own::start(10_000);
    let before = server.resident_kb();
    let mut last = before;
    let mut all = Vec::new();
    // The limit of the whole daemon with 2,000 connections is 150 MB, of which these may use two thirds. Clients that
    // stopped reading use more, until they are disconnected.
    for (protocol, usage, limit) in [
        ("http/1.1", Use::Silent, 50_000),
        ("http/1.1", Use::KeepAlive, 50_000),
        ("http/1.1", Use::Stream, 50_000),
        ("h2", Use::KeepAlive, 50_000),
        ("h2", Use::Stream, 50_000),
        ("http/1.1", Use::Stalled, 200_000),
        ("h2", Use::Stalled, 200_000),
    ] {
        let opening = (0..CONNECTIONS_PER_USE)
            .map(|_| open(server.address, server.certificate.clone(), protocol, usage));
        let opening = futures_util::stream::iter(opening).buffer_unordered(8).collect::<Vec<_>>();
        all.extend(tokio::time::timeout(Duration::from_secs(120), opening).await.unwrap());
        let now = server.resident_kb();
        let each = now.saturating_sub(last) * 1024 / CONNECTIONS_PER_USE;
        println!("{CONNECTIONS_PER_USE} of {protocol} {usage:?}: {each} bytes each");
        assert!(each < limit, "{protocol} {usage:?}: {each} bytes each");
        last = now;
    }
    println!("{} connections: {} MB more, {} MB in all", all.len(), (last - before) / 1024, last / 1024);
    drop(all);
    server.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_out_of_files_is_survived() {
    let server = Own::start(64);
    let mut many = Vec::new();
    for _ in 0..100 {
        many.push(TcpStream::connect(server.address).await.unwrap());
    }
    drop(many);
    for protocol in ["http/1.1", "h2"] {
        drop(open(server.address, server.certificate.clone(), protocol, Use::KeepAlive).await);
    }
    server.end();
}
