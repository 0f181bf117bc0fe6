//! The secret that signs port tokens: 32 random bytes in a file that only its owner can read, created at the first start.
//!
//! A token is signed for one exposure of one port and is not stored. Whoever has the file can make tokens for every private port;
//! replacing the file invalidates all tokens.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use api::SandboxId;
use rand::Rng;
use ring::hmac;
use rules::{SignedToken, TimeMs};
use store::ExposedPort;

pub const FILE: &str = "ports.secret";
const BYTES: usize = 32;
/// The prefix of the signed message, which separates tokens from signatures for other purposes.
const PURPOSE: &[u8] = b"sandboxd port token 1";

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot {action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} has {found} bytes, but a secret has {BYTES}; remove the file, and the next start creates a new one", path.display()
    )]
    Length { path: PathBuf, found: usize },
}

pub struct Secret(hmac::Key);

impl Secret {
    pub fn open(dir: &Path) -> Result<Self, SecretError> {
        Ok(Self::of(&read_or_create(dir, FILE)?))
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn random() -> Self {
        let mut secret = [0; BYTES];
        rand::rng().fill_bytes(&mut secret);
        Self::of(&secret)
    }

    fn of(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    pub fn sign(&self, id: &SandboxId, exposed: &ExposedPort, expires_at: TimeMs) -> SignedToken {
        let tag = hmac::sign(&self.0, &signed(id, exposed, expires_at.0));
        let mut mac = [0; 32];
        mac.copy_from_slice(tag.as_ref());
        SignedToken { expires_at_ms: expires_at.0, mac }
    }

    /// The expiry of a text that is a token for this exposure. The comparison takes constant time.
    pub fn verify(&self, text: &str, id: &SandboxId, exposed: &ExposedPort) -> Option<TimeMs> {
        let token = SignedToken::parse(text)?;
        let message = signed(id, exposed, token.expires_at_ms);
        hmac::verify(&self.0, &message, &token.mac).ok()?;
        Some(TimeMs(token.expires_at_ms))
    }
}

/// Reads the secret in a file of the data directory, or creates it.
pub fn read_or_create(dir: &Path, file: &str) -> Result<[u8; BYTES], SecretError> {
    let path = dir.join(file);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut secret = [0; BYTES];
            rand::rng().fill_bytes(&mut secret);
            base::replace_file(&path, &secret, 0o600).map_err(|source| SecretError::File {
                action: "write",
                path,
                source,
            })?;
            return Ok(secret);
        }
        Err(source) => return Err(SecretError::File { action: "read", path, source }),
    };
    let found = bytes.len();
    bytes.try_into().map_err(|_| SecretError::Length { path, found })
}

/// Unambiguous: all parts but the id have a fixed length, and the id has no NUL.
fn signed(id: &SandboxId, exposed: &ExposedPort, expires_at_ms: u64) -> Vec<u8> {
    let (port, expiry) = (exposed.port.to_be_bytes(), expires_at_ms.to_be_bytes());
    [PURPOSE, b"\0", id.as_str().as_bytes(), b"\0", &port, &exposed.seal, &expiry].concat()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use api::PortVisibility;

    use super::*;

    fn exposed(port: u16, seal: u8) -> ExposedPort {
        let (visibility, exposed_at) = (PortVisibility::Private, TimeMs(1));
        ExposedPort { port, visibility, auto_resume: true, exposed_at, seal: [seal; 16] }
    }

    #[test]
    fn a_token_opens_what_it_was_signed_for_and_nothing_else() {
        let (secret, other) = (Secret::random(), Secret::random());
        let (one, two): (SandboxId, SandboxId) =
            ("sb_aaaaaaaa".parse().unwrap(), "sb_bbbbbbbb".parse().unwrap());
        let token = secret.sign(&one, &exposed(80, 1), TimeMs(5000));
        let text = token.text();
        assert_eq!(secret.verify(&text, &one, &exposed(80, 1)), Some(TimeMs(5000)));
        assert_eq!(secret.verify(&text, &two, &exposed(80, 1)), None, "another sandbox");
        assert_eq!(secret.verify(&text, &one, &exposed(81, 1)), None, "another port");
        assert_eq!(secret.verify(&text, &one, &exposed(80, 2)), None, "another exposure");
        assert_eq!(other.verify(&text, &one, &exposed(80, 1)), None, "another secret");
        let longer = SignedToken { expires_at_ms: 6000, ..token }.text();
        assert_eq!(secret.verify(&longer, &one, &exposed(80, 1)), None, "a longer life");
        assert_eq!(secret.verify("", &one, &exposed(80, 1)), None);
    }

    #[test]
    fn the_secret_is_created_once_with_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let id: SandboxId = "sb_aaaaaaaa".parse().unwrap();
        let text = Secret::open(dir.path()).unwrap().sign(&id, &exposed(80, 1), TimeMs(9)).text();
        assert!(Secret::open(dir.path()).unwrap().verify(&text, &id, &exposed(80, 1)).is_some());
        let file = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "short").unwrap();
        let error = Secret::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(FILE) && error.contains("5 bytes"), "{error}");
    }
}
