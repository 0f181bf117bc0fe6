//! Fingerprints of certificates, as text and as digests.

use std::fmt;
use std::fmt::Write;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

const BYTES: usize = 32;
const PREFIX: &str = "sha256:";

/// The SHA-256 fingerprint of a certificate, to pin it.
///
/// ```
/// use sandboxd_client::Fingerprint;
/// let text = format!("sha256:{}", "0f".repeat(32));
/// let fingerprint: Fingerprint = text.parse()?;
/// assert_eq!(fingerprint.to_string(), text);
/// // As openssl prints it.
/// assert_eq!("0F:".repeat(32).trim_end_matches(':').parse(), Ok(fingerprint));
/// # Ok::<(), sandboxd_client::BadFingerprint>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; BYTES]);

/// The error for text that is not a fingerprint.
///
/// ```
/// let error = "0f".parse::<sandboxd_client::Fingerprint>().unwrap_err();
/// assert!(error.to_string().contains("sha256:"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFingerprint;

impl Fingerprint {
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate.as_ref()).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let mut digits = String::with_capacity(BYTES * 2);
        for c in text.strip_prefix(PREFIX).unwrap_or(text).chars().filter(|c| *c != ':') {
            digits.write_char(c).map_err(|_| BadFingerprint)?;
        }
        if digits.len() != BYTES * 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadFingerprint);
        }
        let mut bytes = [0; BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).map_err(|_| BadFingerprint)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for BadFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fingerprint is 'sha256:' and 64 hexadecimal digits")
    }
}

impl std::error::Error for BadFingerprint {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_a_sha256_is_read() {
        let digits = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
        let fingerprint: Fingerprint = digits.parse().unwrap();
        assert_eq!(fingerprint.to_string(), format!("sha256:{}", digits.to_lowercase()));
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        assert_eq!(format!("{fingerprint:?}"), fingerprint.to_string());
        for wrong in [
            String::new(),
            digits[1..].to_owned(),
            format!("{digits}0"),
            format!("sha1:{digits}"),
            format!("sha256:sha256:{digits}"),
            format!("{}g", &digits[1..]),
            format!("{}é", &digits[2..]),
            format!(" {digits}"),
        ] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(BadFingerprint), "{wrong}");
        }
    }

    #[test]
    fn a_certificate_has_the_hash_of_its_bytes() {
        let of = |bytes: &'static [u8]| Fingerprint::of_certificate(&CertificateDer::from(bytes)).to_string();
        // The well-known hash of nothing.
        assert_eq!(of(b""), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_ne!(of(b"a"), of(b"b"));
    }
}
