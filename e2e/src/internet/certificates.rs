//! A certificate authority and the certificate of all web servers of this internet.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// Names in the certificate besides those below [`super::ZONE`].
pub const OTHER_NAMES: [&str; 4] = ["dns.google", "cloudflare-dns.com", "one.one.one.one", "dns.quad9.net"];

/// The directory of the files.
#[derive(Debug, Clone)]
pub struct Certificates {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Certificates {
    pub fn make(dir: &Path) -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "authority of a test's internet");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let names = [super::ZONE.to_owned(), format!("*.{}", super::ZONE)];
        let names: Vec<String> =
            names.into_iter().chain(OTHER_NAMES.map(str::to_owned)).chain(["1.1.1.1".to_owned()]).collect();
        let mut server = CertificateParams::new(names)?;
        server.use_authority_key_identifier_extension = true;
        server.distinguished_name.push(DnType::CommonName, "servers of a test's internet");
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;
        let files = Self {
            authority: dir.join("authority.pem"),
            certificate: dir.join("server.pem"),
            key: dir.join("server-key.pem"),
        };
        std::fs::write(&files.authority, authority.pem())?;
        std::fs::write(&files.certificate, certificate.pem())?;
        std::fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }
}
