//! What the first bytes of a connection are. Pure; asked again whenever more bytes have come. Everything in here comes from
//! inside of a sandbox and may be hostile: nothing is allocated but the name, and no byte is looked at more than a few times.
//!
//! Two mistakes are possible, and only one is harmless. What is TLS to any server must not be told to be `Other`, or its name
//! would not be asked for; nor what a client would send as HTTP. What only lenient servers take for HTTP is found by `watch`.
//! What is `Http` here and no HTTP in truth is merely refused.

use std::net::IpAddr;

use super::hello::{CLIENT_HELLO, Hello, hello};
use super::watch::is_token;

/// A client that has not said within so many bytes who it wants to reach is refused.
pub const TLS_BYTES_MAX: usize = 64 * 1024;

/// Blank lines, which servers skip before a request.
const BLANK_BYTES_MAX: usize = 256;
/// A line that is longer was meant as a request, if it is one at all.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Longer than the name of any method.
const METHOD_BYTES_MAX: usize = 64;
/// What comes before the client's own first byte where something stands in front of a server. A server that takes it from anyone
/// would read from behind it who it is for.
const PROXY_ONE: &[u8] = b"PROXY ";
const PROXY_TWO: &[u8] = b"\r\n\r\n\0";
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// It cannot be told before there are so many bytes in all.
    NeedMore(usize),
    /// The name is in the form of `rules::plain_name`; none was sent where it is `None`, or an address.
    Tls { name: Option<String> },
    /// HTTP/1, or what some server might take for it.
    Http,
    /// HTTP/2 without TLS, begun without asking.
    H2c,
    /// Neither TLS nor HTTP, as far as this goes: see [`super::watch`].
    Other,
    /// Begins as TLS or HTTP and goes on as nothing.
    Malformed,
}

/// Tells what a connection begins with.
pub fn sniff(bytes: &[u8]) -> First {
    match bytes {
        [] => First::NeedMore(1),
        [0x14..=0x16] => First::NeedMore(2),
        [0x16, 3, ..] => tls(bytes),
        [0x14..=0x16, 0..0x10, ..] => odd_record(bytes),
        [high, ..] if *high >= 0x80 => old_hello(bytes),
        _ => text(bytes),
    }
}

/// The same when the client will send no more.
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
        // Not allowed by the standard, and sent all the same by clients that were given an address.
        None if name.parse::<IpAddr>().is_ok() => First::Tls { name: None },
        None => First::Malformed,
    }
}

/// What no client begins with, and some server reads on from: a record with a version that is none, or one before the hello that
/// is dropped. Lengths that come first as little-endian numbers look alike for a few bytes (MySQL, MongoDB), so what the record
/// holds has to fit as well.
fn odd_record(bytes: &[u8]) -> First {
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

/// A hello in the framing of SSL 2, which asks for TLS or SSL 3 inside and cannot carry a name. Some servers still take it.
fn old_hello(bytes: &[u8]) -> First {
    match bytes {
        [_, _, 1, 3, ..] | [_, _, 1, 0, 2, ..] => First::Tls { name: None },
        [_] | [_, _] | [_, _, 1] | [_, _, 1, 0] => First::NeedMore(bytes.len() + 1),
        _ => First::Other,
    }
}

/// Servers are lenient in how a request line is spelled, so anything that is close to one is taken for one; what then is none
/// is found out when it is read in earnest.
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
        // What ends in the middle of its first word is no request.
        Some(_) => return First::Other,
    }
    let end = line.iter().position(|byte| *byte == b'\n');
    let line = &line[..end.unwrap_or(line.len())];
    if line.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\r' | b'\t')) {
        return First::Other;
    }
    match end {
        // Read in earnest as well, and refused there if it never ends.
        None if line.len() > LINE_BYTES_MAX => First::Http,
        None => First::NeedMore(bytes.len() + 1),
        Some(_) if is_request(line) => First::Http,
        Some(_) => First::Other,
    }
}

/// Of a whole line: names its version anywhere, or looks like a request from before there were versions. Whatever its scheme is,
/// a whole address is read by nginx, and the other versions by Node.
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
