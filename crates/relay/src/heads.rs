//! Writes the heads of requests to programs and of responses to clients. Pure.
//!
//! Hop-by-hop headers are not forwarded (RFC 9110 section 7.6.1), and each sender writes its own framing: a header that determines the
//! end of a body is never copied, so two readers cannot disagree about it. `policy` removes headers that would forge the client's
//! identity or reveal a key.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Response, StatusCode, Uri, Version, response};
use hyper::body::Body as _;
use listen::PeerAddr;
use service::Service;

use super::{cookies, policy};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Hop-by-hop headers, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 11] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
    CONTENT_LENGTH,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
];

/// The client's address and the URL that it used, for the program.
pub struct Forwarded {
    /// For `X-Forwarded-For`: the addresses that a trusted proxy names, and the peer.
    client: String,
    pub scheme: String,
    /// The host as the client sent it, with the port.
    pub host: String,
    /// The `Host` of the program, if that is another one.
    pub masked_host: Option<String>,
}

impl Forwarded {
    /// Forwarding headers of the request count only if a trusted proxy sent it.
    pub fn of(request: &Request, service: &Service) -> Self {
        let peer = request.extensions().get::<PeerAddr>().map(|PeerAddr(peer)| peer.ip());
        let trusted = peer.is_some_and(|peer| service.gate.trusted_proxies.holds(peer));
        let text = |name: &HeaderName| request.headers().get(name)?.to_str().ok();
        let peer = peer.map(|peer| peer.to_canonical().to_string()).unwrap_or_default();
        let scheme = text(&FORWARDED_PROTO).filter(|scheme| trusted && matches!(*scheme, "http" | "https"));
        let authority = request.uri().authority().map(|authority| authority.as_str());
        Self {
            client: forwarded_for(trusted.then_some(request.headers()), &peer),
            scheme: scheme.unwrap_or(service.ports.scheme()).to_owned(),
            host: authority.or(text(&HOST)).unwrap_or_default().to_owned(),
            masked_host: None,
        }
    }
}

/// The addresses that a trusted proxy names, as one list, followed by the peer. Several lines are one list (RFC 9110 section 5.3);
/// addresses before a line that is not text do not count.
fn forwarded_for(trusted: Option<&HeaderMap>, peer: &str) -> String {
    let lines = trusted.into_iter().flat_map(|headers| headers.get_all(FORWARDED_FOR).iter().rev());
    let mut addresses: Vec<&str> = std::iter::once(Some(peer))
        .chain(lines.map(|line| line.to_str().ok()))
        .map_while(|line| line)
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    addresses.reverse();
    addresses.join(", ")
}

/// Whether a request asks for a websocket. No other upgrade is forwarded: `h2c` would let the client talk to the program without the
/// checks of this module.
pub fn asks_for_websocket(parts: &Parts) -> bool {
    let only = |name: HeaderName| {
        let mut values = parts.headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none())?.to_str().ok()
    };
    let named = only(CONNECTION)
        .is_some_and(|text| text.split(',').any(|it| it.trim().eq_ignore_ascii_case("upgrade")));
    parts.method == Method::GET
        && named
        && only(UPGRADE).is_some_and(|it| it.eq_ignore_ascii_case("websocket"))
}

/// The request as the program gets it.
pub fn to_program(parts: Parts, body: Body, forwarded: &Forwarded, websocket: bool) -> Request {
    let target = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let mut headers = parts.headers;
    strip(&mut headers);
    policy::apply(&mut headers);
    let replaced = [
        (HOST, forwarded.masked_host.as_ref().unwrap_or(&forwarded.host)),
        (FORWARDED_FOR, &forwarded.client),
        (FORWARDED_PROTO, &forwarded.scheme),
        (FORWARDED_HOST, &forwarded.host),
    ];
    for (name, value) in replaced {
        // Made from header values and addresses, so it is a valid value.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    let connection = if websocket { "upgrade" } else { "close" };
    headers.insert(CONNECTION, HeaderValue::from_static(connection));
    if websocket {
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    // Set for every method: hyper drops the body of a GET without a length.
    match body.size_hint().exact() {
        Some(0) if matches!(parts.method, Method::GET | Method::HEAD) => {}
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        None => drop(headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
    }
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = Uri::from(target);
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    request
}

/// The answer's head as the client gets it.
pub fn to_client(head: response::Parts, to_head: bool) -> Response<()> {
    let mut headers = head.headers;
    let bodiless = to_head || head.status == StatusCode::NOT_MODIFIED;
    // Without a body the program's length stays, otherwise hyper writes the actual one.
    let length = headers.get(CONTENT_LENGTH).cloned().filter(|_| bodiless);
    strip(&mut headers);
    let one_number = |value: &HeaderValue| value.as_bytes().iter().all(u8::is_ascii_digit);
    if let Some(length) = length.filter(one_number) {
        headers.insert(CONTENT_LENGTH, length);
    }
    keep_cookies(&mut headers);
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

/// The head of the response to a websocket handshake.
pub fn switched(head: response::Parts) -> Response<()> {
    let mut response = to_client(head, false);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// A program can set neither the token cookie nor cookies for a whole domain, which other sandboxes would receive.
fn keep_cookies(headers: &mut HeaderMap) {
    if !headers.contains_key(SET_COOKIE) {
        return;
    }
    let own: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().filter(|value| is_own(value)).cloned().collect();
    headers.remove(SET_COOKIE);
    for value in own {
        headers.append(SET_COOKIE, value);
    }
}

fn is_own(cookie: &HeaderValue) -> bool {
    let mut parts = cookie.as_bytes().split(|byte| *byte == b';');
    let name = parts.next().and_then(|pair| pair.split(|byte| *byte == b'=').next()).unwrap_or_default();
    let wide = |part: &[u8]| {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"domain")
    };
    !cookies::is_ours(name) && !parts.any(wide)
}

#[cfg(test)]
mod tests;
