//! The self-signed certificate: whether it is usable, and its creation. After a crash between the two writes the files do not match;
//! the next start notices that and creates both again.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use time::{Duration, OffsetDateTime};

use super::{SelfSigned, TlsError, der, files, read};

const VALIDITY: Duration = Duration::days(365);
/// The validity begins this long before the creation, for clients whose clocks are behind.
const BACKDATE: Duration = Duration::days(1);
/// The file of [`write_authorities`], beside the certificate.
pub const AUTHORITIES: &str = "tls-trust.pem";
/// Where distributions have the certificate authorities of the system. The first file that exists counts.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The certificate is renewed this long before it expires.
pub const RENEW: Duration = Duration::days(30);

/// Whether the stored certificate is used again.
#[derive(Debug, PartialEq, Eq)]
pub enum StoredCertificate {
    Keep,
    Create(&'static str),
}

/// The files of the certificate and of its key.
pub fn paths(own: &SelfSigned) -> (PathBuf, PathBuf) {
    (own.dir.join("tls-cert.pem"), own.dir.join("tls-key.pem"))
}

/// Whether the stored certificate stays usable for a while.
pub fn check_stored(own: &SelfSigned, now: OffsetDateTime) -> StoredCertificate {
    let (certificate, key) = paths(own);
    if !certificate.exists() || !key.exists() {
        return StoredCertificate::Create("there was none");
    }
    let Ok(loaded) = read(&certificate, &key) else {
        return StoredCertificate::Create("the old one was unusable");
    };
    if loaded.certificate.not_after - now < RENEW {
        return StoredCertificate::Create("the old one expires soon");
    }
    let Ok(chain) = files::chain(&certificate) else {
        return StoredCertificate::Create("the old one was unreadable");
    };
    if chain.first().and_then(|first| der::not_before(first)).is_none_or(|start| start > now) {
        return StoredCertificate::Create("the old one is not valid yet");
    }
    let covers = |name: &String| chain.first().is_some_and(|first| is_for(first, name));
    if own.names.iter().all(covers) {
        StoredCertificate::Keep
    } else {
        StoredCertificate::Create("the names have changed")
    }
}

/// Whether a certificate is for this name or address. `*.NAME` stands for the names right below.
pub fn is_for(certificate: &[u8], name: &str) -> bool {
    let (certificate, name) = (CertificateDer::from(certificate), example(name));
    let (Ok(parsed), Ok(name)) =
        (ParsedCertificate::try_from(&certificate), ServerName::try_from(name.as_str()))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Whether a certificate can be for this name or address. `*.NAME` stands for the names right below.
pub fn is_name(name: &str) -> bool {
    ServerName::try_from(example(name)).is_ok()
}

/// A name that the certificate must cover; for a wildcard a name below it.
fn example(name: &str) -> String {
    let parent = name.strip_prefix("*.").filter(|parent| !parent.is_empty());
    parent.map_or_else(|| name.to_owned(), |parent| format!("any.{parent}"))
}

/// Creates a certificate with a new key and stores both.
pub fn create(own: &SelfSigned, now: OffsetDateTime) -> Result<(), TlsError> {
    let bad = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::BadNames {
        names: own.names.clone(),
        source,
    };
    if own.names.is_empty() {
        return Err(bad("there are none".into()));
    }
    if let Some(name) = own.names.iter().find(|name| !is_name(name)) {
        return Err(bad(format!("{name:?} is neither").into()));
    }
    let mut params = CertificateParams::new(own.names.clone()).map_err(|e| bad(e.into()))?;
    params.not_before = now - BACKDATE;
    params.not_after = now + VALIDITY;
    params.distinguished_name.push(DnType::CommonName, "sandboxd self-signed");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(|e| bad(e.into()))?;
    let certificate = params.self_signed(&key).map_err(|e| bad(e.into()))?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&own.dir).map_err(|source| TlsError::File {
        action: "create",
        path: own.dir.clone(),
        source,
    })?;
    let (certificate_path, key_path) = paths(own);
    files::write(&key_path, &key.serialize_pem(), 0o600)?;
    files::write(&certificate_path, &certificate.pem(), 0o644)
}

/// Writes the authorities of the system and the certificate into one file, for programs that trust the authorities of one file only:
/// with the certificate alone they could not use any other service.
pub fn write_authorities(own: &SelfSigned) -> Result<(), TlsError> {
    let (certificate, _) = paths(own);
    let unreadable = |source| TlsError::File { action: "read", path: certificate.clone(), source };
    let certificate_text = fs::read_to_string(&certificate).map_err(unreadable)?;
    let system = SYSTEM_AUTHORITIES.iter().find_map(|path| fs::read_to_string(path).ok());
    let text = list(&system.unwrap_or_default(), &certificate_text);
    let path = own.dir.join(AUTHORITIES);
    if fs::read_to_string(&path).is_ok_and(|stored| stored == text) {
        return Ok(());
    }
    files::write(&path, &text, 0o644)
}

/// One PEM file from two. The last line of the first may have no end.
fn list(system: &str, certificate: &str) -> String {
    let end = if system.is_empty() || system.ends_with('\n') { "" } else { "\n" };
    format!("{system}{end}{certificate}")
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn a_certificate_begins_on_a_line_of_its_own() {
        assert_eq!(list("", "own\n"), "own\n");
        assert_eq!(list("system\n", "own\n"), "system\nown\n");
        assert_eq!(list("system", "own\n"), "system\nown\n");
    }
}
