//! Connections that are neither TLS nor HTTP, and invalid ones.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use egress::{Reason, ResolveFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::fixture::{Fixture, LONG, echo_server, policy, read_to_end, reset, server, server_address, take};

/// Speaks first, as SSH and mail servers do, then echoes.
async fn banner_server() -> SocketAddrV4 {
    server(|mut stream| async move {
        stream.write_all(b"SSH-2.0-Server\r\n").await.unwrap();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn other_protocols_reach_only_learnt_addresses() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let (known, unknown) = (echo_server().await, echo_server().await);
    fixture.learn("good.test", *known.ip());
    let mut client = fixture.dial(known).await;
    client.write_all(b"PING\r\n").await.unwrap();
    assert_eq!(take(&mut client, 6).await, b"PING\r\n");
    client.write_all(b"\x00\x01more").await.unwrap();
    assert_eq!(take(&mut client, 6).await, b"\x00\x01more");
    fixture.no_refusal();

    let mut client = fixture.dial(unknown).await;
    client.write_all(b"PING\r\n").await.unwrap();
    assert_eq!(reset(&mut client).await, b"");
    assert_eq!(fixture.refusal().await, (Reason::UnknownAddress, None));
}

#[tokio::test]
async fn either_side_may_speak_first() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let ssh = banner_server().await;
    fixture.learn("good.test", *ssh.ip());
    // One waits for the other.
    let mut client = fixture.dial(ssh).await;
    assert_eq!(take(&mut client, 16).await, b"SSH-2.0-Server\r\n");
    client.write_all(b"SSH-2.0-Client x\r\n").await.unwrap();
    assert_eq!(take(&mut client, 18).await, b"SSH-2.0-Client x\r\n");
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"");
    // Both speak at once.
    let mut client = fixture.dial(ssh).await;
    client.write_all(b"SSH-2.0-Client\r\n").await.unwrap();
    assert_eq!(take(&mut client, 32).await, b"SSH-2.0-Server\r\nSSH-2.0-Client\r\n");
    // A client that sends nothing, and closes its side.
    let mut client = fixture.dial(ssh).await;
    assert_eq!(take(&mut client, 16).await, b"SSH-2.0-Server\r\n");
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"");
    fixture.no_refusal();
}

#[tokio::test]
async fn a_delayed_request_for_another_name_is_reset() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let server = banner_server().await;
    fixture.learn("good.test", *server.ip());
    fixture.name("evil.test", &[*server.ip()]);
    let hello = crate::tls::hello("evil.test");
    let mut client = fixture.dial(server).await;
    assert_eq!(take(&mut client, 16).await, b"SSH-2.0-Server\r\n");
    client.write_all(&hello[..30]).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    client.write_all(&hello[30..]).await.unwrap();
    assert_eq!(reset(&mut client).await, b"", "nothing of the hello came back");
    assert_eq!(fixture.refusal().await, (Reason::NotAllowed, Some("evil.test".into())));

    let mut client = fixture.dial(server).await;
    take(&mut client, 16).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await.unwrap();
    assert_eq!(reset(&mut client).await, b"");
    assert_eq!(fixture.refusal().await, (Reason::NotAllowed, Some("evil.test".into())));

    // A delayed request for an allowed name passes.
    let hello = crate::tls::hello("good.test");
    let mut client = fixture.dial(server).await;
    take(&mut client, 16).await;
    client.write_all(&hello).await.unwrap();
    assert_eq!(take(&mut client, hello.len()).await, hello);
}

#[tokio::test]
async fn web_ports_pass_only_tls_and_http() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = server_address();
    fixture.learn("good.test", address);
    for (port, sent, reason) in [
        (443, &b"SSH-2.0-Client\r\n"[..], Reason::NoName),
        (80, b"EHLO good.test\r\n", Reason::NoName),
        (443, b"\x00\x00\x00\x01", Reason::NoName),
        (80, b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", Reason::Malformed),
        (53, b"", Reason::Port),
        (853, b"", Reason::Port),
    ] {
        let mut client = fixture.dial(SocketAddrV4::new(address, port)).await;
        // It may have been reset by now.
        let _ = client.write_all(sent).await;
        assert_eq!(reset(&mut client).await, b"", "{port}");
        assert_eq!(fixture.refusal().await, (reason, None), "{port}");
    }
}

