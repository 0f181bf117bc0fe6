//! API keys: their text, and what the scopes of a key allow (decision 23).
//!
//! `sbk_`, 52 characters that are 256 random bits, and 7 that are a checksum of those 52: a key that was cut or mistyped is
//! told from one that is unknown without a look at any table, and scanners for leaked secrets can know one by itself. The
//! command line makes keys; the server reads them, looks them up by their hash and asks [`Scopes::allows`]. A refusal never
//! repeats the text it is about.

mod scopes;

use std::fmt;

pub use scopes::{BadScopes, Scope, Scopes};

use crate::base32;

const PREFIX: &str = "sbk_";
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = base32::chars_for(SECRET_BYTES);
const CHECK_CHARS: usize = base32::chars_for(4);
const TEXT_CHARS: usize = PREFIX.len() + SECRET_CHARS + CHECK_CHARS;
/// Characters of the secret that are shown so that people can tell their keys apart; 236 bits stay unknown.
const HINT_CHARS: usize = 4;

/// A key whose text is whole. Whether anybody has it is another matter. Does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(String);

/// Why a text is no key of ours. For logs and the command line; a client hears that its key is not valid, and no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("a key starts with '{PREFIX}'")]
    Prefix,
    #[error("the key is {got} bytes long; a whole one has {TEXT_CHARS}")]
    Length { got: usize },
    #[error("after '{PREFIX}' a key has digits and lower-case letters only, and of these no i, l, o or u")]
    Character,
    #[error("the checksum of the key is wrong: it was mistyped or is of another make")]
    Checksum,
}

impl KeyText {
    /// A key from random bytes; the caller brings the randomness.
    pub fn format(secret: [u8; SECRET_BYTES]) -> Self {
        let secret = base32::encode(&secret);
        let check = checksum(&secret);
        Self(format!("{PREFIX}{secret}{check}"))
    }

    /// Reads what stands after `Bearer `.
    pub fn parse(text: &str) -> Result<Self, BadKey> {
        let rest = text.strip_prefix(PREFIX).ok_or(BadKey::Prefix)?;
        if text.len() != TEXT_CHARS {
            return Err(BadKey::Length { got: text.len() });
        }
        if !rest.bytes().all(base32::is_char) {
            return Err(BadKey::Character);
        }
        let (secret, check) = rest.split_at(SECRET_CHARS);
        if checksum(secret) != check {
            return Err(BadKey::Checksum);
        }
        Ok(Self(text.to_owned()))
    }

    /// The whole text: to be hashed, or shown once to whom it belongs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The start of the text, which tells keys apart in lists and logs and gives nothing away.
    pub fn hint(&self) -> &str {
        &self.0[..PREFIX.len() + HINT_CHARS]
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}...", self.hint())
    }
}

fn checksum(secret: &str) -> String {
    base32::encode(&crc32(secret.as_bytes()).to_be_bytes())
}

/// The CRC-32 of Ethernet and zip, bit by bit: 52 bytes are not worth a table.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let mask = (crc & 1).wrapping_neg();
            crc = (crc >> 1) ^ (0xEDB8_8320 & mask);
        }
    }
    !crc
}

#[cfg(test)]
mod tests;
