//! What goes through an exposed port: every kind of request and answer, over both versions of HTTP, and who may send them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use e2e::service::Service;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::portal::{Door, PORT, expect, expose, host_of, listen, opened, token};
use crate::{created, output, shared, text, until, user, verb};

#[tokio::test]
async fn requests_and_answers_go_through_both_ways() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    for told in [door.get("/").await, door.send_h2(door.request("GET", "/")).await] {
        assert_eq!((told.status, told.text().as_str()), (200, "it is port 8080"));
        assert!(told.headers.get("x-ratelimit-limit").is_none(), "{told:?}");
    }
    // A program's own status, header and body, error or not, as they are.
    for status in [201, 204, 304, 404, 500, 503] {
        let told = door.get(&format!("/status?{status}")).await;
        assert_eq!((told.status, told.headers["x-own"].to_str().unwrap()), (status, "yes"));
        let bodiless = matches!(status, 204 | 304);
        assert_eq!(told.text(), if bodiless { "" } else { "body" });
    }
    let told = door.send(door.request("HEAD", "/status?200")).await;
    assert_eq!((told.headers["content-length"].to_str().unwrap(), told.text().as_str()), ("4", ""));
    // Bodies, of a known length and not.
    let content: Bytes = (0..300_000_u32).map(|n| (n % 241) as u8).collect::<Vec<_>>().into();
    let echo = || door.request("POST", "/echo").map(|_| Full::new(content.clone()));
    assert!(door.send(echo()).await.body == content);
    assert!(door.send_h2(echo()).await.body == content);
    for length in ["0", "1"] {
        let body = "x".repeat(length.parse().unwrap());
        let told = door.send(door.request("PUT", "/count").map(|_| Full::new(body.into()))).await;
        assert_eq!(told.text(), length);
    }
    assert!(door.get("/cookies").await.headers.get_all("set-cookie").iter().eq(["own=1; Path=/"]));
}

#[tokio::test]
async fn the_program_sees_who_asks_and_nothing_that_lets_them_in() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    let own = door.token.clone().unwrap();
    let mut request = door.request("GET", &format!("/head?a=1&sandbox_token={own}&b=2"));
    let headers = request.headers_mut();
    for (name, value) in [
        ("authorization", client.authorization()),
        ("cookie", &format!("a=1; __Host-sandbox-token={own}; sandbox-token={own}; b=2")),
        ("referer", &format!("https://x/?sandbox_token={own}")),
        ("x-forwarded-for", "10.9.8.7"),
        ("x-forwarded-host", "forged"),
        ("x-real-ip", "10.9.8.7"),
        ("forwarded", "for=10.9.8.7"),
        ("connection", "keep-alive, x-dropped"),
        ("x-dropped", "1"),
        ("proxy-authorization", "Basic x"),
        ("te", "trailers"),
        ("x-kept", "1"),
        (
            "sec-websocket-protocol",
            &format!("chat, sandboxd.key.{}", client.authorization().trim_start_matches("Bearer ")),
        ),
    ] {
        headers.insert(hyper::header::HeaderName::from_static(name), value.parse().unwrap());
    }
    for told in [door.send(request.clone()).await, {
        request.headers_mut().remove("connection");
        door.send_h2(request).await
    }] {
        let seen = told.text().to_ascii_lowercase();
        assert!(seen.starts_with("get /head?a=1&b=2 http/1.1\r\n"), "{seen}");
        for secret in ["sbk_", "spt_", "sandbox-token", "sandbox_token"] {
            assert!(!seen.contains(secret), "{secret} in {seen}");
        }
        for forged in ["10.9.8.7", "forged", "proxy-authorization", "te:", "keep-alive"] {
            assert!(!seen.contains(forged), "{forged} in {seen}");
        }
        for line in [
            "cookie: a=1; b=2\r\n",
            "x-forwarded-for: 127.0.0.1\r\n",
            "x-forwarded-proto: https\r\n",
            "connection: close",
            "x-kept: 1\r\n",
        ] {
            assert!(seen.contains(line), "no {line:?} in {seen}");
        }
        assert!(
            seen.contains(&format!("host: {}", door.host)) && seen.contains("x-forwarded-host: "),
            "{seen}"
        );
        assert!(told.headers.get("x-inner").is_none(), "what the program's Connection names stays inside");
    }
    // What is the program's own business in the same headers goes on.
    let mut request = door.request("GET", "/head");
    request.headers_mut().insert("authorization", "Basic dTpw".parse().unwrap());
    assert!(door.send(request).await.text().to_ascii_lowercase().contains("authorization: basic dtpw"));
}