/// Servers drop a warning before a hello (OpenSSL, Go), and some read records whose version is none (Go).
#[tokio::test]
async fn a_disguised_hello_is_not_another_protocol() {
    let hello = crate::tls::hello("evil.test");
    let warned = [&b"\x15\x03\x01\x00\x02\x01\x5a"[..], &hello].concat();
    let warned_oddly = [&b"\x15\x02\x01\x00\x02\x01\x5a"[..], &hello].concat();
    let mut renumbered = hello;
    renumbered[1] = 2;
    for sent in [warned, warned_oddly, renumbered] {
        for step in [1, sent.len()] {
            let mut fixture = Fixture::new(&["good.test"]).await;
            let echo = echo_server().await;
            fixture.learn("good.test", *echo.ip());
            let mut client = fixture.dial(echo).await;
            let mut is_reset = false;
            for part in sent.chunks(step) {
                is_reset = is_reset || client.write_all(part).await.is_err();
            }
            assert!(is_reset || reset(&mut client).await.is_empty(), "it reached the server");
            assert_eq!(fixture.refusal().await, (Reason::Malformed, None));
        }
    }
}

/// Each is a request to some lenient server, sent in pieces that do not identify it.
#[tokio::test]
async fn a_request_that_only_lenient_servers_read_is_reset_before_its_end() {
    let long = [&[b'A'; 65][..], b" / HTTP/1.1\r\nHost: evil.test\r\n\r\n"].concat();
    for request in [
        &long[..],
        b"GET /\x01 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"GET\x0b/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"GET\r/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"GET\xa0/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"\x01GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"\r\n\x0bGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ] {
        for step in [1, 7, request.len()] {
            let mut fixture = Fixture::new(&["good.test"]).await;
            // Like an HTTP server, it sends nothing before it has received a line.
            let (line, mut lines) = tokio::sync::mpsc::unbounded_channel();
            let address = server(move |mut stream| {
                let line = line.clone();
                async move {
                    while let Ok(byte) = stream.read_u8().await {
                        if byte == b'\n' {
                            let _ = line.send(());
                        }
                    }
                }
            })
            .await;
            fixture.learn("good.test", *address.ip());
            let mut client = fixture.dial(address).await;
            for piece in request.chunks(step) {
                if client.write_all(piece).await.is_err() {
                    break;
                }
                if step > 1 {
                    sleep(Duration::from_millis(3)).await;
                }
            }
            let what = request.escape_ascii();
            assert_eq!(fixture.refusal().await, (Reason::Malformed, None), "{what}");
            let blank = request.starts_with(b"\r\n");
            assert!(lines.try_recv().is_err() || blank && lines.try_recv().is_err(), "{what}");
        }
    }
}

/// Requests to stock servers (nginx, Node, Python, uWSGI), for a host that is not allowed. Also after the client has
/// waited.
#[tokio::test]
async fn malformed_requests_reach_no_server() {
    for line in [
        "GET ws://evil.test/secret\r\n",
        "GET ws://evil.test/secret\n",
        "GET * RTSP/1.0\r\n",
        "POST * RTSP/1.0\r\n",
        "OPTIONS * RTSP/1.0\r\n",
        "GET rtsp://evil.test/x RTSP/1.0\r\n",
        "SOURCE * ICE/1.0\r\n",
        "GET foo?data=1\r\n",
        "OPTIONS *\r\n",
        "POST secret ANY\r\n",
    ] {
        for silent_first in [false, true] {
            let mut fixture = Fixture::new(&["good.test"]).await;
            let (sent, mut got) = tokio::sync::mpsc::unbounded_channel();
            let address = server(move |mut stream| {
                let sent = sent.clone();
                async move {
                    while let Ok(byte) = stream.read_u8().await {
                        let _ = sent.send(byte);
                    }
                }
            })
            .await;
            fixture.learn("good.test", *address.ip());
            let mut client = fixture.dial(address).await;
            if silent_first {
                sleep(Duration::from_millis(150)).await;
            }
            client.write_all(line.as_bytes()).await.unwrap();
            sleep(Duration::from_millis(20)).await;
            let rest = b"Host: evil.test\r\n\r\nGET /secret HTTP/1.1\r\n";
            let is_reset = client.write_all(rest).await.is_err() || reset(&mut client).await.is_empty();
            assert!(is_reset, "{line:?}");
            assert_eq!(fixture.refusal().await, (Reason::Malformed, None), "{line:?}");
            let heard: Vec<u8> = std::iter::from_fn(|| got.try_recv().ok()).collect();
            assert!(line.as_bytes().starts_with(&heard), "{line:?}: {}", heard.escape_ascii());
        }
    }
}

