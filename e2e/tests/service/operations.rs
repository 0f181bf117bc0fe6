//! What an operator sees of the service: its metrics, a certificate of the operator's own, one daemon a place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use e2e::service::{Service, ServiceOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::portal::opened;
use crate::{SANDBOXES, created, until, verb};

pub async fn metrics(service: &Service) -> String {
    let mut stream = TcpStream::connect(service.metrics).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    said
}

/// The sum of the samples of this name that have all of these labels.
pub fn sample(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let of_name = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
    let fits = |line: &&str| labels.iter().all(|label| line.contains(label));
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    metrics.lines().filter(of_name).filter(fits).map(value).sum()
}

#[tokio::test]
async fn metrics_count_what_was_done() {
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let (one, two) = (created(&client).await, created(&client).await);
    client.order(&verb(&two, "pause")).await.unwrap().is(200).unwrap();
    for _ in 0..3 {
        client.post(&verb(&one, "execute"), &json!({ "command": "true" })).await.unwrap().is(200).unwrap();
    }
    client
        .with_authorization("Bearer nonsense")
        .get(SANDBOXES)
        .await
        .unwrap()
        .error(401, "UNAUTHORIZED")
        .unwrap();
    let said = metrics(&service).await;
    let count = |name: &str, labels: &[&str]| sample(&said, name, labels);
    let requests = "sandboxd_http_requests_total";
    assert_eq!(count(requests, &["POST", "execute", "200"]), 3.0, "{said}");
    assert_eq!(count(requests, &["POST", "/v1/sandboxes\"", "201"]), 2.0, "{said}");
    assert!(count("sandboxd_http_refusals_total", &["unauthorized"]) >= 1.0, "{said}");
    assert_eq!(count("sandboxd_sandboxes", &["running"]), 1.0, "{said}");
    assert_eq!(count("sandboxd_sandboxes", &["paused"]), 1.0, "{said}");
    let (_, door) = opened(&service, &client).await;
    assert_eq!(door.get("/status?404").await.status, 404);
    assert_eq!(door.get("/").await.status, 200);
    assert_eq!(door.without_token().get("/").await.status, 401);
    let said = metrics(&service).await;
    let count = |name: &str, labels: &[&str]| sample(&said, name, labels);
    assert_eq!(count("sandboxd_port_requests_total", &["2xx"]), 1.0, "{said}");
    assert_eq!(count("sandboxd_port_requests_total", &["4xx"]), 1.0, "{said}");
    assert_eq!(count("sandboxd_port_refusals_total", &["UNAUTHORIZED"]), 1.0, "{said}");
    assert!(count("sandboxd_port_bytes_total", &["out"]) > 100.0, "{said}");
    // Nothing of who did it: ids would make as many series as there are sandboxes.
    assert!(!said.contains(&one) && !said.contains("account-") && !said.contains("sbk_"), "{said}");
}

fn copy_certificate(from: &Service, to: &Path) {
    let own = from.certificate_file().unwrap();
    // The key first: a certificate with another's key is not taken.
    for name in ["tls-key.pem", "tls-cert.pem"] {
        std::fs::copy(own.with_file_name(name), to.join(name)).unwrap();
    }
}

/// The file is read again when it changes; a broken one changes nothing.
#[tokio::test]
async fn a_certificate_of_the_operators_own_is_reloaded() {
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
    // Where the client of these tests looks for what to trust.
    let trusted = service.place.data.join("trusted.pem");
    std::fs::copy(first.certificate_file().unwrap(), &trusted).unwrap();
    service.boot().await.unwrap();
    std::fs::write(dir.path().join("tls-cert.pem"), "broken").unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    service.tls("localhost", &["http/1.1"]).await.unwrap();
    copy_certificate(&second, dir.path());
    std::fs::copy(second.certificate_file().unwrap(), &trusted).unwrap();
    until("the new certificate is shown", async || service.tls("localhost", &["http/1.1"]).await.is_ok())
        .await;
}

#[tokio::test]
async fn one_place_has_one_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = created(&client).await;
    // Other ports, the same directories.
    let second = service
        .program()
        .unwrap()
        .args(["serve", "--listen", "127.0.0.1:0", "--redirect-listen", "", "--metrics-listen", ""])
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&service.place.name), "{said}");
    assert_eq!(crate::output(&client, &id, "echo undisturbed").await, "undisturbed\n");
}
