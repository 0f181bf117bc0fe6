//! Compares how hyper handles a connection's bytes with and without the head filter. Both parse heads and chunks, so they
//! must agree where a request ends: a test lists the rules of the head filter, and a fuzz target
//! (`fuzz/fuzz_targets/http1.rs`) searches for disagreements. See docs/adr/0015-heads-are-checked-before-hyper.md.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use axum::body::Body;
use hyper::body::{Body as HttpBody, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{HeadFilter, HostRule, RefusedHead};
use crate::activity::{Activity, InFlight};
use crate::settings::Limits;

/// Part of `max_buf_size`, as in `connection::http1`.
const SPARE_BYTES: usize = 8 * 1024;

/// A request as a handler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub version: Version,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub end: BodyEnd,
}

/// How far a request's body was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    Complete,
    /// More bytes are expected.
    Waiting,
    Broken,
}

/// The result of a connection.
#[derive(Debug)]
pub struct ConnectionOutcome {
    pub requests: Vec<Seen>,
    /// The bytes that hyper wrote. Handlers respond only with `200`: other statuses are hyper's own.
    pub written: Vec<u8>,
    /// The head filter refused a head.
    pub refused: bool,
}

impl ConnectionOutcome {
    /// Whether hyper answered on its own, with a bare status line.
    pub fn hyper_answered(&self) -> bool {
        let starts = |at: usize| self.written[at..].starts_with(b"HTTP/1.");
        (0..self.written.len())
            .filter(|at| starts(*at))
            .any(|at| !matches!(self.written.get(at + 9), Some(b'1' | b'2')))
    }
}

/// Sends `bytes` in pieces of `piece` bytes, and keeps the connection open.
pub fn run(bytes: &[u8], piece: usize, filtered: bool) -> ConnectionOutcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    // Without a runtime there is nothing to compare.
    let Ok(runtime) = runtime else {
        return ConnectionOutcome { requests: Vec::new(), written: Vec::new(), refused: false };
    };
    let _entered = runtime.enter();
    let input = bytes.chunks(piece.max(1)).map(<[u8]>::to_vec).collect();
    let wire = Script { input, written: Vec::new() };
    let (limits, activity) = (Arc::new(Limits::default()), Activity::new());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(limits.max_head_bytes + SPARE_BYTES);
    let (seen, counted) = (Arc::clone(&requests), Arc::clone(&activity));
    let service = service_fn(move |request| Box::pin(answer(request, Arc::clone(&seen), counted.begin())));
    let (written, refused) = if filtered {
        let filter = HeadFilter::new(wire, activity, limits, HostRule::Required);
        let mut connection = builder.serve_connection(TokioIo::new(filter), service);
        drive(|cx| connection.poll_without_shutdown(cx).is_ready());
        let rest = connection.into_parts().io.into_inner().into_rest();
        let refusal: Option<RefusedHead> = rest.refusal;
        (rest.wire.written, refusal.is_some())
    } else {
        let mut connection = builder.serve_connection(TokioIo::new(wire), service);
        drive(|cx| connection.poll_without_shutdown(cx).is_ready());
        (connection.into_parts().io.into_inner().written, false)
    };
    let requests = requests.lock().map(|requests| requests.clone()).unwrap_or_default();
    ConnectionOutcome { requests, written, refused }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Seen>>>,
    _in_flight: InFlight,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    let (method, target) = (parts.method.to_string(), parts.uri.to_string());
    let index = seen.lock().map_or(0, |mut seen| {
        seen.push(Seen {
            method,
            target,
            version: parts.version,
            headers: headers.collect(),
            body: Vec::new(),
            end: BodyEnd::Waiting,
        });
        seen.len() - 1
    });
    let mut body = pin!(body);
    let end = loop {
        match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if let Ok(mut seen) = seen.lock() {
                    seen[index].body.extend_from_slice(&data);
                }
            }
            Some(Err(_)) => break BodyEnd::Broken,
            None => break BodyEnd::Complete,
        }
    };
    if let Ok(mut seen) = seen.lock() {
        seen[index].end = end;
    }
    Ok(Response::new(Body::empty()))
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls until it is ready or pending without a wake-up.
fn drive(mut poll: impl FnMut(&mut Context<'_>) -> bool) {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    while woken.0.swap(false, Ordering::SeqCst) {
        if poll(&mut cx) {
            return;
        }
    }
}