/// Commands of Redis and memcached look like requests without a version, and are answered by their line.
#[tokio::test]
async fn commands_that_resemble_requests_pass() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let echo = echo_server().await;
    fixture.learn("good.test", *echo.ip());
    for command in
        [&b"GET key\r\n"[..], b"KEYS *\r\n", b"get one two\r\n", b"REGISTER sip:good.test SIP/2.0\r\n"]
    {
        let mut client = fixture.dial(echo).await;
        client.write_all(command).await.unwrap();
        assert_eq!(take(&mut client, command.len()).await, command);
        client.write_all(b"Via: more\r\n").await.unwrap();
        assert_eq!(take(&mut client, 11).await, b"Via: more\r\n");
    }
    fixture.no_refusal();
}

/// Examined data is forwarded at once, and only examined as long as necessary.
#[tokio::test]
async fn protocols_without_lines_are_forwarded_at_once() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let echo = echo_server().await;
    fixture.learn("good.test", *echo.ip());
    for begin in [
        &b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00"[..],
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"003egit-upload-pack /project.git\0host=good.test\0",
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        let mut client = fixture.dial(echo).await;
        client.write_all(begin).await.unwrap();
        assert_eq!(take(&mut client, begin.len()).await, begin);
        // The server has answered, so later data is not a request.
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        assert_eq!(take(&mut client, 16).await, b"GET / HTTP/1.1\r\n");
        client.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut client).await, b"");
    }
    fixture.no_refusal();
}

/// What begins with its length as a little-endian number may begin as TLS does.
#[tokio::test]
async fn logins_that_resemble_tls_pass() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let echo = echo_server().await;
    fixture.learn("good.test", *echo.ip());
    for login in [&b"\x16\x01\x00\x01\x85\xa6\xff\x01\x00"[..], b"\x15\x01\x00\x00\x01\x00\x00\x00"] {
        let mut client = fixture.dial(echo).await;
        client.write_all(login).await.unwrap();
        assert_eq!(take(&mut client, login.len()).await, login);
    }
    fixture.no_refusal();
}

#[tokio::test]
async fn closed_addresses_stay_closed_for_all_protocols() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let closed = Ipv4Addr::new(127, 66, 200, 200);
    fixture.learn("good.test", closed);
    for sent in [crate::tls::hello("good.test"), b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n".to_vec()] {
        let mut client = fixture.dial(SocketAddrV4::new(closed, 4433)).await;
        let _ = client.write_all(&sent).await;
        reset(&mut client).await;
    }
    assert_eq!(fixture.refusal().await.0, Reason::ClosedAddress);
    // Also after an answer of a faulty resolver.
    let public = server_address();
    fixture.broken_name("good.test", ResolveFailure::Closed(closed, rules::Closed::Loopback));
    let mut client = fixture.dial(SocketAddrV4::new(public, 4433)).await;
    client.write_all(&crate::tls::hello("good.test")).await.unwrap();
    reset(&mut client).await;
    assert_eq!(fixture.refusal().await, (Reason::ClosedAnswer, Some("good.test".into())));
    fixture.name("good.test", &[public, closed]);
    fixture.learn("good.test", closed);
    let mut client = fixture.dial(SocketAddrV4::new(closed, 4434)).await;
    let _ = client.write_all(&crate::tls::hello("good.test")).await;
    reset(&mut client).await;
    assert_eq!(fixture.refusal().await.0, Reason::ClosedAddress);
}

#[tokio::test]
async fn unknown_sources_are_reset() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let echo = echo_server().await;
    fixture.name("good.test", &[*echo.ip()]);
    let mut stranger = fixture.dial_from(server_address(), echo).await;
    let _ = stranger.write_all(&crate::tls::hello("good.test")).await;
    assert_eq!(reset(&mut stranger).await, b"");
    fixture.no_refusal();
}

