//! `sandboxd run` from the command line, and the commands of the README.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cli/configuration.rs"]
mod configuration;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use e2e::workspace;

/// Shared with the rigs' images, so that one Debian root serves all tests.
fn data_dir() -> PathBuf {
    workspace().join("target/test-images")
}

fn run_dir() -> PathBuf {
    PathBuf::from(format!("/run/sandboxd-test-cli-{}", std::process::id()))
}

fn sandboxd() -> Command {
    // Builds the image first; otherwise the command would try to pull it.
    e2e::rootfs().unwrap();
    let program = workspace().join("target/bin/sandboxd");
    assert!(program.exists(), "no {}: run './dev build' first", program.display());
    // starts: sandboxd
    let mut command = Command::new(program);
    command
        .env("SANDBOXD_DATA_DIR", data_dir())
        .env("SANDBOXD_RUN_DIR", run_dir())
        .env_remove("SANDBOXD_CONFIG");
    command.stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    sandboxd().arg("run").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Held by every test of this file; the last one to finish removes the run directory.
struct RunDirGuard;

static GUARDS: Mutex<usize> = Mutex::new(0);

impl RunDirGuard {
    fn new() -> Self {
        *GUARDS.lock().unwrap() += 1;
        Self
    }
}

impl Drop for RunDirGuard {
    fn drop(&mut self) {
        let mut guards = GUARDS.lock().unwrap();
        *guards -= 1;
        if *guards == 0 {
            let _ = std::fs::remove_dir_all(run_dir());
        }
    }
}

#[test]
fn sandboxd_is_at_most_30_mb() {
    let bytes = std::fs::metadata(workspace().join("target/bin/sandboxd")).unwrap().len();
    assert!(bytes <= 30_000_000, "{bytes} bytes");
}

#[test]
fn output_and_exit_code_are_passed_on() {
    let _guard = RunDirGuard::new();
    let output = run(&["ubuntu:24.04", "--", "echo out; echo err >&2; exit 3"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".into(), "err\n".into()));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn several_words_are_not_parsed_by_a_shell() {
    let _guard = RunDirGuard::new();
    let output = run(&["ubuntu:24.04", "-e", "GREETING=it's", "--", "printf", "%s|", "$HOME", "a b", "'"]);
    assert_eq!(text(&output.stdout), "$HOME|a b|'|");
    let output =
        run(&["ubuntu:24.04", "-e", "GREETING=it's", "--workdir", "/srv/x", "--", "echo $GREETING; pwd"]);
    assert_eq!(text(&output.stdout), "it's\n/srv/x\n");
}

#[test]
fn a_timeout_kills_and_gives_exit_code_137() {
    let _guard = RunDirGuard::new();
    let output = run(&["ubuntu:24.04", "--timeout", "1", "--", "echo begun; sleep 60"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("begun\n", Some(137)));
}

#[test]
fn stdin_is_passed_with_option_i() {
    use std::io::Write;
    let _guard = RunDirGuard::new();
    let mut child = sandboxd()
        .args(["run", "-i", "ubuntu:24.04", "--", "wc -c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&[b'x'; 100_000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout).trim(), "100000");
}

#[test]
fn errors_name_the_invalid_value() {
    let _guard = RunDirGuard::new();
    let output = run(&["no-such:image", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("no-such:image"), "{}", text(&output.stderr));
    let output = run(&["ubuntu:24.04", "--cpu", "3", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("cpu") && stderr.contains('3') && stderr.contains("2, 4 or 8"), "{stderr}");
}

/// A run that receives a signal removes its sandbox before it ends.
#[test]
fn a_run_that_is_signalled_removes_its_sandbox() {
    use std::io::{BufRead, BufReader};
    let _guard = RunDirGuard::new();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mark = format!("97{}{code}", std::process::id());
        let line = format!("echo begun; sleep {mark}");
        let mut child =
            sandboxd().args(["run", "ubuntu:24.04", "--", &line]).stdout(Stdio::piped()).spawn().unwrap();
        let mut begun = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut begun).unwrap();
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(sleepers(&mark), 0);
    }
}

#[test]
fn a_closed_stdout_ends_the_run_silently() {
    use std::io::{BufRead, BufReader};
    let _guard = RunDirGuard::new();
    let mut child = sandboxd();
    let mut child = child
        .args(["run", "ubuntu:24.04", "--", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (line.as_str(), output.status.code(), text(&output.stderr)),
        ("y\n", Some(141), String::new())
    );
}

/// A killed run leaves a sandbox; the next run with the same directories removes it.
#[test]
fn the_next_run_removes_the_sandbox_of_a_killed_run() {
    use std::io::{BufRead, BufReader};
    let _guard = RunDirGuard::new();
    let mark = format!("98{}", std::process::id());
    let line = format!("echo begun; sleep {mark}");
    let mut child =
        sandboxd().args(["run", "ubuntu:24.04", "--", &line]).stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut begun).unwrap();
    assert_eq!(begun, "begun\n");
    child.kill().unwrap();
    child.wait().unwrap();
    // The next run may be one of another test that is still removing it.
    for _ in 0..20 {
        assert_eq!(run(&["ubuntu:24.04", "--", "true"]).status.code(), Some(0));
        if sleepers(&mark) == 0 {
            return;
        }
    }
    panic!("the sandbox of the killed run was not removed");
}

fn sleepers(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line == format!("sleep\0{mark}\0").into_bytes())
        })
        .count()
}

/// Commands that a test cannot run: the tests themselves, a build, a long measurement.
const NOT_IN_TESTS: [&str; 5] = ["./dev run", "./dev build", "./dev test", "./dev lint", "./dev bench"];

#[test]
fn every_command_of_the_readme_works() {
    let _guard = RunDirGuard::new();
    let readme = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    let mut count = 0;
    for line in fenced(&readme).filter(|line| !NOT_IN_TESTS.contains(line)) {
        count += 1;
        e2e::rootfs().unwrap();
        // starts: sandboxd, sbx
        let output = Command::new("bash")
            .args(["-c", line])
            .current_dir(workspace())
            .env("SANDBOXD_DATA_DIR", data_dir())
            .env("SANDBOXD_RUN_DIR", run_dir())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
        if line.contains("hello from") {
            assert!(text(&output.stdout).starts_with("hello from sb-"), "{}", text(&output.stdout));
        }
    }
    assert!(count >= 2, "the README has too few commands");
}

fn fenced(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        if line.starts_with("```") {
            inside = *line == "```sh";
            return false;
        }
        inside && !line.trim().is_empty()
    })
}
