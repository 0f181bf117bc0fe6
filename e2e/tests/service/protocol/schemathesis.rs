//! Runs all checks of schemathesis, a third-party API tester, against the OpenAPI document of the service.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::service::{Service, ServiceOptions};

use crate::skip::skipped;

/// The API key, and statuses that schemathesis does not expect for valid requests: 408 if the timeout of a command is too short to
/// start it, 416 if a file is shorter than the range, 426 because it does not open websockets for terminals, and 400 if an output or
/// a log is shorter than the position from which it is requested.
fn config(key: &str) -> String {
    const EXPECTED: &str = "\"2xx\", 401, 403, 404, 408, 409, 416, 426, 429";
    const CHECK: &str = "positive_data_acceptance.expected-statuses";
    const POSITIONED: [&str; 2] =
        ["/v1/sandboxes/{id}/executions/{execution}/attach", "/v1/templates/{id}/logs"];
    let all = format!("[auth.openapi.apiKey]\nbearer = \"{key}\"\n[checks]\n{CHECK} = [{EXPECTED}]\n");
    let operations = POSITIONED.map(|path| {
        format!("[[operations]]\ninclude-path = \"{path}\"\nchecks.{CHECK} = [400, {EXPECTED}]\n")
    });
    all + &operations.concat()
}

/// Installed by `./dev test`.
fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/schemathesis")
}

#[tokio::test]
async fn schemathesis_finds_no_violation() {
    if !program().exists() {
        return skipped(
            "schemathesis",
            "target/venv/bin/schemathesis is missing; './dev test' installs it where PyPI can be reached",
        );
    }
    // Forks of 100 would fill the host: beyond a quota they get 429, which is expected.
    let options = ServiceOptions::default().with("quotas", "sandboxes", "20");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let work = tempfile::tempdir().unwrap();
    // The document needs a key, which the tester does not send when it loads it.
    let described = client.get("/v1/openapi.json").await.unwrap().is(200).unwrap();
    std::fs::write(work.path().join("openapi.json"), described.to_string()).unwrap();
    let url = format!("https://localhost:{}", service.address.port());
    let key = client.key();
    std::fs::write(work.path().join("schemathesis.toml"), config(key)).unwrap();
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/protocol/schemathesis_hooks.py");
    std::fs::copy(hooks, work.path().join("hooks.py")).unwrap();
    // starts: target/venv/bin/schemathesis
    let mut command = Command::new(program());
    command
        .current_dir(work.path())
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", work.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args([
            "run",
            "openapi.json",
            "--url",
            &url,
            "--checks",
            "all",
            "--mode",
            "all",
            "--workers",
            "1",
            "--seed",
            "7",
        ])
        .args([
            "--max-examples",
            "25",
            // On a busy machine the phases that send a request of each kind take a minute.
            "--max-time",
            "150",
            "--request-timeout",
            "30",
            "--suppress-health-check",
            "all",
        ])
        .args(["--generation-database", "none", "--no-color"])
        .arg("--tls-verify")
        .arg(service.certificate_file().unwrap());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let operations: usize =
        described["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
    assert!(
        printed.contains(&format!("Tested: {operations}\n")),
        "it did not test {operations} operations:\n{printed}"
    );
}
