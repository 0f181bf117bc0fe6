//! Identifies the protocol of a connection by its first bytes. Called again when more bytes have arrived. The input
//! is hostile: only the name is allocated, and each byte is examined a few times at most.
//!
//! Of the two possible mistakes only one is harmless. Data that any server accepts as TLS, or that a client sends as HTTP,
//! must not be identified as `Other`: its name would not be checked. Data that only lenient servers accept as HTTP is found
//! by `first_lines`. Identifying something else as `Http` only refuses it.

use std::net::IpAddr;

use super::first_lines::is_token;
use super::hello::{CLIENT_HELLO, Hello, hello};

/// Maximum bytes for a client to name its host.
pub const TLS_BYTES_MAX: usize = 64 * 1024;

/// Blank lines that servers skip before a request.
const BLANK_BYTES_MAX: usize = 256;
/// A longer line is treated as a request.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Limit of a method.
const METHOD_BYTES_MAX: usize = 64;
/// The PROXY protocol, which load balancers send before the client's data. A server that accepts it from anyone would read
/// the host behind it.
const PROXY_ONE: &[u8] = b"PROXY ";
const PROXY_TWO: &[u8] = b"\r\n\r\n\0";
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An identified protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// At least this many bytes are needed in total.
    NeedMore(usize),
    /// The name is in the form of `rules::plain_name`; `None` if there was none, or an address.
    Tls { name: Option<String> },
    /// HTTP/1, or data that some server accepts as such.
    Http,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
    /// Neither TLS nor HTTP; [`super::first_lines`] examines what follows.
    Other,
    /// Begins like TLS or HTTP and is invalid.
    Malformed,
}

/// Identifies the protocol.
pub fn sniff(bytes: &[u8]) -> First {
    match bytes {
        [] => First::NeedMore(1),
        [0x14..=0x16] => First::NeedMore(2),
        [0x16, 3, ..] => tls(bytes),
        [0x14..=0x16, 0..0x10, ..] => check_record(bytes),
        [high, ..] if *high >= 0x80 => old_hello(bytes),
        _ => text(bytes),
    }
}

/// The same if the client will send no more.
pub fn sniff_ended(bytes: &[u8]) -> First {
    match sniff(bytes) {
        First::NeedMore(_) if matches!(bytes, [0x14..=0x16] | [0x16, 3, ..]) => First::Malformed,
        First::NeedMore(_) if is_request(bytes) => First::Http,
        First::NeedMore(_) => First::Other,
        first => first,
    }
}

fn tls(bytes: &[u8]) -> First {
    match hello(bytes) {
        Hello::NeedMore(length) if length > TLS_BYTES_MAX => First::Malformed,
        Hello::NeedMore(length) => First::NeedMore(length),
        Hello::Malformed => First::Malformed,
        Hello::Unnamed => First::Tls { name: None },
        Hello::Named(name) => named(&name),
    }
}

fn named(name: &[u8]) -> First {
    let Ok(name) = std::str::from_utf8(name) else { return First::Malformed };
    match rules::plain_name(name) {
        Some(name) => First::Tls { name: Some(name) },
        // Not allowed by the standard, but sent by clients that were given an address.
        None if name.parse::<IpAddr>().is_ok() => First::Tls { name: None },
        None => First::Malformed,
    }
}

/// Records that no client sends first but some server accepts: of an unknown version, or before the ClientHello.
/// Little-endian length prefixes look alike for a few bytes (MySQL, MongoDB), so the content of the record is checked as
/// well.
fn check_record(bytes: &[u8]) -> First {
    const WARNING: [u8; 3] = [0, 2, 1];
    const CHANGE: [u8; 3] = [0, 1, 1];
    match bytes {
        [0x16, _, _, _, _, CLIENT_HELLO, ..] => First::Malformed,
        [0x15, _, _, 0, 2, 1, ..] | [0x14, _, _, 0, 1, 1, ..] => First::Malformed,
        [_, _, _, _, _, _, ..] => First::Other,
        [0x15, _, _, holds @ ..] if !WARNING.starts_with(holds) => First::Other,
        [0x14, _, _, holds @ ..] if !CHANGE.starts_with(holds) => First::Other,
        _ => First::NeedMore(6),
    }
}

/// A ClientHello in SSL 2 framing, which requests TLS or SSL 3 and cannot carry a name. Some servers still accept it.
fn old_hello(bytes: &[u8]) -> First {
    match bytes {
        [_, _, 1, 3, ..] | [_, _, 1, 0, 2, ..] => First::Tls { name: None },
        [_] | [_, _] | [_, _, 1] | [_, _, 1, 0] => First::NeedMore(bytes.len() + 1),
        _ => First::Other,
    }
}

/// Servers accept variants of a request line, so anything similar counts as one; the HTTP parser refuses what is not.
fn text(bytes: &[u8]) -> First {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n' | b' ' | b'\t')).count();
    let line = &bytes[blank..];
    if blank > BLANK_BYTES_MAX {
        return First::Malformed;
    }
    if bytes.starts_with(PROXY_TWO) || bytes.starts_with(PROXY_ONE) {
        return First::Malformed;
    }
    let compared = line.len().min(H2_PREFACE.len());
    if blank == 0 && line[..compared] == H2_PREFACE[..compared] {
        let whole = compared == H2_PREFACE.len();
        return if whole { First::H2c } else { First::NeedMore(H2_PREFACE.len()) };
    }
    let method = line.iter().take_while(|byte| is_token(**byte)).count();
    if method > METHOD_BYTES_MAX {
        return First::Other;
    }
    match line.get(method) {
        None => return First::NeedMore(bytes.len() + 1),
        Some(b' ' | b'\t') if method > 0 => {}
        // Data that ends inside its first word is no request.
        Some(_) => return First::Other,
    }
    let end = line.iter().position(|byte| *byte == b'\n');
    let line = &line[..end.unwrap_or(line.len())];
    if line.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\r' | b'\t')) {
        return First::Other;
    }
    match end {
        // The HTTP parser gets it, and refuses it if the line never ends.
        None if line.len() > LINE_BYTES_MAX => First::Http,
        None => First::NeedMore(bytes.len() + 1),
        Some(_) if is_request(line) => First::Http,
        Some(_) => First::Other,
    }
}

/// Whether a complete line names a version anywhere, or looks like a request without a version. Nginx accepts any absolute
/// target, and Node the other versions.
fn is_request(line: &[u8]) -> bool {
    let begins = |word: &[u8], part: &[u8]| {
        word.get(..part.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(part))
    };
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).skip(1);
    let target = words.clone().next().unwrap_or_default();
    line.windows(5).any(|window| window.eq_ignore_ascii_case(b"http/"))
        || words.any(|word| begins(word, b"rtsp/") || begins(word, b"ice/"))
        || ["/", "http:", "https:"].iter().any(|part| begins(target, part.as_bytes()))
        || target.windows(3).any(|window| window == b"://")
}

#[cfg(test)]
mod tests;
