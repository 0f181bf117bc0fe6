//! Idempotency keys: their syntax, the decision on a repeated request, and which responses are recorded.
//!
//! The server calls these; the store keeps the records. Keys are scoped to an account and an endpoint, which is decided there.

use api::bounds::IDEMPOTENCY_KEY_CHARS;

use crate::TimeMs;
use crate::text::quoted::quoted;

/// How long a record is valid, from the first request with its key.
pub const IDEMPOTENCY_VALID_MS: u64 = 24 * 60 * 60 * 1000;

/// The value of a header `Idempotency-Key` is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header Idempotency-Key is {got}; allowed: 1 to {IDEMPOTENCY_KEY_CHARS} visible ASCII characters")]
pub struct BadIdempotencyKey {
    pub got: String,
}

/// Reads the header's value.
pub fn idempotency_key(value: &[u8]) -> Result<&str, BadIdempotencyKey> {
    if value.len() > IDEMPOTENCY_KEY_CHARS {
        return Err(BadIdempotencyKey { got: format!("{} bytes long", value.len()) });
    }
    match std::str::from_utf8(value) {
        Ok(key) if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(key),
        _ => Err(BadIdempotencyKey { got: quoted(&String::from_utf8_lossy(value)) }),
    }
}

/// The part of an idempotency record that determines the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRequest {
    /// Of the exact bytes of the body.
    pub request_hash: [u8; 32],
    pub expires_at: TimeMs,
}

/// The decision on a request with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// There is no record, or it has expired: execute the request.
    New,
    /// Replay the recorded response.
    Replay,
    /// `INVALID_REQUEST`: the key was used with another body.
    OtherBody,
}

/// Decides by the record of the key.
pub fn repeat(stored: Option<&StoredRequest>, request_hash: &[u8; 32], now: TimeMs) -> Repeat {
    match stored {
        Some(stored) if now < stored.expires_at => {
            if stored.request_hash == *request_hash {
                Repeat::Replay
            } else {
                Repeat::OtherBody
            }
        }
        _ => Repeat::New,
    }
}

/// Whether a response with this status is recorded. 429 and server faults are not, because a retry may succeed.
pub fn should_record(status: u16) -> bool {
    status != 429 && status < 500
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_visible_ascii() {
        let longest = "k".repeat(255);
        let all: String = ('!'..='~').collect();
        for key in ["a", "8e03978e-40d5-43dd-bc93-6894a57f9324", &longest, &all] {
            assert_eq!(idempotency_key(key.as_bytes()), Ok(key));
        }
        let allowed = "allowed: 1 to 255 visible ASCII characters";
        for (key, got) in [
            (&b""[..], "''".to_owned()),
            (b"a b", "'a b'".to_owned()),
            (b"a\t", r"'a\t'".to_owned()),
            (b"a\x7f", r"'a\u{7f}'".to_owned()),
            ("ü".as_bytes(), "'ü'".to_owned()),
            (b"\xff", "'\u{fffd}'".to_owned()),
            ("k".repeat(256).as_bytes(), "256 bytes long".to_owned()),
        ] {
            let message = idempotency_key(key).unwrap_err().to_string();
            assert_eq!(message, format!("header Idempotency-Key is {got}; {allowed}"));
        }
    }

    #[test]
    fn a_key_answers_the_same_until_its_time_is_over() {
        let stored = StoredRequest { request_hash: [1; 32], expires_at: TimeMs(IDEMPOTENCY_VALID_MS) };
        let last = TimeMs(86_399_999);
        assert_eq!(repeat(None, &[1; 32], TimeMs(0)), Repeat::New);
        assert_eq!(repeat(Some(&stored), &[1; 32], TimeMs(0)), Repeat::Replay);
        assert_eq!(repeat(Some(&stored), &[1; 32], last), Repeat::Replay);
        assert_eq!(repeat(Some(&stored), &[2; 32], last), Repeat::OtherBody);
        assert_eq!(repeat(Some(&stored), &[1; 32], last.after(1)), Repeat::New);
        assert_eq!(repeat(Some(&stored), &[2; 32], last.after(1)), Repeat::New);
    }

    #[test]
    fn rate_limited_and_internal_errors_are_not_stored() {
        for status in [200, 201, 400, 404, 408, 409] {
            assert!(should_record(status), "{status}");
        }
        for status in [429, 500, 502, 503, 599] {
            assert!(!should_record(status), "{status}");
        }
    }
}
