//! The MCP server with the official clients, over stdio and HTTP.
//!
//! `./dev test` installs the clients below `target/`: a Python environment and a folder of npm packages.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/skip.rs"]
mod skip;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use e2e::service::{Client, Service, ServiceOptions};
use e2e::{sbx, wait_until, workspace};
use rustix::process::Signal;
use serde_json::Value;
use skip::skipped;

const LEGACY: &str = "legacy";
const MODERN: &str = "2026-07-28";
/// File descriptors that the daemon may have more after many calls: idle connections and timers.
const SPARE_FILES: usize = 40;
const SPARE_MEMORY_KB: u64 = 64 << 10;

/// A service, an account, and what the clients' programs read from the environment.
struct McpService {
    service: Service,
    account: Client,
    key: String,
    home: tempfile::TempDir,
}

impl McpService {
    async fn start(options: &ServiceOptions) -> Self {
        let service = Service::start(options).await.unwrap();
        let account = service.account().await.unwrap();
        let key = account.key().to_owned();
        Self { service, account, key, home: tempfile::tempdir().unwrap() }
    }

    fn environment(&self, command: &mut Command) {
        let certificate = self.service.certificate_file().unwrap();
        command
            .env("MCP_COMMAND", sbx().unwrap())
            .env("MCP_URL", format!("https://{}/mcp", self.service.address))
            .env("SANDBOXD_URL", format!("https://{}", self.service.address))
            .env("SANDBOXD_API_KEY", &self.key)
            .env("SANDBOXD_CERTIFICATE", &certificate)
            .env("NODE_EXTRA_CA_CERTS", &certificate)
            .env("HOME", self.home.path());
    }

    /// Runs a client to its end, and fails with its output if it fails.
    async fn passes(&self, mut command: Command) -> Output {
        self.environment(&mut command);
        command.stdin(Stdio::null());
        let shown = format!("{command:?}");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{shown}\n{stdout}\n{stderr}");
        println!("{stdout}");
        output
    }