#[tokio::test]
async fn a_private_port_wants_a_key_or_a_token() {
    let service = shared().await;
    let owner = service.client_of("port-keys", "read,execute,write").await.unwrap();
    let (id, door) = opened(&service, &owner).await;
    let closed = door.without_token();
    let with_key = |key: &str| {
        let mut request = closed.request("GET", "/");
        request.headers_mut().insert("authorization", key.parse().unwrap());
        request
    };
    let told = closed.get("/").await;
    assert_eq!((told.status, told.code().as_str()), (401, "UNAUTHORIZED"));
    assert_eq!(told.headers["www-authenticate"], "Bearer");
    assert_eq!(closed.send(with_key(owner.authorization())).await.status, 200);
    // Of the account, without the scope; of another account; made up; of another form.
    let reader = service.client_of("port-keys", "read,write").await.unwrap();
    let told = closed.send(with_key(reader.authorization())).await;
    assert_eq!((told.status, told.code().as_str()), (403, "FORBIDDEN"));
    let stranger = service.account().await.unwrap();
    let told = closed.send(with_key(stranger.authorization())).await;
    assert_eq!((told.status, told.code().as_str()), (404, "PORT_NOT_FOUND"));
    for key in ["Bearer sbk_nobody", "Bearer", "Basic sbk_nobody", "sbk_nobody"] {
        assert_eq!(closed.send(with_key(key)).await.status, 401, "{key}");
    }
    // Tokens: good, forged, of another port, of another sandbox, of an exposure that is over.
    let good = door.token.clone().unwrap();
    assert_eq!(door.get("/").await.status, 200);
    let mut forged = good.clone().into_bytes();
    forged[40] = if forged[40] == b'0' { b'1' } else { b'0' };
    expose(&owner, &id, &json!({ "port": 9000 })).await;
    let other_port = token(&owner, &id, 9000).await;
    let other_id = created(&owner).await;
    expose(&owner, &other_id, &json!({ "port": PORT })).await;
    let other_sandbox = token(&owner, &other_id, PORT).await;
    for bad in [
        String::from_utf8(forged).unwrap(),
        other_port,
        other_sandbox,
        String::new(),
        good.replace("spt_", ""),
    ] {
        let told = closed.with_token(&bad).get("/").await;
        assert_eq!((told.status, told.code().as_str()), (401, "UNAUTHORIZED"), "{bad}");
    }
    expose(&owner, &id, &json!({ "port": PORT })).await;
    assert_eq!(door.get("/").await.status, 401, "exposed anew");
    let door = door.with_token(&token(&owner, &id, PORT).await);
    assert_eq!(door.get("/").await.status, 200);
    let short = owner
        .post(&verb(&id, &format!("ports/{PORT}/token")), &json!({ "expiresInMs": 1000 }))
        .await
        .unwrap();
    let short = door.with_token(&text(&short.is(201).unwrap()["token"]));
    until("the token is over", async || short.get("/").await.status == 401).await;
    owner.delete(&verb(&id, &format!("ports/{PORT}"))).await.unwrap().is(200).unwrap();
    assert_eq!(door.get("/").await.status, 404, "closed");
}

