//! Accepted, partial and refused heads. The tests over sockets have the full table of refusals.

use super::*;

const LIMIT: usize = 1000;

fn check_text(text: &str) -> Result<HeadVerdict, RefusedHead> {
    check(text.as_bytes(), LIMIT, HostRule::Required)
}

#[test]
fn the_framing_is_parsed() {
    let rows = [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Framing::Length(0)),
        ("GET / HTTP/1.0\r\n\r\n", Framing::Length(0)),
        ("OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", Framing::Length(0)),
        ("GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", Framing::Length(0)),
        (
            "POST / HTTP/1.1\r\nhost: a:1\r\ncontent-length: 18446744073709551613\r\n\r\n",
            Framing::Length(u64::MAX - 2),
        ),
        ("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: Chunked\n\n", Framing::Chunked),
    ];
    for (text, framing) in rows {
        assert_eq!(check_text(text), Ok(HeadVerdict::Whole { bytes: text.len(), framing }), "{text:?}");
        let ahead = format!("{text}GET /next");
        assert_eq!(check_text(&ahead), Ok(HeadVerdict::Whole { bytes: text.len(), framing }), "{ahead:?}");
        for length in 0..text.len() {
            assert_eq!(check_text(&text[..length]), Ok(HeadVerdict::Partial), "{:?}", &text[..length]);
        }
    }
}

#[test]
fn a_refusal_names_the_error() {
    let refusal = check_text("HEAD / HTTP/1.1\r\nX-Request-Id: me\r\n\r\n").unwrap_err();
    assert_eq!(refusal.fault, Fault::Malformed("the Host header is missing"));
    assert_eq!(refusal.request_id.unwrap(), "me");
    assert!(refusal.bodiless);
    assert_eq!(
        check(b"GET / HTTP/1.1\r\n\r\n", LIMIT, HostRule::Any),
        Ok(HeadVerdict::Whole { bytes: 18, framing: Framing::Length(0) })
    );
}

#[test]
fn the_limit_is_exact() {
    let frame = "GET / HTTP/1.1\r\nHost: a\r\nb: \r\n\r\n".len();
    let of = |value: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nb: {}\r\n\r\n", "x".repeat(value));
    assert!(check_text(&of(LIMIT - frame)).is_ok());
    assert_eq!(check_text(&of(LIMIT - frame + 1)).unwrap_err().fault, Fault::HeadTooLong { limit: LIMIT });
    assert_eq!(check_text(&of(2 * LIMIT)).unwrap_err().fault, Fault::HeadTooLong { limit: LIMIT });
    let target = format!("GET /{}", "x".repeat(LIMIT));
    assert_eq!(check_text(&target).unwrap_err().fault, Fault::TargetTooLong { limit: LIMIT });
}
