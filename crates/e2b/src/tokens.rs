//! Tokens: signatures, one for each purpose, of what they allow and of the id of the API key that they were shown to. They are not stored.
//! A token for files and processes or for ports ends with its sandbox, a token of a link to upload files of a build with the build, and
//! each of them with its key: a token is compared with those of the account's valid keys.
//!
//! ```text
//! KEY_ID.SIGNATURE
//! ```

use std::fmt::Write;

use api::{SandboxId, TemplateId};
use ring::hmac;
use subtle::ConstantTimeEq as _;

use admission::keyring::Caller;

const ACCESS: &[u8] = b"sandboxd e2b access token 2";
const TRAFFIC: &[u8] = b"sandboxd e2b traffic token 2";
const UPLOAD: &[u8] = b"sandboxd e2b upload token 2";
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
    pub fn access(&self, id: &SandboxId, key_id: &str) -> String {
        self.sign(ACCESS, key_id, id.as_str())
    }

    /// The token for ports.
    pub fn traffic(&self, id: &SandboxId, key_id: &str) -> String {
        self.sign(TRAFFIC, key_id, id.as_str())
    }

    /// The token of a link to upload the files with a hash for a build.
    pub fn upload(&self, id: &TemplateId, hash: &str, key_id: &str) -> String {
        self.sign(UPLOAD, key_id, &format!("{id} {hash}"))
    }

    fn sign(&self, purpose: &[u8], key_id: &str, subject: &str) -> String {
        // Unambiguous: neither a purpose nor a key id contains a NUL.
        let message = [purpose, b"\0", key_id.as_bytes(), b"\0", subject.as_bytes()].concat();
        let tag = hmac::sign(&self.0, &message);
        let mut text = format!("{key_id}.");
        for byte in tag.as_ref().iter().take(TOKEN_BYTES) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// The key of a token among valid keys. `sign` makes the token of a key. Constant in time, except for the id of the key, which is no
/// secret.
pub fn key_of<'a>(text: &str, keys: &'a [Caller], sign: impl Fn(&str) -> String) -> Option<&'a Caller> {
    let (key_id, _) = text.split_once('.')?;
    let key = keys.iter().find(|key| *key.key_id == *key_id)?;
    bool::from(sign(key_id).as_bytes().ct_eq(text.as_bytes())).then_some(key)
}

#[cfg(test)]
mod tests {
    use rules::Scopes;

    use super::*;

    fn keys(ids: &[&str]) -> Vec<Caller> {
        let scopes: Scopes = "read".parse().unwrap();
        ids.iter()
            .map(|id| Caller {
                account: "one".into(),
                key_id: (*id).into(),
                scopes,
                limits: rules::KeyLimits::default(),
            })
            .collect()
    }

    #[test]
    fn a_token_is_for_one_sandbox_one_purpose_and_one_key() {
        let tokens = Tokens::new(&[1; 32]);
        let (one, two): (SandboxId, SandboxId) =
            ("sb_aaaaaaaa".parse().unwrap(), "sb_bbbbbbbb".parse().unwrap());
        let (access, traffic) = (tokens.access(&one, "key_a"), tokens.traffic(&one, "key_a"));
        assert!(access.len() == "key_a.".len() + 40 && tokens.access(&one, "key_a") == access);
        assert_ne!(tokens.access(&one, "key_b")["key_b.".len()..], access["key_a.".len()..]);
        let is_traffic = |tokens: &Tokens, id: &SandboxId, text: &str, ids: &[&str]| {
            key_of(text, &keys(ids), |key| tokens.traffic(id, key)).is_some()
        };
        let both = ["key_b", "key_a"];
        assert!(tokens.access(&two, "key_a") != access && !is_traffic(&tokens, &one, &access, &both));
        assert!(is_traffic(&tokens, &one, &traffic, &both) && !is_traffic(&tokens, &two, &traffic, &both));
        assert!(!is_traffic(&tokens, &one, &traffic, &["key_b"]), "the key was revoked");
        assert!(!is_traffic(&Tokens::new(&[2; 32]), &one, &traffic, &both));
        let forged = traffic.replace("key_a", "key_b");
        for wrong in ["", ".", "key_a", "key_a.", &traffic[1..], &forged, &traffic[..traffic.len() - 1]] {
            assert!(!is_traffic(&tokens, &one, wrong, &both), "{wrong}");
        }
    }
}
