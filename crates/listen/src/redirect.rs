//! The redirect target for plain HTTP: the same host, path and query over HTTPS. The client's `Host` is used only if
//! it is a host name or an address, so that it cannot inject a header.

use std::fmt::Write;
use std::net::Ipv6Addr;

use axum::http::Uri;

/// The longest name that DNS allows.
const MAX_NAME_BYTES: usize = 253;

/// The host and port of HTTPS.
#[derive(Debug, Clone)]
pub struct HttpsAuthority {
    /// For requests without a usable host.
    pub host: String,
    pub port: u16,
}

impl HttpsAuthority {
    /// The URL for a request with this `Host` and this target. Always printable ASCII.
    pub fn location(&self, host: Option<&[u8]>, target: &Uri) -> String {
        let host = host.and_then(host_only).unwrap_or(&self.host);
        let mut location = String::from("https://");
        if host.parse::<Ipv6Addr>().is_ok() {
            location.push('[');
            location.push_str(host);
            location.push(']');
        } else {
            location.push_str(host);
        }
        if self.port != 443 {
            // Writing to a string cannot fail.
            let _ = write!(location, ":{}", self.port);
        }
        let path = target.path_and_query().map_or("/", |it| it.as_str());
        if !path.starts_with('/') {
            location.push('/');
            return location;
        }
        for byte in path.bytes() {
            if byte.is_ascii_graphic() {
                location.push(char::from(byte));
            } else {
                let _ = write!(location, "%{byte:02X}");
            }
        }
        location
    }
}

/// The host of a `Host` header, without its port and without the brackets of an IPv6 address.
fn host_only(header: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(header).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let port = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return (port && address.parse::<Ipv6Addr>().is_ok()).then_some(address);
    }
    let name = match text.split_once(':') {
        Some((name, port)) => is_port(port).then_some(name)?,
        None => text,
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed)).then_some(name)
}

/// RFC 3986 allows an empty port, which means the default one.
fn is_port(text: &str) -> bool {
    text.is_empty() || (text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(host: Option<&[u8]>, target: &str, port: u16) -> String {
        HttpsAuthority { host: "sandbox.example".into(), port }.location(host, &target.parse().unwrap())
    }

    #[test]
    fn host_path_and_query_are_preserved_and_the_port_is_replaced() {
        let rows: [(&[u8], &str, u16, &str); 8] = [
            (b"a.example", "/v1/x?a=b&c=%20", 443, "https://a.example/v1/x?a=b&c=%20"),
            (b"a.example:80", "/", 8443, "https://a.example:8443/"),
            (b"a.example:", "/?", 8443, "https://a.example:8443/?"),
            (b"127.0.0.1:8080", "/v1", 8443, "https://127.0.0.1:8443/v1"),
            (b"[::1]:8080", "/v1?x", 8443, "https://[::1]:8443/v1?x"),
            (b"[2001:db8::7]", "/", 443, "https://[2001:db8::7]/"),
            (b"a.example", "http://b.example:1/path?q=1", 443, "https://a.example/path?q=1"),
            (b"a.example", "//b.example/x", 443, "https://a.example//b.example/x"),
        ];
        for (host, target, port, expected) in rows {
            assert_eq!(location(Some(host), target, port), expected);
        }
    }

    #[test]
    fn an_invalid_host_is_replaced() {
        let long = vec![b'a'; 254];
        let odd: [&[u8]; 14] = [
            b"", b" ", b"a b", b"a/b", b"a@b", b"a?b", b"a#b", b"a:b", b"a:99999", b"[::1", b"[x]",
            b"[::1]x", b"\xff", &long,
        ];
        for host in odd {
            assert_eq!(location(Some(host), "/p", 443), "https://sandbox.example/p", "{host:?}");
        }
        assert_eq!(location(None, "*", 8443), "https://sandbox.example:8443/");
        let six = HttpsAuthority { host: "::1".into(), port: 8443 };
        assert_eq!(six.location(None, &Uri::from_static("/")), "https://[::1]:8443/");
    }

    #[test]
    fn the_location_is_printable() {
        let target = Uri::try_from("/caf\u{e9}?q=\u{20ac}").unwrap();
        let location =
            HttpsAuthority { host: "h".into(), port: 443 }.location(Some(b"x\r\nSet-Cookie: a"), &target);
        assert_eq!(location, "https://h/caf%C3%A9?q=%E2%82%AC");
    }
}
