//! API keys: their text, and what the scopes of a key allow.
//!
//! A key is `sbk_`, 52 characters that encode 256 random bits, and 7 characters of a checksum: a truncated or mistyped key is
//! recognized without a lookup, and scanners for leaked secrets can verify a match. The command line creates keys; the server parses
//! them, looks them up by their hash and checks [`Scopes::allows`]. An error never repeats the text of a key.

mod scopes;

use std::fmt;

pub use scopes::{BadScopes, Scope, Scopes};

use crate::base32;

const PREFIX: &str = "sbk_";
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = base32::chars_for(SECRET_BYTES);
const CHECK_CHARS: usize = base32::chars_for(4);
const TEXT_CHARS: usize = PREFIX.len() + SECRET_CHARS + CHECK_CHARS;
/// Characters of the secret that lists show, so that people can tell keys apart; 236 bits stay secret.
const HINT_CHARS: usize = 4;

/// The text of a well-formed key, which may be unknown. Has no `Debug` output of the text.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(String);

/// Why a text is not a key. For logs and the command line; a client only learns that its key is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("a key starts with '{PREFIX}'")]
    Prefix,
    #[error("the key is {got} bytes long; a whole one has {TEXT_CHARS}")]
    Length { got: usize },
    #[error("after '{PREFIX}' a key has digits and lower-case letters only, and of these no i, l, o or u")]
    Character,
    #[error("the checksum of the key is wrong: it was mistyped, or another program made it")]
    Checksum,
}

impl KeyText {
    /// A key from random bytes that the caller passes.
    pub fn format(secret: [u8; SECRET_BYTES]) -> Self {
        let secret = base32::encode(&secret);
        let check = checksum(&secret);
        Self(format!("{PREFIX}{secret}{check}"))
    }

    /// Parses the part of the header after `Bearer `.
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

    /// The whole text: for hashing, or to show it once to its owner.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The start of the text, which identifies a key in lists and logs.
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

/// CRC-32 (IEEE 802.3), bit by bit: 52 bytes do not need a table.
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