    /// Waits until no sandbox of the account is left.
    async fn has_no_sandboxes(&self) {
        for _ in 0..100 {
            if self.sandboxes("running").await + self.sandboxes("paused").await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("sandboxes are left");
    }

    async fn sandboxes(&self, state: &str) -> u64 {
        let list = self.account.get(&format!("/v1/sandboxes?state={state}")).await.unwrap();
        list.json().unwrap()["pagination"]["total"].as_u64().unwrap()
    }

    /// Open files, and resident memory in KB, of the daemon.
    fn resources(&self) -> (usize, u64) {
        (self.service.open_files().unwrap(), self.service.resident_kb().unwrap())
    }
}

/// The Python client's interpreter, if it is installed.
fn python() -> Option<Command> {
    let interpreter = workspace().join("target/venv-mcp/bin/python");
    // starts: python3
    interpreter.exists().then(|| Command::new(interpreter))
}

fn python_case(transport: &str, mode: &str, case: &str) -> Option<Command> {
    let script = workspace().join("e2e/tests/mcp/client.py");
    let Some(mut command) = python() else {
        skipped("mcp", "target/venv-mcp is missing; './dev test' installs it");
        return None;
    };
    command.arg(script).args([transport, mode, case]);
    Some(command)
}

/// The folder of npm packages, with our script in it, so that it finds them.
fn npm_folder() -> Option<PathBuf> {
    let folder = workspace().join("target/npm-mcp");
    if !folder.join("node_modules/@modelcontextprotocol").exists() {
        skipped("mcp", "target/npm-mcp is missing; './dev test' installs it");
        return None;
    }
    std::fs::copy(workspace().join("e2e/tests/mcp/client.mjs"), folder.join("client.mjs")).unwrap();
    Some(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_passes_over_stdio_and_http_with_both_protocol_versions() {
    let mcp = McpService::start(&ServiceOptions::default()).await;
    for transport in ["stdio", "http"] {
        for mode in [LEGACY, MODERN, "auto"] {
            for case in ["tools", "progress", "cancel"] {
                let Some(command) = python_case(transport, mode, case) else { return };
                mcp.passes(command).await;
                mcp.has_no_sandboxes().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_forks_and_templates_work_with_and_without_a_session() {
    let mcp = McpService::start(&ServiceOptions::default()).await;
    for (transport, mode) in [("stdio", LEGACY), ("http", LEGACY), ("http", MODERN)] {
        for case in ["snapshots", "templates"] {
            let Some(command) = python_case(transport, mode, case) else { return };
            mcp.passes(command).await;
            mcp.has_no_sandboxes().await;
        }
    }
    for list in ["snapshots", "templates"] {
        let left = mcp.account.get(&format!("/v1/{list}")).await.unwrap().json().unwrap();
        assert_eq!(left["pagination"]["total"], 0, "{list}: {left}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_clients_pass_over_stdio_and_http_with_both_protocol_versions() {
    let mcp = McpService::start(&ServiceOptions::default()).await;
    let Some(folder) = npm_folder() else { return };
    for (library, mode) in [("sdk", LEGACY), ("client", LEGACY), ("client", MODERN)] {
        for transport in ["stdio", "http"] {
            let mut command = Command::new("node");
            command.arg(folder.join("client.mjs")).args([library, transport, mode]);
            mcp.passes(command).await;
            mcp.has_no_sandboxes().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_lists_and_calls_tools() {
    let mcp = McpService::start(&ServiceOptions::default()).await;
    let Some(folder) = npm_folder() else { return };
    let (url, key) = (format!("https://{}/mcp", mcp.service.address), &mcp.key);
    let inspect = |stdio: bool, method: &[&str]| {
        let mut command = Command::new(folder.join("node_modules/.bin/mcp-inspector")); // starts: node
        command.arg("--cli");
        if stdio {
            command.args([sbx().unwrap().to_str().unwrap(), "mcp"]);
            for name in ["SANDBOXD_URL", "SANDBOXD_API_KEY", "SANDBOXD_CERTIFICATE", "HOME"] {
                let mut probe = Command::new("true");
                mcp.environment(&mut probe);
                let value = probe.get_envs().find(|(set, _)| *set == name).unwrap().1.unwrap().to_owned();
                command.args(["-e", &format!("{name}={}", value.to_str().unwrap())]);
            }
        } else {
            command.args([
                url.as_str(),
                "--transport",
                "http",
                "--header",
                &format!("Authorization: Bearer {key}"),
            ]);
        }
        command.args(method);
        command
    };
    for stdio in [true, false] {
        let listed = mcp.passes(inspect(stdio, &["--method", "tools/list", "--strict"])).await;
        assert!(String::from_utf8_lossy(&listed.stdout).contains("run_command"));
        let arguments =
            ["--method", "tools/call", "--tool-name", "manage_sandboxes", "--tool-arg", "action=list"];
        let called = mcp.passes(inspect(stdio, &arguments)).await;
        let result: Value = serde_json::from_slice(&called.stdout).unwrap();
        assert_eq!(result["structuredContent"]["total"], 0, "{result}");
    }
    let arguments = ["--method", "tools/call", "--tool-name", "run_command", "--tool-arg", "command=echo hi"];
    let called = mcp.passes(inspect(true, &arguments)).await;
    let result: Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(result["structuredContent"]["stdout"], "hi\n", "{result}");
    mcp.has_no_sandboxes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_calls_in_a_session_leave_nothing_behind() {
    let mcp = McpService::start(&ServiceOptions::default()).await;
    // The first sessions fill caches.
    for calls in ["20", "500"] {
        let before = mcp.resources();
        let case = |transport| {
            let mut command = python_case(transport, LEGACY, "many")?;
            command.env("MCP_CALLS", calls);
            Some(command)
        };
        let (Some(http), Some(stdio)) = (case("http"), case("stdio")) else { return };
        tokio::join!(mcp.passes(http), mcp.passes(stdio));
        mcp.has_no_sandboxes().await;
        let after = mcp.resources();
        println!("{calls} calls, files and KB {before:?} -> {after:?}");
        if calls == "500" {
            assert!(after.0 <= before.0 + SPARE_FILES, "files: {before:?} -> {after:?}");
            assert!(after.1 <= before.1 + SPARE_MEMORY_KB, "memory: {before:?} -> {after:?}");
        }
    }
}

/// A session over stdio with an unnamed sandbox.
fn stdio_session(mcp: &McpService) -> (std::process::Child, std::process::ChildStdin) {
    use std::io::{BufRead, Write};
    let mut command = Command::new(sbx().unwrap()); // starts: sbx
    mcp.environment(&mut command);
    let mut child = command
        .args(["mcp", "--lifetime", "10s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let messages = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo hi"}}}"#,
    ];
    for message in messages {
        writeln!(stdin, "{message}").unwrap();
    }
    let reply = lines.map(Result::unwrap).find(|line| line.contains(r#""id":2"#)).unwrap();
    assert!(reply.contains("hi"), "{reply}");
    (child, stdin)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unnamed_sandbox_ends_with_its_session_however_that_ends() {
    let mcp = McpService::start(&ServiceOptions::default()).await;
    let (mut child, stdin) = stdio_session(&mcp);
    assert_eq!(mcp.sandboxes("running").await, 1);
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(mcp.sandboxes("running").await, 0, "the end of standard input");
    for signal in [Signal::TERM, Signal::INT] {
        let (mut child, _stdin) = stdio_session(&mcp);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(mcp.sandboxes("running").await, 0, "{signal:?}");
    }
    // Nobody is left to terminate it: its lifetime of 10 s does.
    let (mut child, _stdin) = stdio_session(&mcp);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(mcp.sandboxes("running").await, 1);
    let begin = Instant::now();
    wait_until("its lifetime ends", async || {
        mcp.sandboxes("running").await + mcp.sandboxes("paused").await == 0
    })
    .await;
    assert!(begin.elapsed() < Duration::from_secs(20), "it ended after {:?}", begin.elapsed());
}