#[tokio::test]
async fn a_browser_turns_the_token_of_its_address_into_a_cookie() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    let (own, door) = (door.token.clone().unwrap(), door.without_token());
    let ask = |path: &str, headers: &[(&'static str, &str)]| {
        let mut request = door.request("GET", path);
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    };
    let page = [("accept", "text/html,*/*")];
    let told = door.send(ask(&format!("//elsewhere.example/a?x=1&sandbox_token={own}"), &page)).await;
    assert_eq!(told.status, 303);
    assert!(told.headers["x-request-id"].to_str().unwrap().starts_with("req_"));
    assert_eq!(
        told.headers["location"].to_str().unwrap(),
        format!("https://{}//elsewhere.example/a?x=1", door.host)
    );
    let cookie = told.headers["set-cookie"].to_str().unwrap();
    let (pair, rest) = cookie.split_once("; ").unwrap();
    assert_eq!(pair, format!("__Host-sandbox-token={own}"));
    for part in ["Path=/", "HttpOnly", "Secure", "SameSite=Lax", "Max-Age=3"] {
        assert!(rest.contains(part), "{cookie}");
    }
    assert_eq!(door.send(ask("/", &[("cookie", pair)])).await.status, 200);
    assert_eq!(door.send(ask(&format!("/?sandbox_token={own}"), &[])).await.text(), "it is port 8080");
    // A page for people where there is nothing to be seen.
    let told = door.send(ask("/", &page)).await;
    assert_eq!(
        (told.status, told.headers["content-type"].to_str().unwrap()),
        (401, "text/html; charset=utf-8")
    );
    assert!(told.text().contains("UNAUTHORIZED") && told.headers["cache-control"] == "no-store");
}