/// A connection whose client sends the input and then waits.
struct Script {
    input: VecDeque<Vec<u8>>,
    written: Vec<u8>,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(piece) = self.input.front_mut() else { return Poll::Pending };
        let count = piece.len().min(out.remaining());
        out.put_slice(&piece[..count]);
        piece.drain(..count);
        if piece.is_empty() {
            self.input.pop_front();
        }
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Panics if the head filter and hyper disagree about a request, or if hyper responds on its own behind the head filter.
pub fn compare(bytes: &[u8], piece: usize) {
    let (alone, filtered) = (run(bytes, bytes.len(), false), run(bytes, piece, true));
    assert!(!filtered.hyper_answered(), "hyper answered on its own: {}", filtered.written.escape_ascii());
    assert!(
        filtered.requests.len() <= alone.requests.len(),
        "a request that hyper does not see: {filtered:?}, {alone:?}"
    );
    let last = filtered.requests.len().saturating_sub(1);
    for (index, (filtered, alone)) in filtered.requests.iter().zip(&alone.requests).enumerate() {
        let head = |seen: &Seen| Seen { body: Vec::new(), end: BodyEnd::Waiting, ..seen.clone() };
        assert_eq!(head(filtered), head(alone), "request {index} differs");
        if filtered.end == BodyEnd::Complete || index < last {
            assert_eq!(filtered, alone, "the body of request {index} differs");
        } else {
            assert!(
                alone.body.starts_with(&filtered.body),
                "the body of request {index} differs: {filtered:?}, {alone:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of one request and the next one.
    fn fate(outcome: &ConnectionOutcome) -> &'static str {
        match (outcome.requests.as_slice(), outcome.refused, outcome.hyper_answered()) {
            ([], true, false) => "refused with an error body",
            ([], false, true) => "bare status",
            ([], false, false) => "nothing",
            ([one], _, bare) if one.end == BodyEnd::Waiting => {
                if bare {
                    "waits, bare status"
                } else {
                    "waits"
                }
            }
            ([one], _, _) if one.end == BodyEnd::Broken => "broken body",
            ([_], true, false) => "served, then refused",
            ([_], false, true) => "served, then bare status",
            ([_], false, false) => "served",
            ([_, _], _, _) => "served twice",
            _ => "else",
        }
    }

    /// Each rule of the head filter: a head, what hyper does with it alone, and what happens behind the head filter.
    #[test]
    fn what_the_filter_adds_to_hyper() {
        const BARE: &str = "bare status";
        const ERROR_BODY: &str = "refused with an error body";
        let head = |extra: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{extra}\r\n");
        let many = "a: b\r\n".repeat(100);
        let long = format!("a: {}\r\n", "x".repeat(40_000));
        let medium = format!("a: {}\r\n", "x".repeat(33_000));
        let chunked = |body: &str| head("Transfer-Encoding: chunked\r\n") + body;
        let rows: Vec<(&str, String, &str, &str)> = vec![
            ("a complete request", head("Content-Length: 0\r\n"), "served", "served"),
            ("no HTTP", "hello\r\n\r\n".into(), BARE, ERROR_BODY),
            ("bare LF", "GET / HTTP/1.1\nHost: a\n\n".into(), "served", "served"),
            ("obs-fold", head("a: b\r\n c\r\n"), BARE, ERROR_BODY),
            ("space before the colon", head("a : b\r\n"), BARE, ERROR_BODY),
            ("a header without a colon", head("a\r\n"), BARE, ERROR_BODY),
            ("a control character", head("a: b\u{1}c\r\n"), BARE, ERROR_BODY),
            ("no Host", "GET / HTTP/1.1\r\n\r\n".into(), "served", ERROR_BODY),
            ("two Hosts", head("Host: b\r\n"), "served", ERROR_BODY),
            ("a Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), "served", ERROR_BODY),
            ("CONNECT", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".into(), "served", ERROR_BODY),
            (
                "a target of another scheme",
                "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
                "served",
                ERROR_BODY,
            ),
            (
                "two equal Content-Length",
                head("Content-Length: 0\r\nContent-Length: 0\r\n"),
                "served",
                ERROR_BODY,
            ),
            ("two Content-Length", head("Content-Length: 0\r\nContent-Length: 1\r\n"), BARE, ERROR_BODY),
            ("a list of Content-Length", head("Content-Length: 0, 0\r\n"), BARE, ERROR_BODY),
            ("Content-Length: +0", head("Content-Length: +0\r\n"), BARE, ERROR_BODY),
            (
                "TE and CL",
                head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n",
                "served",
                ERROR_BODY,
            ),
            (
                "TE: gzip, chunked",
                head("Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n",
                "served",
                ERROR_BODY,
            ),
            (
                "TE: chunked, twice",
                head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n",
                "served",
                ERROR_BODY,
            ),
            ("TE: gzip", head("Transfer-Encoding: gzip\r\n"), BARE, ERROR_BODY),
            ("TE: identity", head("Transfer-Encoding: identity\r\n"), BARE, ERROR_BODY),
            (
                "TE in HTTP/1.0",
                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
                BARE,
                ERROR_BODY,
            ),
            ("101 headers", head(&many), BARE, ERROR_BODY),
            ("33,000 bytes of head", head(&medium), "served", ERROR_BODY),
            ("40,000 bytes of head", head(&long), "served", ERROR_BODY),
            ("a chunk extension", chunked("1;a=b\r\nx\r\n0\r\n\r\n"), "served", "served"),
            ("a chunk size with a space", chunked("1 \r\nx\r\n0\r\n\r\n"), "served", "served"),
            ("a chunk line with bare LF", chunked("1\nx\r\n0\r\n\r\n"), "broken body", "broken body"),
            ("chunk data that is too long", chunked("1\r\nxy\r\n0\r\n\r\n"), "broken body", "broken body"),
            (
                "a chunk size of 17 digits",
                chunked("00000000000000001\r\nx\r\n0\r\n\r\n"),
                "served",
                "broken body",
            ),
        ];
        let mut wrong = Vec::new();
        for (what, bytes, alone, behind) in rows {
            let found = (run(bytes.as_bytes(), bytes.len(), false), run(bytes.as_bytes(), bytes.len(), true));
            let found = (fate(&found.0), fate(&found.1));
            println!("| {what} | {} | {} |", found.0, found.1);
            if found != (alone, behind) {
                wrong.push(format!("{what}: expected {alone:?} and {behind:?}, found {found:?}"));
            }
            compare(bytes.as_bytes(), 1);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn the_filter_and_hyper_agree_where_requests_end() {
        let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
        for body in [
            "Content-Length: 5\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",
            "Transfer-Encoding: Chunked\r\n\r\n0000000000000005\r\nhello\r\n00\r\n\r\n",
            "\r\n",
        ] {
            let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{body}{next}{next}");
            for piece in [1, 3, 7, bytes.len()] {
                let outcome = run(bytes.as_bytes(), piece, true);
                assert_eq!(outcome.requests.len(), 3, "{bytes:?}");
                assert!(outcome.requests[1..].iter().all(|seen| seen.target == "/next"));
                compare(bytes.as_bytes(), piece);
            }
        }
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

    const PARTS: [&str; 44] = [
        "GET / HTTP/1.1\r\n",
        "POST /x?y HTTP/1.1\r\n",
        "PUT http://a/ HTTP/1.0\r\n",
        "HEAD * HTTP/1.1\r\n",
        "Host: a\r\n",
        "Host: a\r\n\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 0\r\n",
        "content-length:5\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: 00005\r\n",
        "Transfer-Encoding: chunked\r\n",
        "transfer-encoding:  Chunked \r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\tchunked\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Connection: Upgrade\r\nUpgrade: h2c\r\n",
        "Expect: 100-continue\r\n",
        "a: b\r\n",
        "a: b\r\n c\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "\n\n",
        " ",
        "\t",
        ":",
        "hello",
        "5\r\nhello\r\n",
        "5;x=\"y\"\r\nhello\r\n",
        "0\r\n\r\n",
        "0\r\nA: b\r\n\r\n",
        "00\r\n",
        "5\n",
        "5 \r\n",
        "fffffffffffffffff\r\n",
        "1;\rx\r\n",
        "x\r\n",
        "\0",
        "\u{80}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];

    /// `LISTEN_FUZZ_SECONDS` sets the duration, `LISTEN_FUZZ_SEED` the seed.
    #[test]
    fn random_connections_are_parsed_alike() {
        let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let longest = std::time::Duration::from_secs(variable("LISTEN_FUZZ_SECONDS").unwrap_or(3));
        let mut dice = Dice(variable("LISTEN_FUZZ_SEED").unwrap_or(0x2545_F491_4F6C_DD1D));
        let (begun, mut rounds, mut requests) = (std::time::Instant::now(), 0u64, 0usize);
        while begun.elapsed() < longest {
            let mut bytes = Vec::new();
            for _ in 0..=dice.roll(12) {
                if dice.roll(3) == 0 {
                    bytes.extend_from_slice(b"POST / HTTP/1.1\r\nHost: a\r\n");
                }
                bytes.extend_from_slice(PARTS[dice.roll(PARTS.len())].as_bytes());
            }
            for _ in 0..dice.roll(3) {
                let at = dice.roll(bytes.len());
                match dice.roll(3) {
                    0 => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
                    1 if bytes.len() > 1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"\r\n\0 :;\t%05f,"[dice.roll(12)]),
                }
            }
            let piece = if dice.roll(2) == 0 { bytes.len() } else { 1 + dice.roll(20) };
            let compared = std::panic::catch_unwind(|| compare(&bytes, piece));
            assert!(compared.is_ok(), "round {rounds}, pieces of {piece}: {}", bytes.escape_ascii());
            rounds += 1;
            requests += run(&bytes, piece, true).requests.len();
        }
        println!("{rounds} connections, {requests} requests passed the head filter");
        assert!(rounds > 100 && requests > 20, "{rounds} connections, {requests} requests");
    }

    /// Large content goes into hyper's buffer directly, but nothing of the next request does.
    #[test]
    fn large_content_ends_where_the_next_head_begins() {
        let head = |rest: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}\r\n").into_bytes();
        for bytes in [7_999, 8_192, 40_960, 200_003] {
            let content: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
            let first = [head(&format!("Content-Length: {bytes}\r\n")), content.clone()].concat();
            let both = [first, head("Content-Length: 2\r\n"), b"ab".to_vec()].concat();
            for piece in [1_000, 16_384, both.len()] {
                compare(&both, piece);
                let outcome = run(&both, piece, true);
                let bodies: Vec<&[u8]> = outcome.requests.iter().map(|seen| seen.body.as_slice()).collect();
                assert!(bodies == [content.as_slice(), b"ab"], "{bytes} bytes in pieces of {piece}");
            }
        }
    }
}
