//! Operation of the service: metrics, reload of certificates, the lock on the data directory.

use std::path::Path;
use std::sync::Arc;

use e2e::service::{Service, ServiceOptions, sample};
use serde_json::json;

use crate::ports::open_port;
use crate::{SANDBOXES, action_path, create_sandbox, wait_until};

#[tokio::test]
async fn metrics_count_operations_and_port_traffic() {
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (one, two) = (create_sandbox(&client).await, create_sandbox(&client).await);
    client.post_empty(&action_path(&two, "pause")).await.unwrap().is(200).unwrap();
    for _ in 0..3 {
        client
            .post(&action_path(&one, "execute"), &json!({ "command": "true" }))
            .await
            .unwrap()
            .is(200)
            .unwrap();
    }
    client
        .with_authorization("Bearer nonsense")
        .get(SANDBOXES)
        .await
        .unwrap()
        .error(401, "UNAUTHORIZED")
        .unwrap();
    let samples = service.read_metrics().await.unwrap();
    let count = |name: &str, labels: &[&str]| sample(&samples, name, labels);
    let requests = "sandboxd_http_requests_total";
    assert_eq!(count(requests, &["POST", "execute", "200"]), 3.0, "{samples}");
    assert_eq!(count(requests, &["POST", "/v1/sandboxes\"", "201"]), 2.0, "{samples}");
    assert!(count("sandboxd_http_refusals_total", &["unauthorized"]) >= 1.0, "{samples}");
    assert_eq!(count("sandboxd_sandboxes", &["running"]), 1.0, "{samples}");
    assert_eq!(count("sandboxd_sandboxes", &["paused"]), 1.0, "{samples}");
    let (_, port_client) = open_port(&service, &client).await;
    assert_eq!(port_client.get("/status?404").await.status, 404);
    assert_eq!(port_client.get("/").await.status, 200);
    assert_eq!(port_client.without_token().get("/").await.status, 401);
    let samples = service.read_metrics().await.unwrap();
    let count = |name: &str, labels: &[&str]| sample(&samples, name, labels);
    assert_eq!(count("sandboxd_port_requests_total", &["2xx"]), 1.0, "{samples}");
    assert_eq!(count("sandboxd_port_requests_total", &["4xx"]), 1.0, "{samples}");
    assert_eq!(count("sandboxd_port_refusals_total", &["UNAUTHORIZED"]), 1.0, "{samples}");
    assert!(count("sandboxd_port_bytes_total", &["out"]) > 100.0, "{samples}");
    for name in alerting_metrics() {
        // A counter without a sample has a type only, and `increase` does not see its first increase.
        let is_counter = name.ends_with("_total");
        let has_sample = samples.lines().any(|line| line.starts_with(name));
        let is_there = has_sample || (!is_counter && samples.contains(name));
        assert!(is_there, "{name} is not in:\n{samples}");
    }
    // The format of scrapers that do not ask for OpenMetrics.
    assert!(samples.contains("# TYPE sandboxd_executions_started_total counter"), "{samples}");
    // No ids: they would make as many series as there are sandboxes.
    assert!(
        !samples.contains(&one) && !samples.contains("account-") && !samples.contains("sbk_"),
        "{samples}"
    );
}

/// The metrics that the alert rules use.
fn alerting_metrics() -> impl Iterator<Item = &'static str> {
    include_str!("../../../docs/alerts.yml")
        .split(|other: char| !other.is_ascii_alphanumeric() && other != '_')
        .filter(|word| word.starts_with("sandboxd_"))
}

fn copy_certificate(from: &Service, to: &Path) {
    let own = from.certificate_file().unwrap();
    // The key first: a certificate with another key is not accepted.
    for name in ["tls-key.pem", "tls-cert.pem"] {
        std::fs::copy(own.with_file_name(name), to.join(name)).unwrap();
    }
}

/// The certificate is loaded again when its file changes; an invalid file is ignored.
#[tokio::test]
async fn a_changed_certificate_is_reloaded() {
    let first = Service::start(&ServiceOptions::default()).await.unwrap();
    let second = Service::start(&ServiceOptions::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    copy_certificate(&first, dir.path());
    let path = |name: &str| format!("{:?}", dir.path().join(name));
    let options = ServiceOptions::default()
        .with("http", "tls", "\"files\"")
        .with("http", "tls_cert", &path("tls-cert.pem"))
        .with("http", "tls_key", &path("tls-key.pem"));
    let service = Service::new(&options).unwrap();
    // The test's client searches the certificate in the data directory.
    let trusted = service.layout.data.join("trusted.pem");
    std::fs::copy(first.certificate_file().unwrap(), &trusted).unwrap();
    service.start_process().await.unwrap();
    std::fs::write(dir.path().join("tls-cert.pem"), "broken").unwrap();
    wait_until("the broken certificate is refused", async || {
        service.log().contains("the new TLS certificate cannot be used yet")
    })
    .await;
    service.tls("localhost", &["http/1.1"]).await.unwrap();
    copy_certificate(&second, dir.path());
    std::fs::copy(second.certificate_file().unwrap(), &trusted).unwrap();
    wait_until("the new certificate is served", async || {
        service.tls("localhost", &["http/1.1"]).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_data_directory_has_only_one_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    // Other ports, the same directories.
    let second = service
        .program()
        .unwrap()
        .args(["serve", "--listen", "127.0.0.1:0", "--redirect-listen", "", "--metrics-listen", ""])
        .output()
        .unwrap();
    assert!(!second.status.success());
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(stderr.contains(&service.layout.name), "{stderr}");
    assert_eq!(crate::output(&client, &id, "echo undisturbed").await, "undisturbed\n");
}
