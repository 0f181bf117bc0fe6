//! Traffic through exposed ports: requests and responses over both versions of HTTP, websockets, and authorization.

use std::time::{Duration, Instant};

use bytes::Bytes;
use e2e::service::{Service, read_head};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ports::{PORT, PortClient, expect, expose, host_of, listen, open_port, token};
use crate::{action_path, create_sandbox, output, shared_service, text, user, wait_until};

#[tokio::test]
async fn requests_and_responses_are_forwarded() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    for response in [port_client.get("/").await, port_client.send_h2(port_client.request("GET", "/")).await] {
        assert_eq!((response.status, response.text().as_str()), (200, "it is port 8080"));
        assert!(response.headers.get("x-ratelimit-limit").is_none(), "{response:?}");
    }
    // Status, headers and body of the program are forwarded unchanged.
    for status in [201, 204, 304, 404, 500, 503] {
        let response = port_client.get(&format!("/status?{status}")).await;
        assert_eq!((response.status, response.headers["x-own"].to_str().unwrap()), (status, "yes"));
        let bodiless = matches!(status, 204 | 304);
        assert_eq!(response.text(), if bodiless { "" } else { "body" });
    }
    let response = port_client.send(port_client.request("HEAD", "/status?200")).await;
    assert_eq!((response.headers["content-length"].to_str().unwrap(), response.text().as_str()), ("4", ""));
    // Bodies with and without a known length.
    let content: Bytes = (0..300_000_u32).map(|n| (n % 241) as u8).collect::<Vec<_>>().into();
    let echo = || port_client.request("POST", "/echo").map(|_| Full::new(content.clone()));
    assert!(port_client.send(echo()).await.body == content);
    assert!(port_client.send_h2(echo()).await.body == content);
    for length in ["0", "1"] {
        let body = "x".repeat(length.parse().unwrap());
        let response =
            port_client.send(port_client.request("PUT", "/count").map(|_| Full::new(body.into()))).await;
        assert_eq!(response.text(), length);
    }
    assert!(port_client.get("/cookies").await.headers.get_all("set-cookie").iter().eq(["own=1; Path=/"]));
}

#[tokio::test]
async fn the_program_gets_forwarding_headers_and_no_credentials() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    let own = port_client.token.clone().unwrap();
    let mut request = port_client.request("GET", &format!("/head?a=1&sandbox_token={own}&b=2"));
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
        ("sec-websocket-protocol", &format!("chat, sandboxd.key.{}", client.key())),
    ] {
        headers.insert(hyper::header::HeaderName::from_static(name), value.parse().unwrap());
    }
    for response in [port_client.send(request.clone()).await, {
        request.headers_mut().remove("connection");
        port_client.send_h2(request).await
    }] {
        let received = response.text().to_ascii_lowercase();
        assert!(received.starts_with("get /head?a=1&b=2 http/1.1\r\n"), "{received}");
        for secret in ["sbk_", "spt_", "sandbox-token", "sandbox_token"] {
            assert!(!received.contains(secret), "{secret} in {received}");
        }
        for forged in ["10.9.8.7", "forged", "proxy-authorization", "te:", "keep-alive"] {
            assert!(!received.contains(forged), "{forged} in {received}");
        }
        for line in [
            "cookie: a=1; b=2\r\n",
            "x-forwarded-for: 127.0.0.1\r\n",
            "x-forwarded-proto: https\r\n",
            "connection: close",
            "x-kept: 1\r\n",
        ] {
            assert!(received.contains(line), "no {line:?} in {received}");
        }
        assert!(
            received.contains(&format!("host: {}", port_client.host))
                && received.contains("x-forwarded-host: "),
            "{received}"
        );
        assert!(
            response.headers.get("x-inner").is_none(),
            "what the program's Connection names stays inside"
        );
    }
    // What is the program's own business in the same headers goes on.
    let mut request = port_client.request("GET", "/head");
    request.headers_mut().insert("authorization", "Basic dTpw".parse().unwrap());
    assert!(
        port_client.send(request).await.text().to_ascii_lowercase().contains("authorization: basic dtpw")
    );
}

