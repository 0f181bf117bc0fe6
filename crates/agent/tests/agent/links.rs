//! Links that break, are replaced or are abused.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guest_proto::{Channel, Exit, StdinMode, ToGuest};
use rustix::net::{AddressFamily, SocketType};

use crate::host::{Agent, HostMessage, LARGE_WINDOW, until};

#[test]
fn a_new_link_continues_running_commands() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op =
        host.start("echo before; read line; echo \"after $line\"; exit 9", StdinMode::Pipe, LARGE_WINDOW);
    assert_eq!(host.receive_output(op), b"before\n");
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    // The new link gets a new grant for stdin; output waits for a grant.
    assert_eq!(host.receive(), HostMessage::Credit { op, bytes: 64 * 1024 });
    host.send(&ToGuest::Data { op, bytes: b"x\n" });
    assert!(host.is_quiet(std::time::Duration::from_millis(50)));
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: LARGE_WINDOW });
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"after x\n".as_slice(), Exit::Code(9)));
}

#[test]
fn an_end_between_links_is_reported_to_the_next() {
    let agent = Agent::start();
    let mut host = agent.host();
    let file = agent.path("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.01; done; exit 8", file.display());
    let op = host.start(&script, StdinMode::Null, LARGE_WINDOW);
    drop(host);
    std::fs::write(&file, "").unwrap();
    until("the command has ended", || agent.is_childless().then_some(()));
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    assert_eq!(host.finish(op).exit, Exit::Code(8));
    drop(host);
    assert_eq!(agent.link().1, []);
}

#[test]
fn a_continued_command_can_be_killed_without_a_grant() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("yes & yes >&2 & wait", StdinMode::Null, 100);
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    host.send(&ToGuest::Kill { op });
    let out = host.finish(op);
    assert_eq!((out.exit, out.stdout.len(), out.stderr.len()), (Exit::Signal(9), 0, 0));
    assert_eq!(host.run("pgrep -c yes").stdout, b"0\n");
}

#[test]
fn a_partial_frame_does_not_reach_the_next_link() {
    let agent = Agent::start();
    for _ in 0..20 {
        let (mut host, _) = agent.link();
        let op = host.start("yes", StdinMode::Null, LARGE_WINDOW);
        // Fills the agent's buffer and the socket, then disconnects without reading.
        host.receive_output(op);
        host.stream.write_all(&[200, 0, 0, 0, 1, 2, 3]).unwrap();
        drop(host);
        let (mut host, ops) = agent.link();
        assert_eq!(ops, [op]);
        host.send(&ToGuest::Kill { op });
        assert_eq!(host.finish(op).exit, Exit::Signal(9));
    }
}

#[test]
fn a_newer_connection_replaces_the_older() {
    let agent = Agent::start();
    let mut old = agent.host();
    old.ping();
    let (mut new, _) = agent.link();
    assert_eq!(old.try_receive(), None);
    assert_eq!(new.run("echo hi").stdout, b"hi\n");
}

#[test]
fn garbage_ends_the_link_and_the_next_works() {
    let agent = Agent::start();
    let pieces: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 64],
        &[0, 0, 0, 0],
        &[1, 0, 0, 0, 99],
        &[3, 0, 0, 0, 10, 1, 1],
        &[3, 0, 0, 0, 0, 1, 0],
    ];
    for piece in pieces {
        let mut host = agent.connect();
        host.stream.write_all(piece).unwrap();
        assert!(matches!(host.receive(), HostMessage::Bye { .. }), "{piece:?}");
        assert_eq!(host.try_receive(), None);
        let (mut host, _) = agent.link();
        host.stream.write_all(piece).unwrap();
        assert!(matches!(host.receive(), HostMessage::Bye { .. }), "{piece:?}");
        assert_eq!(host.try_receive(), None);
    }
    let mut host = agent.host();
    host.ping();
}

#[test]
fn protocol_violations_end_the_link() {
    let agent = Agent::start();
    let hello = ToGuest::Hello { version: 1, min_version: 1 };
    let (mut host, _) = agent.link();
    host.send(&hello);
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
    let mut host = agent.connect();
    host.send(&ToGuest::Hello { version: 9, min_version: 9 });
    assert!(matches!(host.receive(), HostMessage::Bye { reason } if reason.contains('9')));
    let (mut host, _) = agent.link();
    let op = host.start("sleep 1000", StdinMode::Null, LARGE_WINDOW);
    host.send(&ToGuest::Dial { op, port: 1, window: 1 });
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
    let (mut host, _) = agent.link();
    host.send(&ToGuest::Data { op, bytes: b"x" });
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
}