#[tokio::test]
async fn another_page_is_not_let_in_by_a_cookie() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    let cookie = format!("__Host-sandbox-token={}", door.token.clone().unwrap());
    let door = door.without_token();
    let asked = async |from: &[(&'static str, &str)]| {
        let mut request = door.request("GET", "/");
        for (name, value) in [("cookie", cookie.as_str())].iter().chain(from) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        door.send(request).await.status
    };
    let own = format!("https://{}", door.host);
    assert_eq!(asked(&[("origin", &own), ("sec-fetch-site", "same-origin")]).await, 200);
    assert_eq!(asked(&[("origin", "https://9090-sb-another.sandboxes.localhost")]).await, 401);
    assert_eq!(asked(&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")]).await, 401);
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let (service, client) = user().await;
    let id = created(&client).await;
    let port = expose(&client, &id, &json!({ "port": 8081, "visibility": "public" })).await;
    let door = Door { service: service.clone(), host: host_of(&port), token: None };
    let told = door.get("/").await;
    assert_eq!((told.status, told.code().as_str()), (502, "PORT_UNREACHABLE"));
    assert!(told.text().contains("nothing listens on port 8081"), "{}", told.text());
    let name = id.replace('_', "-");
    for label in
        [&format!("8082-{name}"), &format!("08081-{name}"), "8081-sb-00000000000000000000", "nothing"]
    {
        let door = Door { host: format!("{label}.sandboxes.localhost"), ..door.clone() };
        let told = door.get("/v1/health").await;
        assert_eq!((told.status, told.code().as_str()), (404, "PORT_NOT_FOUND"), "{label}");
    }
    // As soon as something listens, on either address.
    listen(&client, &id, 8081).await;
    assert_eq!(door.get("/").await.status, 200);
}

#[tokio::test]
async fn a_websocket_goes_both_ways_until_both_ends_are_done() {
    let (service, client) = user().await;
    let (_id, door) = opened(&service, &client).await;
    let mut socket = door.websocket().await;
    for n in 0..20_u8 {
        let message = vec![n; 1 << n.min(15)];
        socket.write_all(&message).await.unwrap();
        socket.flush().await.unwrap();
        expect(&mut socket, &message).await;
    }
    socket.shutdown().await.unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"bye");
    // What is sent ahead of the answer is not lost.
    let mut eager = door.raw(&format!("{}ahead", door.handshake())).await;
    assert!(crate::portal::until_blank_line(&mut eager).await.starts_with("HTTP/1.1 101 "));
    expect(&mut eager, b"helloahead").await;
    // A program that does not agree answers as any other.
    let refused = door.handshake().replace("GET /ws ", "GET /status?403 ");
    let mut plain = door.raw(&refused).await;
    assert!(crate::portal::until_blank_line(&mut plain).await.starts_with("HTTP/1.1 403 "));
    // No other protocol is changed to.
    let h2c = door.handshake().replace("Upgrade: websocket", "Upgrade: h2c").replace("/ws", "/head");
    let mut h2c = door.raw(&h2c).await;
    assert!(crate::portal::until_blank_line(&mut h2c).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn events_come_as_they_are_sent_and_end_with_their_reader() {
    let (service, client) = user().await;
    let (id, door) = opened(&service, &client).await;
    let response = door.begin(door.request("GET", "/sse")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut seen = String::new();
    while !seen.contains("data: 5\n") {
        let frame = body.frame().await.unwrap().unwrap();
        seen.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
    }
    let serving = async || output(&client, &id, "pgrep -fc 'portal.p[l]' || true").await;
    assert_eq!(serving().await, "2\n");
    drop(body);
    until("the program's side has ended", async || serving().await == "1\n").await;
}

fn memory_kb(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn large_bodies_stream_at_flat_memory() {
    const BYTES: u64 = 300_000_000;
    let service =
        std::sync::Arc::new(Service::start(&e2e::service::ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (_id, door) = opened(&service, &client).await;
    let before = memory_kb(&service);
    // Out, with a reader that stops for a while.
    let mut body = door.begin(door.request("GET", &format!("/big?{BYTES}"))).await.into_body();
    let (mut got, mut rested) = (0, false);
    while let Some(frame) = body.frame().await {
        got += frame.unwrap().data_ref().unwrap().len() as u64;
        if got > BYTES / 3 && !rested {
            rested = true;
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(memory_kb(&service) < before + 64 * 1024);
        }
    }
    assert_eq!(got, BYTES);
    // In and out at once, of no known length.
    let piece = Bytes::from(vec![b'x'; 60_000]);
    let pieces = futures_util::stream::iter(
        (0..2000).map(move |_| Ok::<_, std::io::Error>(Frame::data(piece.clone()))),
    );
    let stream = service.tls(&door.host, &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = door.request("POST", "/echo").map(|_| ());
    let request: Request<_> = request.map(|()| StreamBody::new(pieces));
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut got = 0;
    while let Some(frame) = body.frame().await {
        got += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(got, 2000 * 60_000);
    assert!(memory_kb(&service) < before + 64 * 1024, "{} kB after {before} kB", memory_kb(&service));
}

#[tokio::test]
async fn many_websockets_at_once() {
    const COUNT: usize = 60;
    let (service, client) = user().await;
    let (id, door) = opened(&service, &client).await;
    let mut sockets = futures_util::future::join_all((0..COUNT).map(|_| door.websocket())).await;
    assert_eq!(output(&client, &id, "pgrep -fc 'portal.p[l]'").await, format!("{}\n", COUNT + 1));
    // All of them send more than their share of the link at once.
    let message = vec![b'm'; 300_000];
    let echoes = sockets.iter_mut().map(async |socket| {
        let (mut reader, mut writer) = tokio::io::split(socket);
        let mut back = vec![0; message.len()];
        let send = async {
            writer.write_all(&message).await?;
            writer.flush().await
        };
        let (sent, read) = tokio::join!(send, reader.read_exact(&mut back));
        sent.unwrap();
        read.unwrap();
        assert!(back == message);
    });
    futures_util::future::join_all(echoes).await;
    drop(sockets);
    until("all have ended", async || output(&client, &id, "pgrep -fc 'portal.p[l]'").await == "1\n").await;
}

#[tokio::test]
async fn a_daemon_that_stops_ends_streams_and_lets_answers_finish() {
    let service =
        std::sync::Arc::new(Service::start(&e2e::service::ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (_id, door) = opened(&service, &client).await;
    let mut socket = door.websocket().await;
    let mut events = door.begin(door.request("GET", "/sse")).await.into_body();
    events.frame().await.unwrap().unwrap();
    let begun = Instant::now();
    service.signal(rustix::process::Signal::TERM).unwrap();
    assert!(service.gone(Duration::from_secs(60)).await.unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(25), "streams were waited for");
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest).await;
    while let Some(Ok(_)) = events.frame().await {}
}
