//! For malformed input, each response is from the router or from [`Answers`](listen::Answers), not a bare status
//! line.

use crate::kit::*;

fn get(extra: &str) -> String {
    format!("GET /hello HTTP/1.1\r\nHost: a\r\n{extra}\r\n")
}

fn bad_requests() -> Vec<(Vec<u8>, u16)> {
    let mut rows: Vec<(Vec<u8>, u16)> = [
        "hello\r\n\r\n",
        "\0\0\0\0",
        "GET\r\n\r\n",
        "GET /hello\r\n\r\n",
        "GET /hello HTTP/2.0\r\n\r\n",
        "GET /hello HTTP/1.2\r\n\r\n",
        "GET /hello HTTP/9\r\n\r\n",
        "GET /hello http/1.1\r\nHost: a\r\n\r\n",
        "G(T /hello HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET hello HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET example.com:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: \r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]
    .iter()
    .map(|text| (text.as_bytes().to_vec(), 400))
    .collect();
    let extras = [
        "no colon\r\n",
        ": no name\r\n",
        "na me: x\r\n",
        "name : x\r\n",
        " folded: x\r\n",
        "a: b\r\n folded\r\n",
        "a: b\0c\r\n",
        "a: b\rc\r\n",
        "Content-Length: x\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
    ];
    rows.extend(extras.iter().map(|extra| (get(extra).into_bytes(), 400)));
    rows.push((get(&"a: b\r\n".repeat(100)).into_bytes(), 431));
    rows.push((get(&format!("a: {}\r\n", "x".repeat(33_000))).into_bytes(), 431));
    rows.push((get(&format!("{}: x\r\n", "x".repeat(33_000))).into_bytes(), 431));
    rows.push((format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(33_000)).into_bytes(), 414));
    // Endless: the limit ends it.
    rows.push((vec![b'x'; 1_000_000], 414));
    rows.push((get(&"a: b\r\n".repeat(99_999)).into_bytes(), 431));
    rows
}

#[tokio::test]
async fn each_refusal_has_an_error_body() {
    for kind in [Kind::Http, Kind::Https] {
        let server = start(kind).await;
        for (bytes, status) in bad_requests() {
            let short = bytes[..bytes.len().min(80)].escape_ascii().to_string();
            let answers = exchange_http1(&server, &bytes).await;
            assert_eq!(answers.len(), 1, "{short}");
            assert_eq!(answers[0].header("connection"), Some("close"), "{short}");
            println!("{short}: {}", answers[0].body);
            assert_error(&answers[0], status);
        }
    }
}

#[tokio::test]
async fn a_refusal_follows_the_earlier_responses() {
    let server = start(Kind::Http).await;
    for (bytes, status) in bad_requests().into_iter().filter(|(bytes, _)| bytes.len() < 50_000) {
        let mut all = get("").into_bytes();
        all.extend_from_slice(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        );
        all.extend_from_slice(&bytes);
        let answers = exchange_http1(&server, &all).await;
        assert_eq!(answers.len(), 3, "{}", bytes.escape_ascii());
        assert_eq!((answers[0].body.as_str(), answers[1].body.as_str()), ("hello", "1 bytes"));
        assert_error(&answers[2], status);
    }
}

#[tokio::test]
async fn a_truncated_head_is_refused() {
    let server = start(Kind::Http).await;
    for half in ["G", "GET /hello HTTP/1.1\r\nHost: a\r\n", "PRI * HTTP/2.0\r\n"] {
        let mut stream = server.tcp().await;
        send(&mut stream, half).await;
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        let answers = answers(&read_to_end(&mut stream).await, Bodies::Inline);
        assert_eq!(answers.len(), 1);
        assert_error(&answers[0], 400);
    }
}

#[tokio::test]
async fn the_request_id_of_the_client_is_used() {
    let server = start(Kind::Http).await;
    let answers = exchange_http1(&server, "GET /hello HTTP/1.1\r\nX-Request-Id: mine-1\r\n\r\n").await;
    assert_error(&answers[0], 400);
    assert_eq!(answers[0].header("x-request-id"), Some("mine-1"));
}

#[tokio::test]
async fn the_refusal_of_a_head_request_has_no_body() {
    let server = start(Kind::Http).await;
    let mut stream = server.tcp().await;
    send(&mut stream, "HEAD /hello HTTP/1.1\r\n\r\n").await;
    let bytes = read_to_end(&mut stream).await;
    let answers = answers(&bytes, Bodies::Apart);
    assert!(bytes.ends_with(b"\r\n\r\n") && answers.len() == 1);
    assert_eq!(answers[0].status, 400);
}

