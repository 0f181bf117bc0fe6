//! The second ClientHello of a TLS handshake. A server that does not accept the first one asks for another (RFC 8446,
//! 4.1.4), unencrypted, and some servers use the server name in that one.

use super::hello::{Hello, hello};

const RECORD_HEAD: usize = 5;
const HANDSHAKE: u8 = 0x16;
const WARNING: [u8; 7] = [0x15, 3, 0, 0, 2, 1, 0];
const FATAL: [u8; 3] = [0, 2, 2];
/// The first bytes of a HelloRetryRequest: a record, a ServerHello, its version, and as its random the hash of
/// "HelloRetryRequest". `None` matches any byte.
const RETRY_REQUEST_START: [Option<u8>; 11] =
    [Some(HANDSHAKE), Some(3), None, None, None, Some(2), None, None, None, Some(3), Some(3)];
const RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Whether a server asks for another ClientHello, by its first bytes. `None` if more bytes are needed.
pub fn asks_for_second(mut received: &[u8]) -> Option<bool> {
    loop {
        if received.len() < WARNING.len() {
            // Both kinds of answer begin with these bytes.
            let is_record = received.first().is_none_or(|kind| matches!(kind, 0x15 | &HANDSHAKE));
            return if is_record { None } else { Some(false) };
        }
        let (begin, rest) = received.split_at(WARNING.len());
        // A warning, usually about the server name: the ServerHello follows.
        let is_warning = begin[0] == WARNING[0] && begin[1] == WARNING[1] && begin[3..6] == WARNING[3..6];
        if !is_warning {
            break;
        }
        received = rest;
    }
    let wanted = RETRY_REQUEST_START.into_iter().chain(RANDOM.map(Some));
    let fits = wanted.clone().zip(received).all(|(wanted, byte)| wanted.is_none_or(|wanted| wanted == *byte));
    if !fits {
        return Some(false);
    }
    (received.len() >= wanted.count()).then_some(true)
}

/// The client's data after a HelloRetryRequest.
#[derive(Debug, PartialEq, Eq)]
pub enum Second {
    /// At least this many bytes are needed.
    NeedMore(usize),
    /// A ClientHello for the same name.
    Same,
    /// A ClientHello for another name, or for none.
    Other(Option<String>),
    /// No ClientHello: the client gives up.
    Over,
    Malformed,
}

/// Finds the second ClientHello behind the first, which was for `name`. Early data may come before it.
pub fn second(bytes: &[u8], name: &str) -> Second {
    let mut begin = 0;
    loop {
        let rest = &bytes[begin..];
        let skipped = match rest {
            [HANDSHAKE, 3, ..] => return of_hello(rest, begin, name),
            [0x15, 3, _, holds @ ..] if holds.starts_with(&FATAL) => return Second::Over,
            [0x14 | 0x15 | 0x17, 3, _, high, low, ..] => {
                RECORD_HEAD + usize::from(u16::from_be_bytes([*high, *low]))
            }
            [] | [0x14..=0x17] | [0x14..=0x17, 3, ..] => return Second::NeedMore(begin + RECORD_HEAD + 1),
            _ => return Second::Malformed,
        };
        if rest.len() <= skipped {
            return Second::NeedMore(begin + skipped + 1);
        }
        begin += skipped;
    }
}

fn of_hello(bytes: &[u8], begin: usize, name: &str) -> Second {
    match hello(bytes) {
        Hello::NeedMore(length) => Second::NeedMore(begin + length),
        Hello::Malformed => Second::Malformed,
        Hello::Unnamed => Second::Other(None),
        Hello::Named(second) => match std::str::from_utf8(&second).ok().and_then(rules::plain_name) {
            Some(second) if second == name => Second::Same,
            Some(second) => Second::Other(Some(second)),
            None => Second::Malformed,
        },
    }
}

#[cfg(test)]
mod tests;
