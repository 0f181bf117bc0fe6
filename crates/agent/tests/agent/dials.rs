//! Connections to ports inside.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};

use guest_proto::{Channel, RefusalKind, ToGuest};

use crate::host::{Agent, Host, HostMessage, LARGE_WINDOW};

fn open(host: &mut Host, port: u16, window: u32) -> (u64, usize) {
    let op = host.op();
    host.send(&ToGuest::Dial { op, port, window });
    match host.receive() {
        HostMessage::Opened { op: of, window } if of == op => (op, window as usize),
        other => panic!("not opened: {other:?}"),
    }
}

/// Echoes one connection until the peer ends its side.
fn echo(listener: TcpListener) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = [0; 10_000];
        let mut total = 0;
        loop {
            let n = stream.read(&mut piece).unwrap();
            if n == 0 {
                stream.write_all(b"bye").unwrap();
                return total;
            }
            stream.write_all(&piece[..n]).unwrap();
            total += n;
        }
    })
}

fn echo_through(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = echo(listener);
    let agent = Agent::start();
    let mut host = agent.host();
    let (op, mut credit) = open(&mut host, port, 5000);
    let total = 2_000_000;
    let piece: Vec<u8> = (0..20_000u32).map(|n| (n % 253) as u8).collect();
    let (mut sent, mut back) = (0, Vec::new());
    loop {
        while sent < total && credit >= piece.len() {
            host.send(&ToGuest::Data { op, bytes: &piece });
            credit -= piece.len();
            sent += piece.len();
        }
        if sent == total {
            host.send(&ToGuest::Eof { op });
            sent += 1;
        }
        match host.receive() {
            HostMessage::Credit { bytes, .. } => credit += bytes as usize,
            HostMessage::Data { channel: Channel::Stdout, bytes, .. } => {
                back.extend_from_slice(&bytes);
                host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: bytes.len() as u32 });
            }
            HostMessage::Eof { channel: Channel::Stdout, .. } => break,
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(echo.join().unwrap(), total);
    assert!(back.ends_with(b"bye"));
    back.truncate(total);
    assert_eq!(back.len(), total);
    assert!(back.chunks(piece.len()).all(|chunk| chunk == piece));
    // The operation has ended: its number can be reused.
    host.send(&ToGuest::Dial { op, port, window: 1 });
    assert!(matches!(host.receive(), HostMessage::Refused { .. }));
}

#[test]
fn each_direction_ends_separately() {
    echo_through("127.0.0.1:0");
}

#[test]
fn a_port_on_the_ipv6_loopback_is_found() {
    echo_through("[::1]:0");
}

#[test]
fn the_guest_may_end_its_side_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let guest = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"first").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    });
    let agent = Agent::start();
    let mut host = agent.host();
    let (op, _) = open(&mut host, port, LARGE_WINDOW);
    assert_eq!(host.receive_output(op), b"first");
    assert_eq!(host.receive(), HostMessage::Eof { op, channel: Channel::Stdout });
    host.send(&ToGuest::Data { op, bytes: b"still " });
    host.send(&ToGuest::Data { op, bytes: b"here" });
    host.send(&ToGuest::Eof { op });
    assert_eq!(guest.join().unwrap(), b"still here");
}

#[test]
fn a_port_where_nobody_listens_is_refused() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.op();
    host.send(&ToGuest::Dial { op, port, window: 1 });
    match host.receive() {
        HostMessage::Refused { op: of, kind, message } => {
            assert_eq!((of, kind), (op, RefusalKind::Connect));
            assert!(message.contains(&port.to_string()), "{message}");
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn without_credit_nothing_is_sent_and_close_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let guest = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // More than all buffers on the way hold: ends only when the peer disconnects.
        let piece = vec![0; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    });
    let agent = Agent::start();
    let mut host = agent.host();
    let (op, _) = open(&mut host, port, 100);
    let mut seen = 0;
    while seen < 100 {
        seen += host.receive_output(op).len();
    }
    assert_eq!(seen, 100);
    assert!(host.is_quiet(std::time::Duration::from_millis(100)));
    host.send(&ToGuest::Close { op });
    guest.join().unwrap();
    host.ping();
}

#[test]
fn a_lost_link_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let agent = Agent::start();
    let mut host = agent.host();
    open(&mut host, port, 100);
    let (mut stream, _) = listener.accept().unwrap();
    drop(host);
    assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
    assert_eq!(agent.link().1, []);
}

#[test]
fn a_broken_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let agent = Agent::start();
    let mut host = agent.host();
    let (op, _) = open(&mut host, port, LARGE_WINDOW);
    let (stream, _) = listener.accept().unwrap();
    host.send(&ToGuest::Data { op, bytes: b"unread" });
    // Closed with bytes unread: the kernel resets the connection.
    crate::host::until("the bytes are there", || {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0; 10]).ok()
    });
    drop(stream);
    match host.receive() {
        HostMessage::Refused { op: of, kind, .. } => assert_eq!((of, kind), (op, RefusalKind::Connect)),
        other => panic!("unexpected: {other:?}"),
    }
}
