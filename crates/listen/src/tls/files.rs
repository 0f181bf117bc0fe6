//! Reads and writes the PEM files and detects changes. A write is atomic, and a key file is created with its final permissions.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// Limit of a file, far above the size of certificate chains.
const MAX_BYTES: u64 = 1024 * 1024;

/// The state of the files when they were read. Links are followed, so that a changed link is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState(Vec<Option<[i128; 5]>>);

impl FileState {
    pub fn of(paths: &[&Path]) -> Self {
        let look = |path: &&Path| {
            let m = fs::metadata(path).ok()?;
            Some([m.dev().into(), m.ino().into(), m.size().into(), m.mtime().into(), m.mtime_nsec().into()])
        };
        Self(paths.iter().map(look).collect())
    }
}

/// The certificates in a file, in its order.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(path)?).collect();
    let chain = chain.map_err(|e| not_pem(path, e))?;
    if chain.is_empty() {
        return Err(TlsError::Missing { path: path.to_owned(), what: "certificate", begin: "CERTIFICATE" });
    }
    Ok(chain)
}

/// What the PEM of an encrypted key has: in its first line (PKCS#8), or in a header.
const ENCRYPTED: [&str; 2] = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];

/// The first private key in a file: PKCS#8, PKCS#1 or SEC1.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = bytes(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(_) if is_encrypted(&text) => Err(TlsError::EncryptedKey { path: path.to_owned() }),
        Err(pem::Error::NoItemsFound) => {
            Err(TlsError::Missing { path: path.to_owned(), what: "private key", begin: "PRIVATE KEY" })
        }
        Err(e) => Err(not_pem(path, e)),
    }
}

fn is_encrypted(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    ENCRYPTED.iter().any(|mark| text.contains(mark))
}

fn not_pem(path: &Path, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TlsError {
    TlsError::NotPem { path: path.to_owned(), source: cause.into() }
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::File { action: "read", path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_BYTES {
        return Err(not_pem(path, format!("it has {length} bytes; at most {MAX_BYTES} are allowed")));
    }
    fs::read(path).map_err(failed)
}

/// Replaces `path` by `text` atomically and durably.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let failed = |source| TlsError::File { action: "write", path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    let permissions = fs::Permissions::from_mode(mode);
    let mut file = tempfile::Builder::new()
        .prefix(".tls-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(dir)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().set_permissions(permissions).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        let pkcs8 = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIFHDBO\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let pkcs1 = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIF\n\
                     -----END RSA PRIVATE KEY-----\n";
        for text in [pkcs8, pkcs1] {
            fs::write(&path, text).unwrap();
            let error = key(&path).unwrap_err();
            assert!(error.to_string().contains("is encrypted"), "{error}");
            assert_eq!(error.file(), Some(&*path));
        }
        fs::write(&path, "").unwrap();
        assert!(key(&path).unwrap_err().to_string().contains("has no private key"));
    }
}
