//! The secret that all hosts with one object store share. It authenticates manifests and notes, so that nobody who can only write to the
//! object store can make one, change one, or pass one off as another.
//!
//! The file has one secret in a line. The first one authenticates what this host stores; all of them are accepted, so that a secret can
//! be replaced host by host. Called by [`crate::Archive`]; a file that cannot be used stops the start of the service.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rand::Rng;
use ring::hmac;

const SECRET_BYTES: usize = 32;
/// Secrets in a file: the present one, and former ones until every host has the present one.
const MOST_SECRETS: usize = 8;
/// More than the file of the most secrets can have.
const FILE_BYTES: u64 = 4096;
const KEY_ID_BYTES: usize = 8;
const CODE_BYTES: usize = 32;

/// Tells secrets apart without revealing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId([u8; KEY_ID_BYTES]);

/// The authentication code of an object: HMAC-SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Of the secret that it was computed with.
    pub key: KeyId,
    bytes: [u8; CODE_BYTES],
}

/// Why an object is not accepted as one of a host that has the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unauthentic {
    #[error(
        "it has no authentication code, because an earlier release has stored it; start this release on the host that has stored it, \
         or, if that host is lost and nobody else can write to the object store, set snapshots.accept_unauthenticated = true"
    )]
    NoCode,
    #[error(
        "it is authenticated with the secret {found}, and this host has {}; give both hosts the same file snapshots.secret_file",
        list(.own)
    )]
    OtherSecret { found: KeyId, own: Vec<KeyId> },
    #[error(
        "its authentication code is wrong: it was written, changed or moved by somebody who lacks the secret"
    )]
    WrongCode,
}

fn list(ids: &[KeyId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// As in the header of an object: the secret's id and the code.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.key)?;
        write_hex(f, &self.bytes)
    }
}

impl Code {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, code) = text.split_once(' ')?;
        Some(Self { key: KeyId(parse_hex(key)?), bytes: parse_hex(code)? })
    }
}

/// Whether an object without an authentication code, which an earlier release has stored, is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutCode {
    Refuse,
    Accept,
}

struct ManifestKey {
    id: KeyId,
    key: hmac::Key,
}

/// The secrets of this host.
pub struct Secrets {
    first: ManifestKey,
    /// Former ones.
    others: Vec<ManifestKey>,
    without_code: WithoutCode,
}

impl fmt::Debug for Secrets {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("ids", &list(&self.ids())).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Reads the file. Fails if it does not exist: a new secret in place of the one of the other hosts would only be noticed later.
    pub fn read(path: &Path, without_code: WithoutCode) -> io::Result<Self> {
        let of_file = |reason: &dyn fmt::Display| {
            io::Error::other(format!("snapshots.secret_file is {}: {reason}", path.display()))
        };
        let file = File::open(path).map_err(|error| {
            of_file(&format!(
                "{error}; copy the file of a host that uses the same object store, or make one with 'openssl rand -hex 32' and \
                 chmod 600"
            ))
        })?;
        let about = file.metadata()?;
        if !about.is_file() || about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o7777;
            return Err(of_file(&format!(
                "its mode is {mode:o}; it must be a file that only its owner can read (chmod 600)"
            )));
        }
        let mut text = String::new();
        file.take(FILE_BYTES).read_to_string(&mut text)?;
        Self::parse(&text, without_code).map_err(|reason| of_file(&reason))
    }

    /// Reads the file, and makes one with a random secret if there is none.
    pub fn read_or_create(path: &Path, without_code: WithoutCode) -> io::Result<Self> {
        if !path.try_exists()? {
            create(path)?;
        }
        Self::read(path, without_code)
    }

    /// Parses the text of the file.
    pub fn parse(text: &str, without_code: WithoutCode) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.len() > MOST_SECRETS {
            return Err(format!("it has {} secrets; allowed: 1 to {MOST_SECRETS}", lines.len()));
        }
        let secret = |line: &&str| {
            let bytes: [u8; SECRET_BYTES] = parse_hex(line).ok_or_else(|| {
                format!("a line is not a secret; allowed: {} hexadecimal digits in a line", 2 * SECRET_BYTES)
            })?;
            Ok(ManifestKey::new(&bytes))
        };
        let mut secrets = lines.iter().map(secret).collect::<Result<Vec<_>, String>>()?.into_iter();
        let first = secrets.next().ok_or("it is empty; it must have a secret")?;
        Ok(Self { first, others: secrets.collect(), without_code })
    }

    fn all(&self) -> impl Iterator<Item = &ManifestKey> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn ids(&self) -> Vec<KeyId> {
        self.all().map(|secret| secret.id).collect()
    }

    /// The code of `parts`, whose first one names what it is.
    pub fn code(&self, parts: &[&str]) -> Code {
        self.first.code(parts)
    }

    /// Whether a code is of the secret that this host uses.
    pub fn is_current(&self, code: Option<Code>) -> bool {
        code.is_some_and(|code| code.key == self.first.id)
    }

    /// Checks the code of `parts`.
    pub fn verify(&self, parts: &[&str], code: Option<Code>) -> Result<(), Unauthentic> {
        let Some(code) = code else {
            return match self.without_code {
                WithoutCode::Accept => Ok(()),
                WithoutCode::Refuse => Err(Unauthentic::NoCode),
            };
        };
        let secret = self.all().find(|secret| secret.id == code.key);
        let secret = secret.ok_or_else(|| Unauthentic::OtherSecret { found: code.key, own: self.ids() })?;
        // Compares in constant time.
        hmac::verify(&secret.key, &message(parts), &code.bytes).map_err(|_| Unauthentic::WrongCode)
    }
}

