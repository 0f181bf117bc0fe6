//! A web server and a DNS server outside the host, which sandboxes reach through the host's packet filter: a network namespace behind a
//! link of the host. The daemon stays in the host's own namespace, because only there the kernel has the settings that it checks.
//!
//! The network is of the range that RFC 2544 reserves for measurements, which no host should use; the test refuses to run if
//! one does. A route of less priority makes the network unreachable, so that no packet of an attack leaves the machine when
//! the link is missing. It is removed last, or by the next run if this one is killed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::internet::Namespace;

/// All addresses of this network are the server's.
pub const PREFIX: &str = "198.18.77";
pub const NETWORK: &str = "198.18.77.0/24";
const RANGE: &str = "198.18.0.0/15";
const GUARD: [&str; 5] = ["unreachable", NETWORK, "metric", "4096", "table"];
const PAGE_BYTES: usize = 64 << 10;
/// Each name below this one has an address of its own.
pub const LEARNT: &str = "learnt.example";
/// The same in a DNS question, with its end and the question's type and class: an address.
const ASKED: &[u8] = b"\x06learnt\x07example\0\0\x01\0\x01";
const HEAD_BYTES: usize = 12;

/// The server, and the namespace of its network.
pub struct Outside {
    _namespace: Namespace,
    _link: Link,
    _guard: Guard,
}

impl Outside {
    pub fn new() -> Result<Self> {
        let guard = Guard::new()?;
        let namespace = Namespace::new()?;
        let link = Link::new(namespace.pid())?;
        namespace.shell(&format!(
            "ip address add 198.19.77.2/30 dev wan\nip link set wan up\nip route add default via 198.19.77.1\n\
             ip route add local {NETWORK} dev lo\nsysctl -q -w net.ipv4.icmp_ratelimit=0\n"
        ))?;
        link.route()?;
        let listener = namespace.inside(|| Ok(TcpListener::bind(("0.0.0.0", 80))?))?;
        // Ends with this process: it waits for connections of a namespace that nobody else can reach.
        std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
        let questions = namespace.inside(|| Ok(UdpSocket::bind(("0.0.0.0", 53))?))?;
        std::thread::spawn(move || answer_questions(&questions));
        Ok(Self { _namespace: namespace, _link: link, _guard: guard })
    }

    /// The URL of its page.
    pub fn url() -> String {
        format!("http://{PREFIX}.7/")
    }

    /// A resolver that answers questions about names below [`LEARNT`] only: questions of an attack must not reach those of the host.
    pub fn resolver() -> String {
        format!("{PREFIX}.53")
    }
}

/// The route that makes the network unreachable without the link.
struct Guard;

impl Guard {
    fn new() -> Result<Self> {
        // That of a run that was killed.
        let _ = ip(&[&["route", "del"], &GUARD[..], &["main"]].concat());
        let used = ip(&["-4", "route", "show", "table", "all", "root", RANGE])?;
        ensure!(used.trim().is_empty(), "this host has routes in {RANGE}, which the suite needs: {used}");
        ip(&[&["route", "add"], &GUARD[..], &["main"]].concat())?;
        Ok(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = ip(&[&["route", "del"], &GUARD[..], &["main"]].concat()) {
            eprintln!("the route to {NETWORK} stays: {error:#}");
        }
    }
}

/// The host's end of the link.
struct Link(String);

impl Link {
    fn new(namespace: u32) -> Result<Self> {
        let link = Self(format!("fair{}", std::process::id() % 1_000_000));
        let inside = namespace.to_string();
        ip(&["link", "add", &link.0, "type", "veth", "peer", "name", "wan", "netns", &inside])?;
        Ok(link)
    }

    fn route(&self) -> Result<()> {
        ip(&["address", "add", "198.19.77.1/30", "dev", &self.0])?;
        ip(&["link", "set", &self.0, "up"])?;
        ip(&["route", "add", NETWORK, "via", "198.19.77.2", "dev", &self.0])?;
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The end of the namespace would remove it a moment later.
        if let Err(error) = ip(&["link", "del", &self.0]) {
            eprintln!("the link {} stays: {error:#}", self.0);
        }
    }
}

fn serve(stream: TcpStream) {
    std::thread::spawn(move || {
        // A client that sends or reads nothing must not hold the thread.
        let _ = answer(stream);
    });
}

fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut request = [0; 4096];
    let _ = stream.read(&mut request)?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {PAGE_BYTES}\r\nConnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), &vec![b'o'; PAGE_BYTES]].concat())?;
    Ok(())
}

/// Answers questions until the process ends.
fn answer_questions(socket: &UdpSocket) {
    let mut question = [0; 512];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut question) else { return };
        if let Some(reply) = reply_to(&question[..length]) {
            // A client that has gone needs none.
            let _ = socket.send_to(&reply, from);
        }
    }
}

/// The reply to a question about a name below [`LEARNT`], with a public address that is derived from the name.
fn reply_to(question: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = question.split_at_checked(HEAD_BYTES)?;
    let end = rest.windows(ASKED.len()).position(|part| part.eq_ignore_ascii_case(ASKED))? + ASKED.len();
    let name = rest[..end].to_ascii_lowercase();
    let number = name.iter().fold(0_u32, |number, byte| number.wrapping_mul(31).wrapping_add((*byte).into()));
    let [_, second, third, fourth] = number.to_be_bytes();
    // An answer without an error, of one record.
    let counts = [0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    // The name of the question, an address, for 60 seconds.
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 20, second, third, fourth];
    Some([&head[..2], &counts, &rest[..end], &record].concat())
}

/// The output of `ip`.
fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().context("starting ip")?;
    ensure!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
