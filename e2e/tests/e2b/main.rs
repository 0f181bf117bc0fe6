//! The E2B-compatible API with the packages of E2B: the newest release and two earlier minors, in Python and JavaScript.
//!
//! `./dev test` installs them below `target/e2b/`. The programs are in `programs/`; each checks what it does and prints `ok`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cycles;
mod keys;
mod matrix;
mod readme;
#[path = "../support/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use e2e::workspace;
use tokio::process::Command;

const ACCOUNT: &str = "e2b";
const ALL_SCOPES: &str = "read,execute,write";
/// The image of the template `base`.
const BASE_IMAGE: &str = "e2b-base";
const BASE_SOURCE: &str =
    "debian:bookworm+ca-certificates+curl+git+iproute2+iputils-ping+jq+less+procps+socat+sudo+python3";
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(80);
/// Pinned releases of each package in `dev.d/e2b.sh`.
const VERSIONS: usize = 3;

fn program(name: &str) -> PathBuf {
    workspace().join("e2e/tests/e2b/programs").join(name)
}

/// How a program finds the service.
#[derive(Debug, Clone, Copy)]
enum Address {
    /// By names below the domain of ports.
    Domain,
    /// By the URL of the service. The domain is in the responses.
    Url,
    /// By the URL of the service for sandboxes, too, as `sandboxd serve --e2b` prints it. No name is resolved.
    OnlyUrls,
}

#[derive(Debug, Clone, Copy)]
enum Language {
    Python,
    JavaScript,
}

impl Language {
    /// The folders with releases of `e2b`, the newest first. `None` skips the test.
    fn packages(self) -> Option<Vec<PathBuf>> {
        self.folders_with("")
    }

    /// Those that also have the package for code.
    fn code_packages(self) -> Option<Vec<PathBuf>> {
        self.folders_with(match self {
            Self::Python => "e2b_code_interpreter",
            Self::JavaScript => "node_modules/@e2b/code-interpreter",
        })
    }

    fn folders_with(self, part: &str) -> Option<Vec<PathBuf>> {
        let name = match self {
            Self::Python => "python",
            Self::JavaScript => "npm",
        };
        let entries = std::fs::read_dir(workspace().join("target/e2b").join(name));
        let installed = |path: &PathBuf| path.join(".installed").exists() && path.join(part).exists();
        let mut found: Vec<PathBuf> =
            entries.into_iter().flatten().flatten().map(|entry| entry.path()).filter(installed).collect();
        if found.len() < VERSIONS {
            skip::skipped("e2b", &format!("target/e2b/{name} is incomplete; './dev test' installs it"));
            return None;
        }
        found.sort_by_key(|path| std::cmp::Reverse(version(path)));
        Some(found)
    }

    /// A command that runs a program with these packages.
    fn command(self, packages: &Path, name: &str) -> Command {
        let mut command = match self {
            Self::Python => {
                // The packages were installed for this interpreter.
                let mut command = Command::new(workspace().join("target/venv/bin/python")); // starts: python3
                command.env("PYTHONPATH", packages).arg(program(&format!("{name}.py")));
                command
            }
            Self::JavaScript => {
                // Node.js looks for packages beside the program.
                let copy = packages.join(format!("{name}.mjs"));
                std::fs::copy(program(&format!("{name}.mjs")), &copy).unwrap();
                let mut command = Command::new("node");
                command.arg(format!("--import={}", program("names.mjs").display())).arg(copy);
                command
            }
        };
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

fn version(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    name.split('.').map(|part| part.parse().unwrap()).collect()
}

/// A service with the API, and a key with all scopes.
struct E2bService {
    service: Service,
    key: String,
    /// A key of the same account for the native API.
    native_key: String,
    home: tempfile::TempDir,
}

impl E2bService {
    async fn start() -> Self {
        let build = || e2e::shared_image::build(BASE_IMAGE, BASE_SOURCE);
        tokio::task::spawn_blocking(build).await.unwrap().unwrap();
        let options = ServiceOptions::default()
            .image(BASE_IMAGE, BASE_SOURCE)
            .with("ports", "domain", "\"sandboxes.localhost\"")
            .with("limits", "concurrent_executions", "100")
            .with("limits", "detached_executions", "100")
            .with("e2b", "enabled", "true")
            .with("e2b.templates.base", "image", &format!("{BASE_IMAGE:?}"));
        let service = Service::start(&options).await.unwrap();
        let native_key = service.key(ACCOUNT, ALL_SCOPES).unwrap();
        // It waits until the service has read both keys.
        let key = create_key(&service, ALL_SCOPES).await;
        Self { service, key, native_key, home: tempfile::tempdir().unwrap() }
    }

    fn environment(&self, command: &mut Command, key: &str, address: Address) {
        let certificate = self.service.certificate_file().unwrap();
        let port = self.service.address.port();
        for (name, value) in std::env::vars_os().filter(|(name, _)| name == "PATH") {
            command.env(name, value);
        }
        match address {
            Address::Domain => command.env("E2B_DOMAIN", format!("sandboxes.localhost:{port}")),
            Address::Url => command.env("E2B_API_URL", format!("https://{}", self.service.address)),
            Address::OnlyUrls => {
                let url = format!("https://{}", self.service.address);
                command.env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", url)
            }
        };
        command
            .env("E2B_API_KEY", key)
            .env("NATIVE_KEY", &self.native_key)
            // As the service prints it: the authorities of the system are in it, too.
            .env("SSL_CERT_FILE", certificate.with_file_name("tls-trust.pem"))
            .env("NODE_EXTRA_CA_CERTS", &certificate)
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path());
    }

    /// Runs a program to its end, and fails with its output if it fails.
    async fn passes(&self, command: Command) {
        self.passes_with(&self.key, Address::Domain, command).await;
    }

    async fn passes_with(&self, key: &str, address: Address, given: Command) {
        let begin = Instant::now();
        // starts: python3, node
        let mut command = Command::new(given.as_std().get_program());
        // Variables for the packages, and for proxies, must not reach the program.
        command.env_clear().args(given.as_std().get_args());
        for (name, value) in given.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        self.environment(&mut command, key, address);
        let shown = format!("{:?}", given.as_std());
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(PROGRAM_TIMEOUT, output).await;
        let output = output.unwrap_or_else(|_| panic!("{shown} did not end in time")).unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stdout.lines().last() == Some("ok"),
            "{shown}: {}\n{stdout}\n{stderr}",
            output.status
        );
        println!("{shown}: {:.1} s", begin.elapsed().as_secs_f64());
    }
}

/// A key in the form of E2B that the service accepts.
async fn create_key(service: &Service, scopes: &str) -> String {
    let arguments =
        ["key", "create", "--account", ACCOUNT, "--label", scopes, "--scopes", scopes, "--format", "e2b"];
    let output = service.program().unwrap().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The service reads keys in the order in which they were created.
    service.client_with_new_key("later", "read").await.unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
