//! Runs the tests of the client libraries in other languages against a real service.
//!
//! They read the address, the key and the certificate from the environment, as users' programs do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod python;
mod readme;
mod runtimes;
mod typescript;

#[path = "../support/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::service::{Service, ServiceOptions};

/// The folder of a client library.
fn library(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").join(name).canonicalize().unwrap()
}

/// Adds the settings of a service to a command, runs it, and fails with its output if it fails.
async fn passes(command: Command) -> String {
    passes_with(&options(), command).await
}

/// Room for 200 sandboxes, whatever the size of this machine's disk.
fn options() -> ServiceOptions {
    ServiceOptions::default().with("capacity", "overcommit_disk", "100")
}

/// The same for a service with these options. Returns the output.
async fn passes_with(options: &ServiceOptions, mut command: Command) -> String {
    let service = Service::start(options).await.unwrap();
    let client = service.account().await.unwrap();
    let key = client.key();
    let temporary = tempfile::tempdir().unwrap();
    command
        .env("TMPDIR", temporary.path())
        .env("SANDBOXD_URL", format!("https://{}", service.address))
        .env("SANDBOXD_API_KEY", key)
        .env("SANDBOXD_CERTIFICATE", service.certificate_file().unwrap())
        // Deno's websockets trust only this one.
        .env("DENO_CERT", service.certificate_file().unwrap())
        .env("SANDBOXD_DATA_DIR", &service.layout.data);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    stdout
}
