//! Request ids: which ids of clients are accepted, and the form of generated ones.

use crate::text::base32;

const CHARS_MAX: usize = 128;
/// Random bytes in a generated id: 20 characters.
const RANDOM_BYTES: usize = 12;

/// A client's `X-Request-Id`, if it is safe in headers, bodies and logs: 1 to 128 letters, digits and `.`, `_`, `:`, `-`. Anything
/// else is replaced by a generated id and is not an error.
pub fn well_formed_request_id(value: &[u8]) -> Option<&str> {
    let fits = (1..=CHARS_MAX).contains(&value.len())
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(byte));
    if fits { std::str::from_utf8(value).ok() } else { None }
}

/// A generated id from random bytes that the caller passes.
pub fn generated_request_id(random: [u8; RANDOM_BYTES]) -> String {
    format!("req_{}", base32::encode(&random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_request_ids_are_accepted() {
        let longest = "x".repeat(128);
        for id in ["a", "0b6e7a9c-1c1e-4e57-9a3d-2f0f7c1d8e11", "A.b_c:d-9", &longest] {
            assert_eq!(well_formed_request_id(id.as_bytes()), Some(id));
        }
    }

    #[test]
    fn malformed_request_ids_are_refused() {
        let too_long = "x".repeat(129);
        for id in ["", " ", "a b", "a\r\nX: y", "a\0", "a/b", "a\"b", "ü", "a,b", "{}", &too_long] {
            assert_eq!(well_formed_request_id(id.as_bytes()), None, "{id:?}");
        }
        assert_eq!(well_formed_request_id(b"\xff\xfe"), None);
    }

    #[test]
    fn ours_are_well_formed_and_as_random_as_their_bytes() {
        let (a, b) = (generated_request_id([0; 12]), generated_request_id([255; 12]));
        assert_eq!(a, "req_00000000000000000000");
        assert_ne!(a, b);
        for id in [&a, &b] {
            assert_eq!(well_formed_request_id(id.as_bytes()), Some(id.as_str()));
        }
    }
}
