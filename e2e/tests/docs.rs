//! Checks the guides: their commands are run in order against a service and must print the output that the guide shows.
//!
//! Blocks fenced as `sh` are run. If a `json` or `text` block follows, it must match the output, except ids, times and durations.
//! Commands for operators are in `console` blocks; commands that a test cannot run are listed here.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "docs/cookbook.rs"]
mod cookbook;
#[path = "docs/pages.rs"]
mod pages;
#[path = "docs/removal.rs"]
mod removal;
#[path = "support/skip.rs"]
mod skip;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use e2e::service::{Service, ServiceOptions};
use e2e::workspace;
use removal::REMOVE;
use rustix::process::Signal;
use serde_json::{Value, json};
use skip::skipped;

const SHOWN_ADDRESS: &str = "https://127.0.0.1:8443";
const SHOWN_DATA_DIR: &str = "/var/lib/sandboxd";
/// The sandbox of the operations guide.
const SHOWN_ID: &str = "sb_4h1v8x2k9qz7m3t5w0ry";
/// Separates the outputs of blocks.
const RECORD: char = '\u{1e}';
/// Not run because the test has already started the service.
const NOT_RUN: &str = "./dev run";
/// Numbers that differ from run to run.
const VARYING: [&str; 5] =
    ["durationMs", "runtimeDurationMs", "pausedDurationMs", "totalRuntimeMs", "sizeBytes"];

fn document(name: &str) -> String {
    std::fs::read_to_string(workspace().join(name)).unwrap()
}

/// A fenced block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    kind: String,
    text: String,
    line: usize,
}

/// A block in a list item is indented; the indentation of its fence is removed from its lines.
fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        match (&mut open, trimmed.strip_prefix("```")) {
            (None, Some(kind)) => {
                let block = Block { kind: kind.trim().to_owned(), text: String::new(), line: at + 1 };
                open = Some((line.len() - trimmed.len(), block));
            }
            (Some(_), Some(_)) => found.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), None) => {
                block.text.push_str(line.get(*indent..).unwrap_or(trimmed));
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a block is not closed");
    found
}

/// A service with the default rate limits, which the guides must not exceed.
async fn service() -> Service {
    Service::start(&ServiceOptions::default().default_rates()).await.unwrap()
}

/// Stops the service as systemd does.
async fn stop(service: &Service) {
    service.signal(Signal::TERM).unwrap();
    assert!(
        service.wait_for_exit(Duration::from_secs(60)).await.unwrap().success(),
        "{}",
        service.log_tail()
    );
}

/// Replaces the address and data directory of the guides with those of the test's service.
fn adapt(service: &Service, text: &str) -> String {
    let data = service.layout.data.canonicalize().unwrap();
    text.replace(SHOWN_ADDRESS, &format!("https://{}", service.address))
        .replace(SHOWN_DATA_DIR, &data.display().to_string())
}

fn bash(service: &Service, script: &str, dir: &Path) -> Output {
    let path = format!("{}:{}", workspace().join("target/bin").display(), std::env::var("PATH").unwrap());
    // starts: sandboxd, sbx
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", &adapt(service, script)])
        .current_dir(dir)
        .env("PATH", path)
        .env("SANDBOXD_CONFIG", service.config_file())
        // `sbx` finds the service by its data directory.
        .env_remove("SANDBOXD_URL")
        .env("SANDBOXD_DATA_DIR", service.layout.data.canonicalize().unwrap())
        .env("XDG_CONFIG_HOME", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs all commands of a guide and compares their output with the guide.
async fn check_guide(name: &str) {
    let service = service().await;
    let blocks = blocks(&document(name));
    let is_run = |block: &Block| block.kind == "sh" && block.text.trim() != NOT_RUN;
    let mut script = String::new();
    for block in blocks.iter().filter(|block| is_run(block)) {
        script.push_str(&format!("printf '{RECORD}'\n{}", block.text));
    }
    assert!(!script.is_empty(), "{name} has no commands");

    let dir = tempfile::tempdir().unwrap();
    let output = bash(&service, &script, dir.path());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{name}: {}\n{printed}\n{}", output.status, text(&output.stderr));
    let mut printed = printed.split(RECORD).skip(1);
    let mut last = None;
    for block in &blocks {
        match block.kind.as_str() {
            "sh" if is_run(block) => last = printed.next(),
            "sh" => last = None,
            "json" | "text" => {
                let Some(printed) = last.take() else { continue };
                let (shown, printed) = (normalize(block, &block.text), normalize(block, printed));
                assert_eq!(printed, shown, "{name}, line {}", block.line);
            }
            _ => {}
        }
    }
    stop(&service).await;
}

/// Replaces the parts that vary between runs.
fn normalize(block: &Block, text: &str) -> String {
    if block.kind == "text" {
        return text.lines().map(|line| mask(line) + "\n").collect::<String>().trim().to_owned();
    }
    let mut value: Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    mask_value(&mut value);
    serde_json::to_string_pretty(&value).unwrap()
}

fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask(text),
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if VARYING.contains(&name.as_str()) && field.is_u64() {
                    *field = Value::from(0);
                }
                mask_value(field);
            }
        }
        _ => {}
    }
}

