//! Valid use: both protocol versions, keep-alive, pipelining.

use std::sync::atomic::Ordering;

use crate::kit::*;

const HELLO: &str = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn http_1_and_2_over_tls() {
    let server = start(Kind::Https).await;
    let mut old = server.tls(&["http/1.1"]).await;
    send(&mut old, HELLO).await;
    assert_eq!(read_response(&mut old).await.body, "hello");
    let (mut new, _task) = http2(&server, &h2::client::Builder::new()).await;
    let answer = exchange(&mut new, request("GET", "/hello")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    // With both offered, the newer one is used.
    let both = server.tls(&["http/1.1", "h2"]).await;
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

/// A connection without ALPN.
async fn unagreed(server: &Running) -> Box<dyn Stream> {
    if server.tls.is_some() { Box::new(server.tls(&[]).await) } else { Box::new(server.tcp().await) }
}

#[tokio::test]
async fn without_alpn_the_first_bytes_decide() {
    for kind in [Kind::Https, Kind::Http] {
        let server = start(kind).await;
        let mut old = unagreed(&server).await;
        send(&mut old, HELLO).await;
        assert_eq!(read_response(&mut old).await.body, "hello");
        let (client, connection) = h2::client::handshake(unagreed(&server).await).await.unwrap();
        let task = tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
        drop(client);
        in_time("the end", task).await.unwrap().unwrap();
        // Begins like the preface of HTTP/2.
        let mut odd = unagreed(&server).await;
        send(&mut odd, "PR").await;
        send(&mut odd, "OPFIND /hello HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(read_response(&mut odd).await.status, 405);
    }
}

#[tokio::test]
async fn the_address_of_the_client_is_known() {
    let server = start(Kind::Https).await;
    let mut stream = server.tls(&["http/1.1"]).await;
    let address = stream.get_ref().0.local_addr().unwrap().to_string();
    send(&mut stream, "GET /peer HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(read_response(&mut stream).await.body, address);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(Kind::Http).await;
    let ahead = [
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7;x=y\r\nGET / H\r\n3\r\n\r\n\r\r\n0\r\nTrailer: x\r\n\r\n",
        "\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ];
    let all = ahead.concat();
    for step in [1, 2, 7, 100, all.len()] {
        let mut stream = server.tcp().await;
        stream.set_nodelay(true).unwrap();
        for piece in all.as_bytes().chunks(step) {
            send(&mut stream, piece).await;
        }
        let answers = answers(&read_to_end(&mut stream).await, Bodies::Inline);
        let bodies: Vec<_> = answers.iter().map(|it| it.body.as_str()).collect();
        assert_eq!(bodies, ["5 bytes", "10 bytes", "hello", "0 bytes"], "in pieces of {step}");
    }
}

#[tokio::test]
async fn more_pipelined_requests_than_the_buffer_holds_are_answered() {
    let server = start(Kind::Http).await;
    let stream = server.tcp().await;
    let (mut reading, mut writing) = stream.into_split();
    let count = 5000;
    let writer = tokio::spawn(async move {
        send(&mut writing, HELLO.repeat(count)).await;
        writing
    });
    for _ in 0..count {
        assert_eq!(read_response(&mut reading).await.body, "hello");
    }
    drop(in_time("the writer", writer).await);
}

#[tokio::test]
async fn http_1_0_clients_are_served() {
    let server = start(Kind::Http).await;
    let answers = exchange_http1(&server, "GET /hello HTTP/1.0\r\n\r\n").await;
    assert_eq!((answers.len(), answers[0].body.as_str()), (1, "hello"));
    let mut kept = server.tcp().await;
    for _ in 0..2 {
        send(&mut kept, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(read_response(&mut kept).await.body, "hello");
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let server = start(Kind::Http).await;
    let mut stream = server.tcp().await;
    send(&mut stream, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(read_response(&mut stream).await.status, 100);
    send(&mut stream, "abc").await;
    assert_eq!(read_response(&mut stream).await.body, "3 bytes");
}

#[tokio::test]
async fn a_disconnect_cancels_the_request() {
    let server = start(Kind::Https).await;
    let mut stream = server.tls(&["http/1.1"]).await;
    send(&mut stream, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").await;
    server.inside.until("a request inside", |it| it.held.load(Ordering::SeqCst) == 1).await;
    drop(stream);
    server.inside.until("its end", |it| it.dropped.load(Ordering::SeqCst) == 1).await;

    let (mut client, task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _) = client.send_request(request("GET", "/hold"), true).unwrap();
    server.inside.until("a request inside", |it| it.held.load(Ordering::SeqCst) == 2).await;
    drop(response);
    server.inside.until("its end", |it| it.dropped.load(Ordering::SeqCst) == 2).await;
    task.abort();
}

#[tokio::test]
async fn a_refused_upload_gets_its_response() {
    const LENGTH: usize = 100 * 1024 * 1024;
    for kind in [Kind::Http, Kind::Https] {
        let server = start(kind).await;
        let mut stream = server.connect().await;
        send(&mut stream, format!("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n"))
            .await;
        let piece = vec![0; 1024 * 1024];
        // A client that sends everything before it reads; the connection may be closed meanwhile.
        let whole = async {
            for _ in 0..LENGTH / piece.len() {
                tokio::io::AsyncWriteExt::write_all(&mut stream, &piece).await?;
            }
            std::io::Result::Ok(())
        };
        in_time("the upload", whole).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 413);
    }
}

#[tokio::test]
async fn streams_are_fast() {
    const MIB: usize = 128;
    let server = start(Kind::Https).await;
    let begun = std::time::Instant::now();
    let mut stream = server.tls(&["http/1.1"]).await;
    send(&mut stream, format!("GET /big?{MIB} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
    assert!(read_to_end(&mut stream).await.len() > MIB << 20);
    let old = begun.elapsed();
    let begun = std::time::Instant::now();
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, _) = client.send_request(request("GET", &format!("/big?{MIB}")), true).unwrap();
    let body = in_time("an answer", response).await.unwrap().into_body();
    assert_eq!(collect(body).await.unwrap().len(), MIB << 20);
    let new = begun.elapsed();
    println!("{MIB} MiB over TLS: HTTP/1.1 {old:?}, HTTP/2 {new:?}");
    // The required rate is 10 MB/s; the machine may be busy.
    assert!(old.as_secs() < 12 && new.as_secs() < 12, "{old:?} {new:?}");
}

/// Many clients read the response only after they have sent everything, and treat a reset stream as a connection
/// error.
#[tokio::test]
async fn an_unread_request_body_is_discarded() {
    let server = start(Kind::Https).await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let (response, mut sending) = client.send_request(request("POST", "/refuse"), false).unwrap();
    assert_eq!(in_time("an answer", response).await.unwrap().status(), 413);
    for last in [false, false, true] {
        let mut piece = bytes::Bytes::from(vec![b'x'; 1_000_000]);
        while !piece.is_empty() {
            sending.reserve_capacity(piece.len());
            let room = in_time("room", std::future::poll_fn(|cx| sending.poll_capacity(cx))).await;
            let room = room.expect("the stream was cut").unwrap().min(piece.len());
            let part = piece.split_to(room);
            sending.send_data(part, last && piece.is_empty()).unwrap();
        }
    }
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
}

/// The bytes before the failure are delivered, and the response is visibly truncated.
#[tokio::test]
async fn the_start_of_a_broken_response_is_delivered() {
    let server = start(Kind::Https).await;
    for _ in 0..20 {
        let mut stream = server.tls(&["http/1.1"]).await;
        send(&mut stream, "GET /broken HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let response = String::from_utf8(read_to_end(&mut stream).await).unwrap();
        assert!(
            response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n5\r\nbegun\r\n"),
            "{response:?}"
        );
    }
}