#[tokio::test]
async fn heads_at_the_limit_pass() {
    let server = start(Kind::Http).await;
    let frame = get("a: \r\n").len();
    let just = get(&format!("a: {}\r\n", "x".repeat(32 * 1024 - frame)));
    assert_eq!(just.len(), 32 * 1024);
    let mut stream = server.tcp().await;
    send(&mut stream, &just).await;
    assert_eq!(read_response(&mut stream).await.status, 200);
    send(&mut stream, get(&"a: b\r\n".repeat(99))).await;
    assert_eq!(read_response(&mut stream).await.status, 200);
    let over = get(&format!("a: {}\r\n", "x".repeat(32 * 1024 - frame + 1)));
    send(&mut stream, &over).await;
    assert_error(&read_response(&mut stream).await, 431);
}

#[tokio::test]
async fn invalid_chunks_are_answered_by_the_router() {
    let server = start(Kind::Http).await;
    let rows = [
        "x\r\n",
        "5\r\nhelloX\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "5\r\nhel",
        "0\r\nno colon\n\r\n",
        "1\nx\n0\n\n",
    ];
    for body in rows {
        let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut stream = server.tcp().await;
        send(&mut stream, format!("{head}{body}")).await;
        if body == "5\r\nhel" {
            // Still valid; the end of the connection truncates it.
            continue;
        }
        let answers = answers(&read_to_end(&mut stream).await, Bodies::Inline);
        assert_eq!(answers.len(), 1, "{body:?}");
        assert_error(&answers[0], 400);
    }
    let flood = format!("0\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    let answers = exchange_http1(
        &server,
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{flood}"),
    )
    .await;
    assert_error(&answers[0], 400);
    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(100_000));
    let answers = exchange_http1(
        &server,
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{extension}"),
    )
    .await;
    assert_error(&answers[0], 400);
}

#[tokio::test]
async fn large_heads_over_http_2_get_an_error_body() {
    let server = start(Kind::Https).await;
    let (mut client, _task) = http2(&server, &h2::client::Builder::new()).await;
    let mut many = request("GET", "/hello");
    for number in 0..101 {
        many.headers_mut().insert(
            axum::http::HeaderName::from_bytes(format!("h{number}").as_bytes()).unwrap(),
            "x".parse().unwrap(),
        );
    }
    many.headers_mut().insert("x-request-id", "mine-2".parse().unwrap());
    let answer = exchange(&mut client, many).await;
    assert_error(&answer, 431);
    assert_eq!(answer.header("x-request-id"), Some("mine-2"));
    let mut head = request("HEAD", "/hello");
    head.headers_mut().insert("x", "x".repeat(33_000).parse().unwrap());
    let answer = exchange(&mut client, head).await;
    assert_eq!((answer.status, answer.body.as_str()), (431, ""));
    for size in [33_000, 100_000, 200_000] {
        let mut large = request("GET", "/hello");
        large.headers_mut().insert("x", "x".repeat(size).parse().unwrap());
        assert_error(&exchange(&mut client, large).await, 431);
    }
    assert_error(&exchange(&mut client, request("GET", &format!("/{}", "x".repeat(33_000)))).await, 414);
    // The connection still works.
    assert_eq!(exchange(&mut client, request("GET", "/hello")).await.body, "hello");
}

/// A deterministic random generator, so that failures can be reproduced.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }
}

#[tokio::test]
async fn hyper_never_responds_on_its_own() {
    let server = Start::new(Kind::Http)
        .limits(|it| it.linger_timeout = std::time::Duration::from_millis(200))
        .go()
        .await;
    let seeds = [
        "GET /hello?a=b#c HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\nX-Request-Id: z\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET http://a/hello HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nUpgrade: h2c\r\n\r\n",
    ];
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let (mut ours, mut routers) = (0, 0);
    for round in 0..3000 {
        let mut bytes = seeds[dice.roll(seeds.len())].as_bytes().to_vec();
        for _ in 0..=dice.roll(3) {
            let at = dice.roll(bytes.len().max(1));
            if bytes.is_empty() {
                bytes.push(b'x');
            }
            match dice.roll(5) {
                0 => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"\r\n\0 :/\t%\xff{"[dice.roll(10)]),
                3 => bytes.truncate(at.max(1)),
                _ => bytes.extend_from_slice(&seeds[dice.roll(seeds.len())].as_bytes()[..20]),
            }
        }
        let mut stream = server.tcp().await;
        send(&mut stream, &bytes).await;
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        let read = read_to_end(&mut stream).await;
        let text = bytes.escape_ascii();
        for answer in answers(&read, Bodies::Inline) {
            if answer.status == 100 {
                continue;
            }
            let id = answer
                .header("x-request-id")
                .unwrap_or_else(|| panic!("round {round}, a bare answer to {text}: {answer:?}"));
            if id == "router" { routers += 1 } else { ours += 1 }
        }
    }
    println!("{ours} answers of ours, {routers} of the router");
    assert!(ours > 500 && routers > 500, "{ours} {routers}");
}