#[tokio::test]
async fn a_client_that_closes_without_data_is_not_reported() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let mut client = fixture.dial(SocketAddrV4::new(server_address(), 443)).await;
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"");
    fixture.no_refusal();
}

#[tokio::test]
async fn a_half_closed_connection_continues() {
    let fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        stream.write_all(format!("got {}", all.len()).as_bytes()).await.unwrap();
    })
    .await;
    fixture.learn("good.test", *address.ip());
    let mut client = fixture.dial(address).await;
    client.write_all(b"\x00lots\n").await.unwrap();
    client.write_all(&vec![7; 3_000_000]).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, b"got 3000006");
}

#[tokio::test]
async fn resets_are_forwarded_in_both_directions() {
    let fixture = Fixture::new(&["good.test"]).await;
    let address = server(|mut stream| async move {
        let mut request = [0; 5];
        stream.read_exact(&mut request).await.unwrap();
        if &request == b"\x00you\n" {
            stream.write_all(b"bye").await.unwrap();
            sleep(Duration::from_millis(50)).await;
            stream.set_zero_linger().unwrap();
            return;
        }
        // The client resets the connection.
        let error = stream.read(&mut request).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        tokio::net::TcpStream::connect(RESET_REPORT.get().unwrap()).await.unwrap();
    })
    .await;
    static RESET_REPORT: std::sync::OnceLock<std::net::SocketAddr> = std::sync::OnceLock::new();
    let reset_listener = tokio::net::TcpListener::bind((server_address(), 0)).await.unwrap();
    RESET_REPORT.set(reset_listener.local_addr().unwrap()).unwrap();
    fixture.learn("good.test", *address.ip());
    let mut client = fixture.dial(address).await;
    client.write_all(b"\x00you\n").await.unwrap();
    assert_eq!(reset(&mut client).await, b"bye");
    let mut client = fixture.dial(address).await;
    client.write_all(b"\x00me.\n").await.unwrap();
    sleep(Duration::from_millis(100)).await;
    client.set_zero_linger().unwrap();
    drop(client);
    timeout(LONG, reset_listener.accept()).await.expect("the server was not reset").unwrap();
}

#[tokio::test]
async fn a_new_policy_cuts_only_forbidden_connections() {
    let fixture = Fixture::new(&["good.test", "also.test"]).await;
    let (good, also) = (echo_server().await, echo_server().await);
    fixture.learn("good.test", *good.ip());
    fixture.learn("also.test", *also.ip());
    let mut by_address = fixture.dial(good).await;
    by_address.write_all(b"\x00").await.unwrap();
    take(&mut by_address, 1).await;
    let mut by_name = fixture.dial(good).await;
    let hello = crate::tls::hello("good.test");
    by_name.write_all(&hello).await.unwrap();
    take(&mut by_name, hello.len()).await;
    let mut stays = fixture.dial(also).await;
    stays.write_all(b"\x00").await.unwrap();
    take(&mut stays, 1).await;
    assert_eq!(fixture.guest.connections(), 3);

    let change = Instant::now();
    let forgotten =
        fixture.parts.registry.admit(&fixture.guest.id, fixture.guest.address, &policy(&["also.test"]));
    assert_eq!(forgotten, [*good.ip()]);
    reset(&mut by_address).await;
    reset(&mut by_name).await;
    assert!(change.elapsed() < Duration::from_millis(100), "{:?}", change.elapsed());
    stays.write_all(b"\x01").await.unwrap();
    assert_eq!(take(&mut stays, 1).await, b"\x01");
    fixture.parts.registry.remove(fixture.guest.address);
    reset(&mut stays).await;
    assert_eq!(fixture.guest.connections(), 0);
}

#[tokio::test]
async fn a_stop_resets_all_connections() {
    let fixture = Fixture::new(&["good.test"]).await;
    let echo = echo_server().await;
    fixture.learn("good.test", *echo.ip());
    let mut decided = fixture.dial(echo).await;
    decided.write_all(b"\x00").await.unwrap();
    take(&mut decided, 1).await;
    let mut undecided = fixture.dial(SocketAddrV4::new(*echo.ip(), 443)).await;
    undecided.write_all(b"G").await.unwrap();
    sleep(Duration::from_millis(50)).await;
    fixture.stop.cancel();
    reset(&mut decided).await;
    reset(&mut undecided).await;
}
