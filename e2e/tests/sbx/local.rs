//! `sbx` finds the service of this machine by its data directory, whatever its address and its certificate are.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use e2e::service::{Service, ServiceOptions};
use e2e::wait_until;
use rcgen::{CertificateParams, KeyPair};

use crate::{TestUser, code, text};

/// Writes a certificate that is not for 127.0.0.1, and its key. Returns the certificate.
fn write_certificate(dir: &Path) -> String {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    // The key first: a certificate with another key is not accepted.
    std::fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(dir.join("cert.pem"), &pem).unwrap();
    pem
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_its_own_certificate_is_found_by_its_data_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("{:?}", dir.path().join(name));
    let options = ServiceOptions::default()
        .with("http", "tls", "\"files\"")
        .with("http", "tls_cert", &path("cert.pem"))
        .with("http", "tls_key", &path("key.pem"));
    let service = Service::new(&options).unwrap();
    // The test's client searches the certificate in the data directory, and uses the name `localhost`.
    let trusted = service.layout.data.join("trusted.pem");
    std::fs::write(&trusted, write_certificate(dir.path())).unwrap();
    service.start_process().await.unwrap();
    let user = TestUser { service, home: tempfile::tempdir().unwrap(), key: String::new() };
    let sbx = |words: &[&str]| {
        let mut sbx = user.sbx_without_login();
        let output = sbx.env("SANDBOXD_DATA_DIR", &user.service.layout.data).args(words).output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let success = (0, String::new());
    assert_eq!(sbx(&["ls"]), success);
    let file = user.service.layout.data.join("local.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    // A login finds it, too.
    let (failed, stderr) = sbx(&["login"]);
    assert!(failed == 125 && stderr.contains(&user.url()) && stderr.contains("--fingerprint"), "{stderr}");
    // A URL that the user gives is authenticated as usual.
    let (failed, stderr) = sbx(&["--url", &user.url(), "ls"]);
    assert!(failed == 125 && stderr.contains("certificate"), "{stderr}");

    let before = std::fs::read(&file).unwrap();
    std::fs::write(&trusted, write_certificate(dir.path())).unwrap();
    wait_until("the file describes the new certificate", async || std::fs::read(&file).unwrap() != before)
        .await;
    assert_eq!(sbx(&["ls"]), success);

    std::fs::write(&file, "{}").unwrap();
    let (failed, stderr) = sbx(&["ls"]);
    assert!(failed == 125 && stderr.contains("local.json is malformed; a restart"), "{stderr}");
    user.service.restart().await.unwrap();
    assert_eq!(sbx(&["ls"]), success);
}