impl ManifestKey {
    fn new(bytes: &[u8; SECRET_BYTES]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let mut id = [0; KEY_ID_BYTES];
        for (to, from) in id.iter_mut().zip(hmac::sign(&key, &message(&["sandboxd-secret"])).as_ref()) {
            *to = *from;
        }
        Self { id: KeyId(id), key }
    }

    fn code(&self, parts: &[&str]) -> Code {
        let mut bytes = [0; CODE_BYTES];
        bytes.copy_from_slice(hmac::sign(&self.key, &message(parts)).as_ref());
        Code { key: self.id, bytes }
    }
}

/// Each part with its length, so that no other parts give the same message.
fn message(parts: &[&str]) -> Vec<u8> {
    let mut message = Vec::new();
    for part in parts {
        message.extend((part.len() as u64).to_be_bytes());
        message.extend(part.as_bytes());
    }
    message
}

/// Creates the file with a random secret. Another process that does the same at once wins or loses as a whole.
fn create(path: &Path) -> io::Result<()> {
    let mut secret = [0; SECRET_BYTES];
    rand::rng().fill_bytes(&mut secret);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    base::replace_file(path, format!("{hex}\n").as_bytes(), 0o600)
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn parse_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let is_digits = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !is_digits || text.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn secrets(lines: &[char]) -> Secrets {
        let text: String = lines.iter().map(|digit| format!("{}\n", digit.to_string().repeat(64))).collect();
        Secrets::parse(&text, WithoutCode::Refuse).unwrap()
    }

    #[test]
    fn a_code_is_of_one_secret_and_of_all_its_parts() {
        let one = secrets(&['a']);
        let code = one.code(&["kind", "id", "content"]);
        assert_eq!(Code::parse(&code.to_string()), Some(code));
        assert_eq!(one.verify(&["kind", "id", "content"], Some(code)), Ok(()));
        for parts in [
            &["kind", "id", "other"][..],
            &["kind", "i", "dcontent"],
            &["kind", "id"],
            &["other", "id", "content"],
        ] {
            assert_eq!(one.verify(parts, Some(code)), Err(Unauthentic::WrongCode), "{parts:?}");
        }
        let forged = Code { bytes: [0; CODE_BYTES], ..code };
        assert_eq!(one.verify(&["kind", "id", "content"], Some(forged)), Err(Unauthentic::WrongCode));
        assert_eq!(one.verify(&["kind"], None), Err(Unauthentic::NoCode));
        let lenient = Secrets { without_code: WithoutCode::Accept, ..secrets(&['a']) };
        assert_eq!(lenient.verify(&["kind"], None), Ok(()));
        assert!(lenient.verify(&["kind"], Some(forged)).is_err());
    }

    #[test]
    fn a_secret_is_replaced_host_by_host() {
        let (old, both, new) = (secrets(&['a']), secrets(&['b', 'a']), secrets(&['b']));
        let parts = &["kind", "id"][..];
        assert_eq!(both.verify(parts, Some(old.code(parts))), Ok(()));
        assert_eq!(new.verify(parts, Some(both.code(parts))), Ok(()));
        let error = new.verify(parts, Some(old.code(parts))).unwrap_err();
        assert!(matches!(error, Unauthentic::OtherSecret { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&old.first.id.to_string()) && text.contains("secret_file"), "{text}");
        assert!(!text.contains(&"a".repeat(64)) && !format!("{both:?}").contains(&"b".repeat(64)));
        assert!(both.is_current(Some(new.code(parts))) && !both.is_current(Some(old.code(parts))));
    }

    #[test]
    fn the_file_is_private_and_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshots.secret");
        let missing = Secrets::read(&path, WithoutCode::Refuse).unwrap_err().to_string();
        assert!(missing.contains("snapshots.secret_file") && missing.contains("copy"), "{missing}");
        let first = Secrets::read_or_create(&path, WithoutCode::Refuse).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let second = Secrets::read_or_create(&path, WithoutCode::Refuse).unwrap();
        assert_eq!(first.ids(), second.ids());
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = Secrets::read(&path, WithoutCode::Refuse).unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn a_malformed_file_is_refused_without_its_content() {
        let many = format!("{}\n", "a".repeat(64)).repeat(MOST_SECRETS + 1);
        for (text, reason) in [
            ("", "empty"),
            ("hunter2", "64 hexadecimal digits"),
            (&"a".repeat(63), "64"),
            (&"A".repeat(64), "64"),
            (&many, "allowed: 1 to 8"),
        ] {
            let error = Secrets::parse(text, WithoutCode::Refuse).unwrap_err();
            assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
        }
    }
}