#[tokio::test]
async fn a_private_port_needs_a_key_or_a_token() {
    let service = shared_service().await;
    let owner = service.client_with_new_key("port-keys", "read,execute,write").await.unwrap();
    let (id, port_client) = open_port(&service, &owner).await;
    let closed = port_client.without_token();
    let with_key = |key: &str| {
        let mut request = closed.request("GET", "/");
        request.headers_mut().insert("authorization", key.parse().unwrap());
        request
    };
    let response = closed.get("/").await;
    assert_eq!((response.status, response.code().as_str()), (401, "UNAUTHORIZED"));
    assert_eq!(response.headers["www-authenticate"], "Bearer");
    assert_eq!(closed.send(with_key(owner.authorization())).await.status, 200);
    // Keys of the account without the scope, of another account, unknown, and malformed.
    let reader = service.client_with_new_key("port-keys", "read,write").await.unwrap();
    let response = closed.send(with_key(reader.authorization())).await;
    assert_eq!((response.status, response.code().as_str()), (403, "FORBIDDEN"));
    let stranger = service.account().await.unwrap();
    let response = closed.send(with_key(stranger.authorization())).await;
    assert_eq!((response.status, response.code().as_str()), (404, "PORT_NOT_FOUND"));
    for key in ["Bearer sbk_nobody", "Bearer", "Basic sbk_nobody", "sbk_nobody"] {
        assert_eq!(closed.send(with_key(key)).await.status, 401, "{key}");
    }
    // Tokens: valid, forged, of another port, of another sandbox, of an earlier exposure.
    let good = port_client.token.clone().unwrap();
    assert_eq!(port_client.get("/").await.status, 200);
    let mut forged = good.clone().into_bytes();
    forged[40] = if forged[40] == b'0' { b'1' } else { b'0' };
    expose(&owner, &id, &json!({ "port": 9000 })).await;
    let other_port = token(&owner, &id, 9000).await;
    let other_id = create_sandbox(&owner).await;
    expose(&owner, &other_id, &json!({ "port": PORT })).await;
    let other_sandbox = token(&owner, &other_id, PORT).await;
    for bad in [
        String::from_utf8(forged).unwrap(),
        other_port,
        other_sandbox,
        String::new(),
        good.replace("spt_", ""),
    ] {
        let response = closed.with_token(&bad).get("/").await;
        assert_eq!((response.status, response.code().as_str()), (401, "UNAUTHORIZED"), "{bad}");
    }
    expose(&owner, &id, &json!({ "port": PORT })).await;
    assert_eq!(port_client.get("/").await.status, 401, "exposed again");
    let port_client = port_client.with_token(&token(&owner, &id, PORT).await);
    assert_eq!(port_client.get("/").await.status, 200);
    let short = owner
        .post(&action_path(&id, &format!("ports/{PORT}/token")), &json!({ "expiresInMs": 1000 }))
        .await
        .unwrap();
    let short = port_client.with_token(&text(&short.is(201).unwrap()["token"]));
    wait_until("the token has expired", async || short.get("/").await.status == 401).await;
    owner.delete(&action_path(&id, &format!("ports/{PORT}"))).await.unwrap().is(200).unwrap();
    assert_eq!(port_client.get("/").await.status, 404, "closed");
}

