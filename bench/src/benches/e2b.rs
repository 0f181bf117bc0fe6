//! A create and a command with the packages of E2B, compared with the native client library of the same language.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use e2e::service::{Service as Process, ServiceOptions};
use rules::KeyText;
use tokio::process::Command;

use super::sdk::measure;
use crate::report::Row;
use crate::service::{Service, with_configured_service};

const ROUNDS: &str = "100";
const DOMAIN: &str = "sandboxes.localhost";

pub async fn run() -> Result<Vec<Row>> {
    let options = |options: ServiceOptions| {
        options.with("ports", "domain", &format!("{DOMAIN:?}")).with("e2b", "enabled", "true").with(
            "e2b.templates.base",
            "image",
            &format!("{:?}", Process::image()),
        )
    };
    with_configured_service(options, async |service| {
        let (python, javascript) = (packages("python")?, packages("npm")?);
        // The interpreter that has what the native library needs. starts: target/venv-sdk/bin/python
        let mut program = Command::new(file("target/venv-sdk/bin/python"));
        program.arg(file("bench/programs/create_and_run.py")).arg(ROUNDS);
        let paths = [python, file("e2e/tests/e2b/programs"), file("sdk/python/src")];
        program.env("PYTHONPATH", std::env::join_paths(paths)?);
        let mut rows =
            measure(service, configured(service, program)?, &[("e2b-python", "native-sdk")]).await?;
        // Node.js looks for packages beside the program.
        let copy = javascript.join("create_and_run.mjs");
        std::fs::copy(file("bench/programs/create_and_run.mjs"), &copy)?;
        let mut program = Command::new("node");
        program.arg(format!("--import={}", file("e2e/tests/e2b/programs/names.mjs").display()));
        program.arg(copy).arg(ROUNDS).arg(file("sdk/typescript/dist/index.js"));
        rows.extend(
            measure(service, configured(service, program)?, &[("e2b-javascript", "native-sdk")]).await?,
        );
        Ok(rows)
    })
    .await
}

/// A program that uses the service by the names that clients of E2B use.
fn configured(service: &Service, mut program: Command) -> Result<Command> {
    let key = KeyText::parse(service.key()).context("the key of the service")?;
    let port = service.address().port();
    program.env("E2B_API_KEY", key.e2b_text()).env("E2B_DOMAIN", format!("{DOMAIN}:{port}"));
    program.env("SSL_CERT_FILE", service.certificate()?.0.with_file_name("tls-trust.pem"));
    Ok(program)
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The folder with the newest release of a package, which `./dev bench` installs.
fn packages(language: &str) -> Result<PathBuf> {
    let root = file("target/e2b").join(language);
    let version = |path: &Path| -> Vec<u32> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.split('.').filter_map(|part| part.parse().ok()).collect()
    };
    let found = std::fs::read_dir(&root).with_context(|| format!("reading {}", root.display()))?;
    let found = found.filter_map(|entry| Some(entry.ok()?.path()));
    found.max_by_key(|path| version(path)).with_context(|| format!("{} is empty", root.display()))
}
