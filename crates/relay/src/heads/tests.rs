use super::*;

fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri("https://h.example:8443/a?b=c");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap().into_parts().0
}

fn forwarded() -> Forwarded {
    Forwarded {
        client: "192.0.2.7".into(),
        scheme: "https".into(),
        host: "80-sb-x.example:8443".into(),
        masked_host: None,
    }
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn hop_by_hop_headers_are_not_forwarded() {
    let asked = parts(
        "POST",
        &[
            ("connection", "keep-alive, X-Secret, host"),
            ("connection", "x-forwarded-for, content-length"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("content-length", "7"),
            ("proxy-authorization", "Basic x"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("host", "elsewhere"),
            ("x-own", "kept"),
        ],
    );
    let request = to_program(asked, Body::from("hello"), &forwarded(), false);
    let headers = request.headers();
    assert_eq!(
        names(headers),
        [
            "connection",
            "content-length",
            "host",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-own"
        ]
    );
    assert_eq!(
        (headers[HOST].to_str().unwrap(), &headers[CONTENT_LENGTH]),
        ("80-sb-x.example:8443", &HeaderValue::from(5))
    );
    assert!(headers[CONNECTION] == "close" && headers[FORWARDED_FOR] == "192.0.2.7");
    assert_eq!((request.uri().to_string().as_str(), request.version()), ("/a?b=c", Version::HTTP_11));
}

#[test]
fn forwarding_headers_of_several_lines_are_one_list() {
    let mut headers = HeaderMap::new();
    let mut say = |value: &[u8]| {
        headers.append(FORWARDED_FOR, HeaderValue::from_bytes(value).unwrap());
        [None, Some(&headers)].map(|trusted| forwarded_for(trusted, "10.0.0.9"))
    };
    assert_eq!(say(b"192.0.2.1"), ["10.0.0.9", "192.0.2.1, 10.0.0.9"]);
    assert_eq!(say(b"10.0.0.1, 10.0.0.2 "), ["10.0.0.9", "192.0.2.1, 10.0.0.1, 10.0.0.2, 10.0.0.9"]);
    assert_eq!(say(b"")[1], "192.0.2.1, 10.0.0.1, 10.0.0.2, 10.0.0.9");
    assert_eq!(say(b"\xff")[1], "10.0.0.9");
    assert_eq!(say(b"192.0.2.8")[1], "192.0.2.8, 10.0.0.9");
}

#[test]
fn a_request_without_a_body_gets_none() {
    for (method, length) in [("GET", None), ("HEAD", None), ("POST", Some("0")), ("DELETE", Some("0"))] {
        let request = to_program(parts(method, &[]), Body::empty(), &forwarded(), false);
        assert_eq!(request.headers().get(CONTENT_LENGTH).map(|it| it.to_str().unwrap()), length, "{method}");
    }
}

#[test]
fn a_body_without_a_length_comes_in_chunks_with_any_method() {
    for method in ["GET", "POST"] {
        let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("piece")]);
        let request = to_program(parts(method, &[]), Body::from_stream(pieces), &forwarded(), false);
        assert_eq!(request.headers()[TRANSFER_ENCODING], "chunked", "{method}");
        assert!(!request.headers().contains_key(CONTENT_LENGTH));
    }
}

#[test]
fn websockets_alone_are_passed_on() {
    let socket =
        [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-key", "k")];
    assert!(asks_for_websocket(&parts("GET", &socket)));
    assert!(!asks_for_websocket(&parts("POST", &socket)));
    assert!(!asks_for_websocket(&parts("GET", &socket[..1])));
    assert!(!asks_for_websocket(&parts("GET", &socket[1..])));
    for other in ["h2c", "websocket, h2c", "tls"] {
        assert!(!asks_for_websocket(&parts("GET", &[socket[0], ("upgrade", other)])), "{other}");
    }
    assert!(!asks_for_websocket(&parts("GET", &[socket[0], socket[1], ("upgrade", "h2c")])));
    let request = to_program(parts("GET", &socket), Body::empty(), &forwarded(), true);
    assert!(request.headers()[CONNECTION] == "upgrade" && request.headers()[UPGRADE] == "websocket");
    assert_eq!(request.headers()["sec-websocket-key"], "k");
}

fn answered(status: u16, headers: &[(&str, &str)], to_head: bool) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    to_client(response.body(()).unwrap().into_parts().0, to_head)
}

#[test]
fn framing_is_never_copied() {
    let framed = [
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("connection", "close, x-inner"),
        ("x-inner", "1"),
    ];
    assert!(answered(200, &framed, false).headers().is_empty());
    for (status, to_head) in [(200, true), (304, false)] {
        assert_eq!(answered(status, &framed, to_head).headers()[CONTENT_LENGTH], "5");
    }
    assert!(answered(200, &[("content-length", "5, 5")], true).headers().is_empty());
}

#[test]
fn cookies_are_for_the_programs_own_host() {
    let set = [
        ("set-cookie", "a=1; Path=/; HttpOnly"),
        ("set-cookie", "b=2; domain=example"),
        ("set-cookie", "__Host-sandbox-token=spt_x; Path=/; Secure"),
        ("set-cookie", "Sandbox-Token=spt_x"),
        ("set-cookie", "domain=1"),
    ];
    let answer = answered(200, &set, false);
    assert_eq!(
        answer.headers().get_all(SET_COOKIE).iter().collect::<Vec<_>>(),
        ["a=1; Path=/; HttpOnly", "domain=1"]
    );
}