#[tokio::test]
async fn a_token_in_the_url_becomes_a_cookie() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    let (own, port_client) = (port_client.token.clone().unwrap(), port_client.without_token());
    let ask = |path: &str, headers: &[(&'static str, &str)]| {
        let mut request = port_client.request("GET", path);
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    };
    let page = [("accept", "text/html,*/*")];
    let response =
        port_client.send(ask(&format!("//elsewhere.example/a?x=1&sandbox_token={own}"), &page)).await;
    assert_eq!(response.status, 303);
    assert!(response.headers["x-request-id"].to_str().unwrap().starts_with("req_"));
    assert_eq!(
        response.headers["location"].to_str().unwrap(),
        format!("https://{}//elsewhere.example/a?x=1", port_client.host)
    );
    let cookie = response.headers["set-cookie"].to_str().unwrap();
    let (pair, rest) = cookie.split_once("; ").unwrap();
    assert_eq!(pair, format!("__Host-sandbox-token={own}"));
    for part in ["Path=/", "HttpOnly", "Secure", "SameSite=Lax", "Max-Age=3"] {
        assert!(rest.contains(part), "{cookie}");
    }
    assert_eq!(port_client.send(ask("/", &[("cookie", pair)])).await.status, 200);
    assert_eq!(port_client.send(ask(&format!("/?sandbox_token={own}"), &[])).await.text(), "it is port 8080");
    // Browsers get an HTML error page.
    let response = port_client.send(ask("/", &page)).await;
    assert_eq!(
        (response.status, response.headers["content-type"].to_str().unwrap()),
        (401, "text/html; charset=utf-8")
    );
    assert!(response.text().contains("UNAUTHORIZED") && response.headers["cache-control"] == "no-store");
}

