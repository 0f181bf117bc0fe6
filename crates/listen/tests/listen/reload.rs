//! Reloading of certificates.

use std::path::Path;

use listen::{SelfSigned, Tls, TlsConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::kit::*;

/// A certificate and key of an operator.
fn pair(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    let own = SelfSigned { dir: dir.to_owned(), names: vec!["localhost".into()] };
    Tls::load(TlsConfig::SelfSigned(own)).unwrap();
    (std::fs::read(dir.join("tls-cert.pem")).unwrap(), std::fs::read(dir.join("tls-key.pem")).unwrap())
}

/// Whether a new connection gets this certificate.
async fn serves(server: &Running, certificate: &[u8]) -> bool {
    let certificate = CertificateDer::from_pem_slice(certificate).unwrap();
    tls(server.tcp().await, certificate, &["http/1.1"]).await.is_ok()
}

async fn until_it_serves(server: &Running, certificate: &[u8]) {
    let turned = async {
        while !serves(server, certificate).await {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let begun = std::time::Instant::now();
    in_time("the new certificate", turned).await;
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_new_certificate_is_used_and_an_invalid_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (pair(&dir.path().join("a")), pair(&dir.path().join("b")));
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, &first.0).unwrap();
    std::fs::write(&key, &first.1).unwrap();
    let mut start = Start::new(Kind::Https);
    start.config = Some(TlsConfig::Own { certificate: certificate.clone(), key: key.clone() });
    let server = start.go().await;
    assert!(serves(&server, &first.0).await && !serves(&server, &second.0).await);
    let mut open = server.tls(&["http/1.1"]).await;

    // An invalid file, and then a certificate that does not match the key. The watcher checks every second.
    for broken in [&b"garbage"[..], &second.0] {
        std::fs::write(&certificate, broken).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        assert!(serves(&server, &first.0).await, "the old one stays in use");
    }
    std::fs::write(&key, &second.1).unwrap();
    until_it_serves(&server, &second.0).await;
    assert!(!serves(&server, &first.0).await);
    send(&mut open, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(read_response(&mut open).await.body, "hello", "open connections are not disturbed");

    // Deleted files, as between two steps of a renewal.
    std::fs::remove_file(&certificate).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert!(serves(&server, &second.0).await);
    std::os::unix::fs::symlink(dir.path().join("a/tls-cert.pem"), &certificate).unwrap();
    std::fs::write(&key, &first.1).unwrap();
    until_it_serves(&server, &first.0).await;
    assert_eq!(server.tls.as_ref().unwrap().certificate().file, certificate);
}

#[tokio::test]
async fn a_deleted_self_signed_certificate_is_recreated() {
    let server = start(Kind::Https).await;
    let old = std::fs::read(server.certificate()).unwrap();
    std::fs::remove_file(server.certificate()).unwrap();
    let remade = async {
        while std::fs::read(server.certificate()).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    in_time("a new file", remade).await;
    let new = std::fs::read(server.certificate()).unwrap();
    assert_ne!(old, new);
    until_it_serves(&server, &new).await;
}
