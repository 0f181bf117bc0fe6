//! The file `local.json` in the data directory: the URL of this service for clients on this host, and the certificate that it serves.
//! Clients that have no URL read it (`crates/client/src/local_service.rs`).
//!
//! `serve` writes it before the ready message, and again when the certificate has changed, so that a copy of the data directory on
//! another host or with another configuration is correct after its first start. If it cannot be written, the error is logged and the old
//! file is removed: clients then use the default URL.

use std::path::PathBuf;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::first_key::SERVICE_FILE;
use crate::private_file;

/// What the file describes.
#[derive(Clone)]
pub struct LocalService {
    pub data_dir: PathBuf,
    /// The URL for clients on this host.
    pub url: String,
    /// The certificate in use, if the service has one.
    pub tls: Option<listen::Tls>,
}

/// The file as clients read it.
#[derive(Serialize)]
struct ServiceDescription<'a> {
    url: &'a str,
    /// The PEM file of the certificate, for clients that cannot pin its fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    /// Of the certificate, whose names may not include the host of the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

impl LocalService {
    /// Writes the file; returns the certificate that it describes. Blocks.
    pub fn write(&self) -> Option<listen::Certificate> {
        let served = self.tls.as_ref().map(listen::Tls::certificate);
        let path = self.data_dir.join(SERVICE_FILE);
        let written = serde_json::to_string(&content(&self.url, served.as_ref()))
            .map_err(std::io::Error::from)
            .and_then(|text| private_file::write(&path, &text));
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), %error, "clients on this host cannot learn the address of the service");
            let _ = std::fs::remove_file(&path);
        }
        served
    }

    /// Writes the file again for each new certificate, until `stop`. `described` is the certificate that the file describes.
    pub async fn keep_current(self, described: Option<listen::Certificate>, stop: CancellationToken) {
        let (Some(tls), Some(mut described)) = (&self.tls, described) else { return };
        while stop.run_until_cancelled(tls.replaced(&described)).await.is_some() {
            let service = self.clone();
            // A disk may hang, so the file is not written on an async worker.
            let written = tokio::task::spawn_blocking(move || service.write()).await;
            let Ok(Some(certificate)) = written else { return };
            described = certificate;
        }
    }
}

fn content<'a>(url: &'a str, certificate: Option<&listen::Certificate>) -> ServiceDescription<'a> {
    let path = |certificate: &listen::Certificate| {
        let file = &certificate.file;
        std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string()
    };
    ServiceDescription { url, certificate: certificate.map(path), fingerprint: certificate.map(fingerprint) }
}

fn fingerprint(certificate: &listen::Certificate) -> String {
    let digest = Sha256::digest(&certificate.der[..]);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use listen::{SelfSigned, Tls, TlsConfig};
    use serde_json::Value;

    use super::*;

    fn stored(dir: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(dir.join(SERVICE_FILE)).unwrap()).unwrap()
    }

    #[test]
    fn a_service_with_tls_has_a_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let own = SelfSigned { dir: dir.path().join("tls"), names: vec!["other.example".to_owned()] };
        let tls = Tls::load(TlsConfig::SelfSigned(own)).unwrap();
        let url = "https://127.0.0.1:18243".to_owned();
        let service = LocalService { data_dir: dir.path().to_owned(), url, tls: Some(tls.clone()) };
        assert_eq!(service.write(), Some(tls.certificate()));
        let stored = stored(dir.path());
        assert_eq!(stored["url"], "https://127.0.0.1:18243");
        let file = dir.path().join("tls/tls-cert.pem").display().to_string();
        assert_eq!(stored["certificate"], file);
        assert_eq!(stored["fingerprint"].as_str().unwrap().len(), "sha256:".len() + 64);
    }

    #[test]
    fn a_service_without_tls_has_a_url_only() {
        let dir = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:8080".to_owned();
        let service = LocalService { data_dir: dir.path().to_owned(), url, tls: None };
        assert_eq!(service.write(), None);
        assert_eq!(stored(dir.path()), serde_json::json!({"url": "http://127.0.0.1:8080"}));
    }

    /// An old file would lead clients to the address of an earlier start.
    #[test]
    fn a_file_that_cannot_be_replaced_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(SERVICE_FILE), "{}").unwrap();
        // The draft cannot be created.
        std::fs::create_dir(dir.path().join("local.json.new")).unwrap();
        let url = "http://127.0.0.1:8080".to_owned();
        LocalService { data_dir: dir.path().to_owned(), url, tls: None }.write();
        assert!(!dir.path().join(SERVICE_FILE).exists());
    }
}