#[tokio::test]
async fn a_cookie_is_not_accepted_from_other_origins() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    let cookie = format!("__Host-sandbox-token={}", port_client.token.clone().unwrap());
    let port_client = port_client.without_token();
    let status_from = async |from: &[(&'static str, &str)]| {
        let mut request = port_client.request("GET", "/");
        for (name, value) in [("cookie", cookie.as_str())].iter().chain(from) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        port_client.send(request).await.status
    };
    let own = format!("https://{}", port_client.host);
    assert_eq!(status_from(&[("origin", &own), ("sec-fetch-site", "same-origin")]).await, 200);
    assert_eq!(status_from(&[("origin", "https://9090-sb-another.sandboxes.localhost")]).await, 401);
    assert_eq!(status_from(&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")]).await, 401);
}

#[tokio::test]
async fn missing_programs_and_ports_are_reported() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let port = expose(&client, &id, &json!({ "port": 8081, "visibility": "public" })).await;
    let port_client = PortClient { service: service.clone(), host: host_of(&port), token: None };
    let response = port_client.get("/").await;
    assert_eq!((response.status, response.code().as_str()), (502, "PORT_UNREACHABLE"));
    assert!(response.text().contains("nothing listens on port 8081"), "{}", response.text());
    let name = id.replace('_', "-");
    for label in
        [&format!("8082-{name}"), &format!("08081-{name}"), "8081-sb-00000000000000000000", "nothing"]
    {
        let port_client = PortClient { host: format!("{label}.sandboxes.localhost"), ..port_client.clone() };
        let response = port_client.get("/v1/health").await;
        assert_eq!((response.status, response.code().as_str()), (404, "PORT_NOT_FOUND"), "{label}");
    }
    // It works as soon as a program listens.
    listen(&client, &id, 8081).await;
    assert_eq!(port_client.get("/").await.status, 200);
}

#[tokio::test]
async fn websockets_are_relayed_until_both_ends_close() {
    let (service, client) = user().await;
    let (_id, port_client) = open_port(&service, &client).await;
    let mut socket = port_client.websocket().await;
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
    // Bytes sent before the handshake response are not lost.
    let mut eager = port_client.raw(&format!("{}ahead", port_client.handshake())).await;
    assert!(read_head(&mut eager).await.unwrap().starts_with("HTTP/1.1 101 "));
    expect(&mut eager, b"helloahead").await;
    // A program may refuse the upgrade with an ordinary response.
    let refused = port_client.handshake().replace("GET /ws ", "GET /status?403 ");
    let mut plain = port_client.raw(&refused).await;
    assert!(read_head(&mut plain).await.unwrap().starts_with("HTTP/1.1 403 "));
    // Upgrades to other protocols are not forwarded.
    let h2c = port_client.handshake().replace("Upgrade: websocket", "Upgrade: h2c").replace("/ws", "/head");
    let mut h2c = port_client.raw(&h2c).await;
    assert!(read_head(&mut h2c).await.unwrap().starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn event_streams_are_relayed_live_and_end_with_their_reader() {
    let (service, client) = user().await;
    let (id, port_client) = open_port(&service, &client).await;
    let response = port_client.begin(port_client.request("GET", "/sse")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut received = String::new();
    while !received.contains("data: 5\n") {
        let frame = body.frame().await.unwrap().unwrap();
        received.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
    }
    let serving = async || output(&client, &id, "pgrep -fc 'portal.p[l]' || true").await;
    assert_eq!(serving().await, "2\n");
    drop(body);
    wait_until("the program's connection has ended", async || serving().await == "1\n").await;
}

#[tokio::test]
async fn large_bodies_use_bounded_memory() {
    const BYTES: u64 = 300_000_000;
    let service =
        std::sync::Arc::new(Service::start(&e2e::service::ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (_id, port_client) = open_port(&service, &client).await;
    let before = service.resident_kb().unwrap();
    // A download with a reader that stops for a while.
    let mut body = port_client.begin(port_client.request("GET", &format!("/big?{BYTES}"))).await.into_body();
    let (mut got, mut rested) = (0, false);
    while let Some(frame) = body.frame().await {
        got += frame.unwrap().data_ref().unwrap().len() as u64;
        if got > BYTES / 3 && !rested {
            rested = true;
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(service.resident_kb().unwrap() < before + 64 * 1024);
        }
    }
    assert_eq!(got, BYTES);
    // Upload and download at the same time, without known length.
    let piece = Bytes::from(vec![b'x'; 60_000]);
    let pieces = futures_util::stream::iter(
        (0..2000).map(move |_| Ok::<_, std::io::Error>(Frame::data(piece.clone()))),
    );
    let stream = service.tls(&port_client.host, &["http/1.1"]).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = port_client.request("POST", "/echo").map(|_| ());
    let request: Request<_> = request.map(|()| StreamBody::new(pieces));
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut got = 0;
    while let Some(frame) = body.frame().await {
        got += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(got, 2000 * 60_000);
    assert!(
        service.resident_kb().unwrap() < before + 64 * 1024,
        "{} kB after {before} kB",
        service.resident_kb().unwrap()
    );
}

#[tokio::test]
async fn many_concurrent_websockets_work() {
    const COUNT: usize = 60;
    let (service, client) = user().await;
    let (id, port_client) = open_port(&service, &client).await;
    let mut sockets = futures_util::future::join_all((0..COUNT).map(|_| port_client.websocket())).await;
    assert_eq!(output(&client, &id, "pgrep -fc 'portal.p[l]'").await, format!("{}\n", COUNT + 1));
    // All send more than their share of the link concurrently.
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
    wait_until("all connections have ended", async || {
        output(&client, &id, "pgrep -fc 'portal.p[l]'").await == "1\n"
    })
    .await;
}

#[tokio::test]
async fn a_shutdown_ends_streams_through_ports() {
    let service =
        std::sync::Arc::new(Service::start(&e2e::service::ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (_id, port_client) = open_port(&service, &client).await;
    let mut socket = port_client.websocket().await;
    let mut events = port_client.begin(port_client.request("GET", "/sse")).await.into_body();
    events.frame().await.unwrap().unwrap();
    let begun = Instant::now();
    service.signal(rustix::process::Signal::TERM).unwrap();
    assert!(service.wait_for_exit(Duration::from_secs(60)).await.unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(25), "the shutdown waited for streams");
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest).await;
    while let Some(Ok(_)) = events.frame().await {}
}
