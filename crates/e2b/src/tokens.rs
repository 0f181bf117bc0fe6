//! Tokens of a sandbox: signatures of its id, one for each purpose. They are not stored, and end with the sandbox. Links to upload the
//! files of a build have tokens of the same kind.

use std::fmt::Write;

use api::{SandboxId, TemplateId};
use ring::hmac;
use subtle::ConstantTimeEq as _;

const ACCESS: &[u8] = b"sandboxd e2b access token 1";
const TRAFFIC: &[u8] = b"sandboxd e2b traffic token 1";
const UPLOAD: &[u8] = b"sandboxd e2b upload token 1";
/// Part of the signature in a token: 160 bits.
const TOKEN_BYTES: usize = 20;

/// Signs and verifies tokens.
#[derive(Clone)]
pub struct Tokens(hmac::Key);

impl Tokens {
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The token for files and processes.
    pub fn access(&self, id: &SandboxId) -> String {
        self.sign(ACCESS, id.as_str())
    }

    /// The token for ports.
    pub fn traffic(&self, id: &SandboxId) -> String {
        self.sign(TRAFFIC, id.as_str())
    }

    /// Constant in time.
    pub fn is_traffic_token(&self, id: &SandboxId, text: &str) -> bool {
        self.traffic(id).as_bytes().ct_eq(text.as_bytes()).into()
    }

    /// The token of a link to upload the files with a hash for a build.
    pub fn upload(&self, id: &TemplateId, hash: &str) -> String {
        self.sign(UPLOAD, &format!("{id} {hash}"))
    }

    /// Constant in time.
    pub fn is_upload_token(&self, id: &TemplateId, hash: &str, text: &str) -> bool {
        self.upload(id, hash).as_bytes().ct_eq(text.as_bytes()).into()
    }

    fn sign(&self, purpose: &[u8], subject: &str) -> String {
        // Unambiguous: no purpose contains a NUL.
        let tag = hmac::sign(&self.0, &[purpose, b"\0", subject.as_bytes()].concat());
        let mut text = String::with_capacity(2 * TOKEN_BYTES);
        for byte in tag.as_ref().iter().take(TOKEN_BYTES) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_one_sandbox_and_one_purpose() {
        let tokens = Tokens::new(&[1; 32]);
        let (one, two): (SandboxId, SandboxId) =
            ("sb_aaaaaaaa".parse().unwrap(), "sb_bbbbbbbb".parse().unwrap());
        let (access, traffic) = (tokens.access(&one), tokens.traffic(&one));
        assert!(access.len() == 40 && tokens.access(&one) == access);
        assert!(tokens.access(&two) != access && !tokens.is_traffic_token(&one, &access));
        assert!(tokens.is_traffic_token(&one, &traffic) && !tokens.is_traffic_token(&two, &traffic));
        let other = Tokens::new(&[2; 32]);
        assert!(other.access(&one) != access && !other.is_traffic_token(&one, &traffic));
        for wrong in ["", &traffic[1..], &traffic.to_uppercase().replace('0', "1")] {
            assert!(!tokens.is_traffic_token(&one, wrong), "{wrong}");
        }
    }
}