#[test]
fn frames_for_unknown_operations_are_ignored() {
    let agent = Agent::start();
    let mut host = agent.host();
    for message in [
        ToGuest::Data { op: 99, bytes: b"x" },
        ToGuest::Eof { op: 99 },
        ToGuest::Credit { op: 99, channel: Channel::Stderr, bytes: 5 },
        ToGuest::Signal { op: 99, signal: 9 },
        ToGuest::Close { op: 99 },
    ] {
        host.send(&message);
    }
    host.ping();
}

#[test]
fn frames_may_arrive_in_any_fragments() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut bytes = Vec::new();
    guest_proto::encode_to_guest(&ToGuest::Hello { version: 1, min_version: 1 }, &mut bytes).unwrap();
    for nonce in 0..50 {
        guest_proto::encode_to_guest(&ToGuest::Ping { nonce: nonce << 30 }, &mut bytes).unwrap();
    }
    let long = "x".repeat(300_000 / 3);
    let env = [("A", long.as_str()), ("B", &long), ("C", &long)];
    let spec = guest_proto::ExecSpec {
        argv: vec!["/bin/true"],
        env: env.to_vec(),
        cwd: "/",
        stdin: StdinMode::Null,
    };
    guest_proto::encode_to_guest(&ToGuest::Exec { op: 5, spec, window: 0 }, &mut bytes).unwrap();
    for piece in bytes.chunks(7_001).flat_map(|chunk| chunk.chunks(if chunk[0] % 2 == 0 { 3 } else { 6_000 }))
    {
        host.stream.write_all(piece).unwrap();
    }
    assert!(matches!(host.receive(), HostMessage::Welcome { .. }));
    for nonce in 0..50 {
        assert_eq!(host.receive(), HostMessage::Pong { nonce: nonce << 30 });
    }
    assert!(matches!(host.receive(), HostMessage::Started { op: 5, .. }));
    assert_eq!(host.finish(5).exit, Exit::Code(0));
}

#[test]
fn a_connecting_agent_sends_its_token_and_reconnects() {
    let agent = Agent::start_connecting();
    let mut host = agent.host();
    let op = host.start("sleep 1000", StdinMode::Null, LARGE_WINDOW);
    assert_eq!(host.run("wc -c < /dev/stdin").stdout, b"0\n");
    for _ in 0..3 {
        drop(host);
        let (next, ops) = agent.link();
        assert_eq!(ops, [op]);
        host = next;
        host.ping();
    }
}

/// A full queue of a listener drops the packets that open connections, like a host that does not have its address yet.
#[test]
fn a_connection_that_is_not_established_is_tried_again() {
    let backlog = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&backlog, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::listen(&backlog, 0).unwrap();
    let listener = TcpListener::from(backlog);
    let address = listener.local_addr().unwrap();
    let full = TcpStream::connect(address).unwrap();
    // starts: sandbox-agent
    let mut agent = Command::new(crate::host::AGENT)
        .args(["--connect", &address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let token = [7; guest_proto::TOKEN_LEN];
    agent.stdin.take().unwrap().write_all(&token).unwrap();
    let begin = Instant::now();
    std::thread::sleep(Duration::from_millis(150));
    drop((listener.accept().unwrap(), full));
    let (mut stream, _) = listener.accept().unwrap();
    let elapsed = begin.elapsed();
    let mut received = [0; guest_proto::TOKEN_LEN];
    stream.read_exact(&mut received).unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    // The kernel repeats the first packet after a second.
    assert!(elapsed < Duration::from_millis(900), "{elapsed:?}");
    assert_eq!(received, token);
}

#[test]
fn wrong_arguments_are_reported() {
    for args in [
        &["--listen-fd", "1"][..],
        &["--listen-fd"],
        &["--connect", "x"],
        &["--other", "y"],
        &["--listen-fd", "77"],
    ] {
        // starts: sandbox-agent
        let out = Command::new(crate::host::AGENT).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stderr.starts_with(b"sandbox-agent: "), "{args:?}");
    }
    // starts: sandbox-agent
    let out = Command::new(crate::host::AGENT)
        .args(["--connect", "/nowhere"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
}
