//! The host of a request. All fields that name a host must name the same one, and occur once, because servers differ
//! in which one they use.

use std::net::IpAddr;

use hyper::header::{CONNECTION, HOST, HeaderName, UPGRADE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Version};

use crate::refusals::Reason;

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// The host name of a request, in the form of `rules::plain_name`.
pub fn requested_host(request: &Parts) -> Result<String, Reason> {
    // CONNECT names the next hop, not the host.
    if request.method == Method::CONNECT {
        return Err(Reason::Malformed);
    }
    let is_two = request.version == Version::HTTP_2;
    if !is_two && request.uri.scheme().is_some_and(|scheme| *scheme != hyper::http::uri::Scheme::HTTP) {
        return Err(Reason::Malformed);
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    let by_header = hosts.next().map(|host| host_name(host.as_bytes())).transpose()?;
    if hosts.next().is_some() {
        return Err(Reason::Malformed);
    }
    let by_target =
        request.uri.authority().map(|target| host_name(target.as_str().as_bytes())).transpose()?;
    match (by_header, by_target) {
        (None, None) => Err(Reason::NoName),
        // HTTP/1.1 requires the header, also with an absolute target.
        (None, Some(_)) if !is_two => Err(Reason::NoName),
        (Some(header), Some(target)) if header != target => Err(Reason::Malformed),
        (Some(name), _) | (None, Some(name)) => Ok(name),
    }
}

/// The name in `name`, `name:` or `name:port`.
fn host_name(host: &[u8]) -> Result<String, Reason> {
    let host = std::str::from_utf8(host).map_err(|_| Reason::Malformed)?;
    if host.is_empty() || host.starts_with('[') {
        return Err(Reason::NoName);
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    if port.len() > 5 || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Reason::Malformed);
    }
    match rules::plain_name(name) {
        Some(name) => Ok(name),
        None if name.parse::<IpAddr>().is_ok() => Err(Reason::NoName),
        None => Err(Reason::Malformed),
    }
}

/// Whether a request asks for an upgrade that is forwarded. An upgrade to a protocol that names hosts itself is removed:
/// the server continues in HTTP, as it always may.
pub fn filter_upgrade(headers: &mut HeaderMap) -> bool {
    let names_hosts = |protocol: &str| {
        let protocol = protocol.trim().to_ascii_lowercase();
        ["h2", "http", "tls"].iter().any(|begin| protocol.starts_with(begin))
    };
    let hidden = headers
        .get_all(UPGRADE)
        .iter()
        .any(|value| value.to_str().map_or(true, |list| list.split(',').any(names_hosts)));
    if hidden {
        headers.remove(UPGRADE);
        headers.remove(HTTP2_SETTINGS);
    }
    let asks = headers.get_all(CONNECTION).iter().any(|value| {
        value.to_str().is_ok_and(|list| list.split(',').any(|one| one.trim().eq_ignore_ascii_case("upgrade")))
    });
    if hidden && asks {
        drop_token(headers);
    }
    asks && headers.contains_key(UPGRADE)
}

/// Removes `Upgrade` and `HTTP2-Settings` from the `Connection` header, which would name missing headers.
fn drop_token(headers: &mut HeaderMap) {
    let options: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(|one| one.trim().to_owned())
        .filter(|one| !one.eq_ignore_ascii_case("upgrade") && !one.eq_ignore_ascii_case("http2-settings"))
        .collect();
    headers.remove(CONNECTION);
    if let Ok(value) = options.join(", ").parse()
        && !options.is_empty()
    {
        headers.insert(CONNECTION, value);
    }
}

#[cfg(test)]
mod tests;
