//! Third-party programs with the service: clients, agent frameworks, and programs that run inside sandboxes.
//!
//! `dev.d/works-with.txt` lists them. `./dev works-with` installs and runs all of them; `./dev test` those that are quick. Each
//! program checks what it does. The last line that it prints is `ok`, or `skip: REASON` if it cannot run here.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/skip.rs"]
mod skip;
mod table;

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use e2e::workspace;
use e2e::{code_image, shared_image};
use futures_util::{StreamExt, stream};
use table::{Row, Runner, rows};
use tokio::process::Command;

const BASE: (&str, &str) = ("e2b-base", "debian:bookworm+ca-certificates+curl+git+procps+python3+sudo");
const DESKTOP: (&str, &str) = (
    "works-desktop",
    "debian:bookworm+dbus-x11+procps+scrot+sudo+x11-utils+x11-xserver-utils+xdotool+xfce4-session+xfdesktop4+xfwm4+xvfb",
);
const PROGRAMS: (&str, &str) = (
    "works-programs",
    "debian:trixie+ca-certificates+curl+git+nodejs+npm+postgresql+procps+python3-venv+sudo",
);
const ALL_SCOPES: &str = "read,execute,write";
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(300);
/// Programs that run at the same time.
const CONCURRENT: usize = 2;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

impl Outcome {
    fn of(output: &Output) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout);
        let last = stdout.lines().last().unwrap_or_default();
        match last.strip_prefix("skip: ") {
            _ if !output.status.success() => {}
            Some(reason) => return Self::Skipped(reason.to_owned()),
            None if last == "ok" => return Self::Passed,
            None => {}
        }
        Self::Failed(format!("{}\n{stdout}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// A service with both APIs, and a key for each.
struct WorksService {
    service: Service,
    e2b_key: String,
    key: String,
    home: tempfile::TempDir,
}

impl WorksService {
    /// With these images of tests, beside that of the code interpreter.
    async fn start(images: &'static [(&'static str, &'static str)]) -> Self {
        tokio::task::spawn_blocking(move || {
            code_image::build().unwrap();
            for (name, source) in images {
                shared_image::build(name, source).unwrap();
            }
        })
        .await
        .unwrap();
        let options = ServiceOptions::default()
            .with("ports", "domain", "\"sandboxes.localhost\"")
            .with("limits", "concurrent_executions", "100")
            .with("limits", "detached_executions", "100")
            .with("e2b", "enabled", "true")
            .with("e2b.templates.base", "image", "\"e2b-base\"");
        let options = if images.contains(&DESKTOP) {
            options.with("e2b.templates.desktop", "image", "\"works-desktop\"")
        } else {
            options
        };
        let options = images.iter().fold(options, |options, (name, source)| options.image(name, source));
        let service = Service::start(&options).await.unwrap();
        let e2b_key = service.key_with("works", ALL_SCOPES, &["--format", "e2b"]).unwrap();
        let client = service.client_with_new_key("works", ALL_SCOPES).await.unwrap();
        let key = client.key().to_owned();
        Self { service, e2b_key, key, home: tempfile::tempdir().unwrap() }
    }

    /// Runs the program of a row to its end.
    async fn run(&self, row: &Row) -> Outcome {
        if !row.is_installed() {
            return Outcome::Skipped("its packages could not be installed".to_owned());
        }
        let script = workspace().join("dev.d/works-with-run.sh");
        let mut command = Command::new("bash");
        command.arg(script).args([&row.name, &row.runtime]).env_clear();
        self.environment(&mut command);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        match tokio::time::timeout(PROGRAM_TIMEOUT, output).await {
            Ok(output) => Outcome::of(&output.unwrap()),
            Err(_) => Outcome::Failed(format!("it did not end within {} s", PROGRAM_TIMEOUT.as_secs())),
        }
    }

    fn environment(&self, command: &mut Command) {
        let certificate = self.service.certificate_file().unwrap();
        let (address, port) = (format!("https://{}", self.service.address), self.service.address.port());
        // Settings for pip and npm, which programs pass on.
        let passed = ["PATH", "PIP_INDEX_URL", "NPM_CONFIG_REGISTRY"];
        for (name, value) in std::env::vars_os().filter(|(name, _)| passed.iter().any(|known| name == known))
        {
            command.env(name, value);
        }
        command
            .env("E2B_API_KEY", &self.e2b_key)
            .env("E2B_API_URL", &address)
            .env("E2B_SANDBOX_URL", &address)
            .env("E2B_DOMAIN", format!("sandboxes.localhost:{port}"))
            .env("SANDBOXD_URL", &address)
            .env("SANDBOXD_API_KEY", &self.key)
            .env("SANDBOXD_CERTIFICATE", &certificate)
            .env("SSL_CERT_FILE", &certificate)
            .env("NODE_EXTRA_CA_CERTS", &certificate)
            .env("MCP_URL", format!("{address}/mcp"))
            .env("MCP_COMMAND", e2e::sbx().unwrap())
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path());
    }

    /// Runs programs, a few at the same time, and prints how each ended.
    async fn run_all(&self, rows: Vec<Row>) -> Vec<(Row, Outcome)> {
        let runs = rows.into_iter().map(|row| async move {
            let begin = Instant::now();
            let outcome = self.run(&row).await;
            let seconds = begin.elapsed().as_secs_f64();
            match &outcome {
                Outcome::Passed => println!("passed  {:24} {seconds:.1} s", row.name),
                Outcome::Skipped(reason) => println!("skipped {:24} {reason}", row.name),
                Outcome::Failed(_) => println!("FAILED  {:24} {seconds:.1} s", row.name),
            }
            (row, outcome)
        });
        stream::iter(runs).buffer_unordered(CONCURRENT).collect().await
    }
}

fn assert_none_failed(outcomes: &[(Row, Outcome)]) {
    let failed = outcomes.iter().filter_map(|(row, outcome)| match outcome {
        Outcome::Failed(output) => Some(format!("{}: {output}", row.name)),
        Outcome::Passed | Outcome::Skipped(_) => None,
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn quick_programs_pass() {
    let works = WorksService::start(&[BASE]).await;
    let quick = rows().into_iter().filter(|row| row.runner == Runner::Ci).collect();
    let outcomes = works.run_all(quick).await;
    assert_none_failed(&outcomes);
    for (row, outcome) in outcomes {
        if let Outcome::Skipped(reason) = outcome {
            skip::skipped("works_with", &format!("{}: {reason}", row.name));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by ./dev works-with"]
async fn all_programs_pass() {
    let names = std::env::var("SANDBOXD_WORKS_WITH").unwrap_or_default();
    let wanted: Vec<&str> = names.split_whitespace().collect();
    let is_wanted = |row: &Row| wanted.is_empty() || wanted.contains(&row.name.as_str());
    let works = WorksService::start(&[BASE, DESKTOP, PROGRAMS]).await;
    assert_none_failed(&works.run_all(rows().into_iter().filter(is_wanted).collect()).await);
}