/// Replaces ids, times, and durations within a line by one character each.
fn mask(text: &str) -> String {
    let mut left = text;
    let mut masked = String::new();
    while let Some(first) = left.chars().next() {
        let (sign, bytes) = varying_prefix(left).unwrap_or((first, first.len_utf8()));
        masked.push(sign);
        left = &left[bytes..];
    }
    masked
}

fn varying_prefix(text: &str) -> Option<(char, usize)> {
    let word = |prefix: &str| {
        let rest = text.strip_prefix(prefix)?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        Some(prefix.len() + end)
    };
    if let Some(bytes) = ["sb_", "ev_", "sb-", "req_", "snap_"].into_iter().find_map(word) {
        return Some(('#', bytes));
    }
    if let Some(rest) = text.strip_prefix("\"durationMs\":") {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        return Some(('%', text.len() - rest.len() + digits));
    }
    let time = text.get(..24)?;
    let pattern = "dddd-dd-ddTdd:dd:dd.dddZ";
    let matches =
        time.chars().zip(pattern.chars()).all(|(c, p)| if p == 'd' { c.is_ascii_digit() } else { c == p });
    matches.then_some(('@', 24))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_works() {
    check_guide("docs/quick-start.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_guide_works() {
    check_guide("docs/api.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_guide_works() {
    check_guide("docs/snapshots.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_guide_to_templates_work() {
    check_guide("docs/templates.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hibernation_guide_works() {
    check_guide("docs/hibernation.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sbx_guide_works() {
    check_guide("docs/sbx.md").await;
}

/// Commands of the operations guide that change the host or need programs that a test host lacks.
const NOT_IN_TESTS: [&str; 12] = [
    "apt-get install ",
    "install -m 755 ",
    "install -Dm 644 ",
    "install -m 644 ",
    "sandboxd image pull ubuntu:24.04",
    "sandboxd image pull python:3.12",
    "sandboxd image pull node:22",
    "systemctl daemon-reload",
    "systemctl enable ",
    "journalctl ",
    // Writes to the configuration of this machine.
    "openssl req ",
    // Run below with a real id.
    "sandboxd key revoke ID",
];

/// The commands of the operations guide work while the service runs, and its backup is complete.
#[tokio::test(flavor = "multi_thread")]
async fn the_operations_guide_works() {
    let service = service().await;
    let client = service.account().await.unwrap();
    let created = client.post("/v1/sandboxes", &json!({"image": Service::image()})).await.unwrap();
    let id = created.is(201).unwrap()["id"].as_str().unwrap().to_owned();

    let dir = tempfile::tempdir().unwrap();
    let guide = document("docs/operations.md");
    let apart = [COPY, RESTORE, REMOVE].map(|heading| operator_commands(section(&guide, heading))).concat();
    let mut ran = Vec::new();
    for command in operator_commands(&guide) {
        if apart.contains(&command) || NOT_IN_TESTS.iter().any(|skipped| command.starts_with(skipped)) {
            continue;
        }
        let command =
            command.replace("/backup/", &format!("{}/", dir.path().display())).replace(SHOWN_ID, &id);
        let output = bash(&service, &command, dir.path());
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        // The result of `sandboxd doctor` depends on the host.
        assert!(output.status.success() || command == "sandboxd doctor", "{command}: {printed}");
        ran.push(command);
    }
    assert!(ran.len() >= 4, "the guide has too few commands: {ran:?}");

    let keys = bash(&service, "sandboxd key list", dir.path());
    let keys = text(&keys.stdout);
    let line = keys.lines().find(|line| line.contains(" team-a ")).unwrap();
    let revoked = bash(
        &service,
        &format!("sandboxd key revoke {}", line.split_whitespace().next().unwrap()),
        dir.path(),
    );
    assert!(revoked.status.success(), "{}", text(&revoked.stderr));

    let copy = format!("sqlite3 {}/store.db", dir.path().display());
    let output = bash(
        &service,
        &format!("{copy} 'PRAGMA integrity_check; SELECT state FROM sandboxes WHERE id = \"{id}\"'"),
        dir.path(),
    );
    assert_eq!(text(&output.stdout), "ok\nrunning\n", "{}", text(&output.stderr));
    stop(&service).await;
}

/// The commands in the `console` blocks of a guide. Indented lines continue the one above them.
fn operator_commands(guide: &str) -> Vec<String> {
    let blocks = blocks(guide).into_iter().filter(|block| block.kind == "console");
    let mut commands: Vec<String> = Vec::new();
    for line in blocks.flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>()) {
        match (line.strip_prefix("# "), commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(above)) if line.starts_with(' ') => *above += &format!("\n{line}"),
            _ => panic!("{line:?} is not a command"),
        }
    }
    commands
}

/// Headings of the operations guide whose commands stop and start the service.
const COPY: &str = "### Copy the data directory";
const RESTORE: &str = "### Restore the data directory";

/// The text below a heading, up to the next heading.
fn section<'a>(guide: &'a str, heading: &str) -> &'a str {
    let found = guide.split_once(&format!("\n{heading}\n"));
    let (_, below) = found.unwrap_or_else(|| panic!("the guide has no heading {heading:?}"));
    below.split("\n##").next().unwrap_or(below)
}

/// Runs commands as an operator pastes them into a shell, which does not stop at errors by itself.
fn pasted(service: &Service, commands: &str, dir: &Path) -> Output {
    bash(service, &format!("set +euo pipefail\n{commands}"), dir)
}

/// Runs commands for the sandboxes of all accounts. They must fail if the service cannot be reached: what comes next assumes that they
/// have had their effect.
fn for_all_accounts(service: &Service, commands: &str, dir: &Path) {
    let unreachable = pasted(service, &format!("export SANDBOXD_URL=https://127.0.0.1:9\n{commands}"), dir);
    assert!(!unreachable.status.success(), "{commands}: {}", text(&unreachable.stderr));
    let output = pasted(service, commands, dir);
    assert!(output.status.success(), "{commands}: {}", text(&output.stderr));
}

/// The keys that the commands of the guide made for themselves with this label are revoked: one by each of the two runs.
fn assert_keys_are_revoked(service: &Service, label: &str) {
    let listed = bash(service, "sandboxd key list --json", Path::new("/"));
    let keys: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let own: Vec<_> = keys.as_array().unwrap().iter().filter(|key| key["label"] == label).collect();
    assert_eq!(own.len(), 2, "{keys}");
    assert!(own.iter().all(|key| key["revokedAt"].is_string() && key["expiresAt"].is_string()), "{keys}");
}

/// Carries out the commands below a heading of the operations guide. Systemd is replaced by what it does.
async fn carry_out(service: &Service, heading: &str, backup: &Path) {
    // The directory does not exist between two of the commands.
    let data = service.layout.data.canonicalize().unwrap().display().to_string();
    for command in operator_commands(section(&document("docs/operations.md"), heading)) {
        match command.as_str() {
            "systemctl stop sandboxd" => stop(service).await,
            "systemctl start sandboxd" => service.start_process().await.unwrap(),
            command if command.starts_with('(') => for_all_accounts(service, command, backup),
            command => {
                let command = command.replace(SHOWN_DATA_DIR, &data);
                shell(&command.replace("/backup/", &format!("{}/", backup.display())));
            }
        }
    }
}

fn shell(line: &str) {
    // starts: bash, cp, find, grep, mv, rm, sync
    let output = Command::new("bash").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

/// A data directory is copied and restored as the guide says, while sandboxes have processes.
async fn restore_with_processes(isolation: &str) {
    let service = service().await;
    let client = service.account().await.unwrap();
    let body = json!({ "image": Service::image(), "isolation": isolation });
    let path = |id: &str, what: &str| format!("/v1/sandboxes/{id}{what}");
    let create = async || {
        let created = client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
        created["id"].as_str().unwrap().to_owned()
    };
    let run = async |id: &str, command: &str| {
        let answer = client.post(&path(id, "/execute"), &json!({ "command": command })).await.unwrap();
        answer.is(200).unwrap()["stdout"].as_str().unwrap().to_owned()
    };
    let pause = async |id: &str| client.post_empty(&path(id, "/pause")).await.unwrap().is(200).unwrap();
    let (running, paused) = (create().await, create().await);
    for id in [&running, &paused] {
        run(id, "echo saved > note").await;
    }
    pause(&paused).await;
    let parent = service.layout.data.canonicalize().unwrap().parent().unwrap().to_owned();
    let backup = tempfile::tempdir_in(parent).unwrap();
    carry_out(&service, COPY, backup.path()).await;
    assert_keys_are_revoked(&service, "backup");

    for id in [&running, &paused] {
        assert_eq!(client.get(&path(id, "")).await.unwrap().is(200).unwrap()["state"], "paused");
        run(id, "echo later > note; sync; sleep 1000 > /dev/null 2>&1 &").await;
    }
    pause(&paused).await;
    carry_out(&service, RESTORE, backup.path()).await;
    let before = format!("{}.before", service.layout.data.canonicalize().unwrap().display());
    std::fs::rename(before, backup.path().join("before")).unwrap();
    let log = service.log();
    let warnings: Vec<&str> =
        log.lines().filter(|line| line.contains("the disk of a sandbox was replaced")).collect();
    assert_eq!(warnings.len(), 2, "{}", service.log_tail());
    assert!(warnings.iter().all(|line| line.contains("account")), "{warnings:?}");
    for id in [&running, &paused] {
        assert_eq!(client.get(&path(id, "")).await.unwrap().is(200).unwrap()["state"], "paused");
        let events = client.get(&path(id, "/events?type=sandbox.error")).await.unwrap();
        let events = events.is(200).unwrap()["data"].clone();
        let message = events[0]["data"]["message"].as_str().unwrap();
        assert!(message.contains("its disk was replaced"), "{message}");
        assert_eq!(run(id, "cat note; pgrep -c sleep || true").await, "saved\n0\n");
        // What is written now reaches the restored disk.
        run(id, "echo restored > note; sync").await;
        pause(id).await;
        let cold = client.post(&path(id, "/resume"), &json!({ "cold": true })).await.unwrap();
        cold.is(200).unwrap();
        assert_eq!(run(id, "cat note").await, "restored\n");
        client.delete(&path(id, "")).await.unwrap().is(200).unwrap();
    }
    stop(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_restore_guide_works_with_processes_of_containers() {
    restore_with_processes("container").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_restore_guide_works_with_processes_under_gvisor() {
    restore_with_processes("gvisor").await;
}

/// The configurations in the guides are valid.
#[test]
fn configurations_in_the_guides_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    // 'image list' needs a data directory with a database or images.
    std::fs::create_dir(dir.path().join("images")).unwrap();
    let program = workspace().join("target/bin/sandboxd");
    let mut count = 0;
    for name in ["docs/operations.md", "docs/images.md"] {
        for block in blocks(&document(name)).iter().filter(|block| block.kind == "toml") {
            count += 1;
            let file = dir.path().join("config.toml");
            std::fs::write(&file, &block.text).unwrap();
            // starts: sandboxd
            let output = Command::new(&program)
                .arg("--config")
                .arg(&file)
                .arg("--data-dir")
                .arg(dir.path())
                .args(["image", "list"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{name}, line {}: {}", block.line, text(&output.stderr));
        }
    }
    assert!(count >= 4, "the guides have too few configurations: {count}");
}

/// systemd accepts the unit file.
#[test]
fn the_systemd_unit_is_valid() {
    let version = Command::new("systemd-analyze").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        skipped("the_systemd_unit_is_valid", "systemd-analyze is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = workspace().join("target/bin/sandboxd").display().to_string();
    let unit = document("packaging/sandboxd.service").replace("/usr/local/bin/sandboxd", &program);
    let file = dir.path().join("sandboxd.service");
    std::fs::write(&file, unit).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(output.status.success() && !stderr.contains("sandboxd.service"), "{stderr}");
}

/// The tests that docs/security.md names for its guarantees exist: files, and functions in them.
#[test]
fn every_guarantee_names_an_existing_test() {
    let mut count = 0;
    for (at, line) in document("docs/security.md").lines().enumerate() {
        let mut file = None;
        for span in line.split('`').skip(1).step_by(2) {
            if span.ends_with(".rs") {
                let path = workspace().join(span);
                file = Some(
                    std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("line {}: no {span}", at + 1)),
                );
                count += 1;
            } else if let Some(file) = file.as_ref().filter(|_| span.contains('_') && !span.contains('.')) {
                assert!(file.contains(&format!("fn {span}(")), "line {}: no test {span}", at + 1);
                count += 1;
            }
        }
    }
    assert!(count >= 40, "docs/security.md names only {count} tests");
}

#[test]
fn only_varying_parts_are_masked() {
    assert_eq!(mask("hello from sb-4h1v8x2k9qz7m3t5w0ry\\n"), "hello from #\\n");
    assert_eq!(mask("at 2026-01-05T10:31:07.412Z, req_7k2m9x"), "at @, #");
    assert_eq!(
        mask("{\"exitCode\":1,\"durationMs\":108,\"signal\":null}"),
        "{\"exitCode\":1,%,\"signal\":null}"
    );
    assert_eq!(mask("2026-01-05 and ü"), "2026-01-05 and ü");
}
