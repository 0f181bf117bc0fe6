//! Signatures of `/files` URLs: `v1_` and the SHA-256 of path, operation, user, token and expiry.
//!
//! A signature allows one operation on one path to a holder without the access token, until it expires.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What a signature allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedOperation {
    Read,
    Write,
}

/// The signed values, as they are in the query; empty if absent.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    pub path: &'a str,
    pub operation: SignedOperation,
    pub user: &'a str,
    /// Seconds since 1970. `None` if the signature does not expire.
    pub expiration: Option<i64>,
}

/// Why a signature is refused. Clients compare the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    #[error("missing signature query parameter")]
    Missing,
    #[error("invalid signature")]
    Invalid,
    #[error("signature is already expired")]
    Expired,
}

/// Checks a signature, which one of the valid tokens must have made. The expiry is checked last, so that only the holder of a valid
/// signature learns of it.
pub fn check(
    signature: Option<&str>,
    signed: Signed<'_>,
    tokens: &[String],
    now_s: i64,
) -> Result<(), SignatureRefusal> {
    let signature = signature.filter(|text| !text.is_empty()).ok_or(SignatureRefusal::Missing)?;
    let is_of = |token: &String| bool::from(sign(signed, token).as_bytes().ct_eq(signature.as_bytes()));
    if !tokens.iter().any(is_of) {
        return Err(SignatureRefusal::Invalid);
    }
    match signed.expiration {
        Some(end) if end < now_s => Err(SignatureRefusal::Expired),
        _ => Ok(()),
    }
}

fn sign(signed: Signed<'_>, token: &str) -> String {
    let Signed { path, operation, user, expiration } = signed;
    let operation = match operation {
        SignedOperation::Read => "read",
        SignedOperation::Write => "write",
    };
    let mut text = format!("{path}:{operation}:{user}:{token}");
    if let Some(expiration) = expiration {
        text.push_str(&format!(":{expiration}"));
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const SIGNED: Signed<'_> =
        Signed { path: "/tmp/a", operation: SignedOperation::Read, user: "user", expiration: None };

    #[test]
    fn the_format_is_that_of_the_clients() {
        // printf '/tmp/a:read:user:0123456789abcdef' | openssl dgst -sha256 -binary | base64
        assert_eq!(sign(SIGNED, TOKEN), "v1_p8O1IOdTLVik441Ka6QPdpMTggGRBtqm2HVv5gwFbPI");
        let expiring = Signed { expiration: Some(1_700_000_000), ..SIGNED };
        assert_eq!(sign(expiring, TOKEN), "v1_wZJUW8Z5+29AGGUs54Rer+htEWGGWWUXAtNQrS5lBqI");
    }

    #[test]
    fn each_signed_value_counts() {
        let signature = sign(SIGNED, TOKEN);
        let check_as =
            |signed, token: &str| check(Some(&signature), signed, &["x".to_owned(), token.to_owned()], 0);
        assert_eq!(check_as(SIGNED, TOKEN), Ok(()));
        for other in [
            Signed { path: "/tmp/b", ..SIGNED },
            Signed { operation: SignedOperation::Write, ..SIGNED },
            Signed { user: "root", ..SIGNED },
            Signed { user: "", ..SIGNED },
            Signed { expiration: Some(99), ..SIGNED },
        ] {
            assert_eq!(check_as(other, TOKEN), Err(SignatureRefusal::Invalid), "{other:?}");
        }
        assert_eq!(check_as(SIGNED, "another token"), Err(SignatureRefusal::Invalid));
        assert_eq!(check(Some(&signature), SIGNED, &[], 0), Err(SignatureRefusal::Invalid), "no valid key");
        let own = [TOKEN.to_owned()];
        assert_eq!(check(None, SIGNED, &own, 0), Err(SignatureRefusal::Missing));
        assert_eq!(check(Some(""), SIGNED, &own, 0), Err(SignatureRefusal::Missing));
        assert_eq!(check(Some(&signature[..20]), SIGNED, &own, 0), Err(SignatureRefusal::Invalid));
    }

    #[test]
    fn a_valid_signature_expires() {
        let signed = Signed { expiration: Some(100), ..SIGNED };
        let (signature, own) = (sign(signed, TOKEN), [TOKEN.to_owned()]);
        assert_eq!(check(Some(&signature), signed, &own, 100), Ok(()));
        assert_eq!(check(Some(&signature), signed, &own, 101), Err(SignatureRefusal::Expired));
        assert_eq!(check(Some("v1_forged"), signed, &own, 101), Err(SignatureRefusal::Invalid));
    }
}
