//! `sbx` in interactive use and in scripts, against a real service.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "sbx/bytes.rs"]
mod bytes;
#[path = "sbx/copies.rs"]
mod copies;
#[path = "sbx/dialogues.rs"]
mod dialogues;
#[path = "sbx/events.rs"]
mod events;
#[path = "sbx/habits.rs"]
mod habits;
#[path = "sbx/interrupts.rs"]
mod interrupts;
#[path = "sbx/json.rs"]
mod json;
#[path = "sbx/local.rs"]
mod local;
#[path = "sbx/logs.rs"]
mod logs;
#[path = "sbx/output.rs"]
mod output;
#[path = "sbx/pulls.rs"]
mod pulls;
#[path = "support/skip.rs"]
mod skip;
#[path = "sbx/templates.rs"]
mod templates;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use api::bounds::{DISK_MB, MEMORY_MB};
use e2e::service::{Service, ServiceOptions};
use serde_json::Value;
use skip::skipped;

const TIMEOUT: Duration = Duration::from_secs(60);

fn program() -> PathBuf {
    e2e::sbx().unwrap()
}

/// A user of `sbx` with a service, an account and an empty home directory.
struct TestUser {
    service: Service,
    home: tempfile::TempDir,
    key: String,
}

impl TestUser {
    async fn new() -> Self {
        Self::with_options(&ServiceOptions::default()).await
    }

    async fn with_options(options: &ServiceOptions) -> Self {
        let service = Service::start(options).await.unwrap();
        let account = service.account().await.unwrap();
        let key = account.key().to_owned();
        Self { service, home: tempfile::tempdir().unwrap(), key }
    }

    fn url(&self) -> String {
        format!("https://{}", self.service.address)
    }

    /// `sbx` without the address and key of the service.
    fn sbx_without_login(&self) -> Command {
        // starts: sbx
        let mut command = Command::new(program());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home.path())
            .env("SANDBOXD_DATA_DIR", self.home.path())
            .stdin(Stdio::null());
        command
    }

    fn sbx(&self) -> Command {
        let mut command = self.sbx_without_login();
        command
            .env("SANDBOXD_URL", self.url())
            .env("SANDBOXD_API_KEY", &self.key)
            .env("SANDBOXD_CERTIFICATE", self.service.certificate_file().unwrap());
        command
    }

    /// `sbx` on a terminal. The shell that parses the words must exec: a shell that stays would be interrupted too.
    fn on_a_terminal(&self, words: &str) -> Command {
        let mut command = Command::new("script");
        for (name, value) in self.sbx().get_envs() {
            command.env(name, value.unwrap());
        }
        command.env("SHELL", "/bin/sh").stdin(Stdio::null());
        command.args(["-qec", &format!("exec {} {words}", program().display()), "/dev/null"]);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.sbx().args(words).output().unwrap()
    }

    /// The output of a command that must succeed.
    fn stdout(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.stdout(words)).unwrap()
    }

    fn create(&self) -> String {
        self.stdout(&["create", Service::image()]).trim().to_owned()
    }

    fn live(&self) -> Vec<String> {
        self.stdout(&["ls", "-q"]).lines().map(str::to_owned).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_passes_on_output_and_exit_code_and_leaves_nothing() {
    let user = TestUser::new().await;
    let image = Service::image();
    let output = user.run(&["run", image, "--", "echo out; echo err >&2; exit 3"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(code(&output), 3);
    assert_eq!(code(&user.run(&["run", image, "--", "kill -9 $$"])), 137);
    assert_eq!(code(&user.run(&["run", image, "--timeout", "300ms", "--", "sleep 60"])), 137);
    assert_eq!(code(&user.run(&["run", image, "-w", "/srv", "--", "exit 143"])), 143);
    assert_eq!(
        user.stdout(&["run", image, "-e", "A=it's", "--", "printf", "%s|", "$A", "a b", ""]),
        "$A|a b||"
    );
    assert_eq!(
        user.stdout(&["run", image, "-e", "A=it's", "-w", "/srv/x", "--", "echo $A; pwd"]),
        "it's\n/srv/x\n"
    );
    assert_eq!(user.stdout(&["run", image, "--buffered", "--", "printf 'no end'"]), "no end");
    let result = user.json(&["--json", "run", image, "--buffered", "--", "echo a"]);
    assert_eq!((result["stdout"].as_str(), result["exitCode"].as_i64()), (Some("a\n"), Some(0)));
    let lines = user.stdout(&["run", "--json", image, "--", "echo a; echo b >&2"]);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert!(names.contains(&"stdout") && names.contains(&"stderr") && names[2] == "done", "{lines}");
    assert_eq!(user.live(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_passed_and_output_is_not_delayed() {
    let user = TestUser::new().await;
    let mut child = user
        .sbx()
        .args(["run", "-i", Service::image(), "--", "wc -c; echo now; sleep 30"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&[b'x'; 100_000]).unwrap();
    let begin = Instant::now();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap().trim(), "100000");
    assert_eq!(lines.next().unwrap().unwrap(), "now");
    assert!(begin.elapsed() < Duration::from_secs(15), "a line was delayed");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let lines = user.stdout(&["run", Service::image(), "--", "seq 1 50000"]);
    assert!(lines.lines().eq((1..=50_000).map(|n| n.to_string())));
}

/// Copying does not count against the timeout of the sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn run_passes_long_input_to_a_sandbox_that_lives_long_enough() {
    let user = TestUser::new().await;
    let local = tempfile::tempdir().unwrap();
    let volume = format!("{}:/a", local.path().display());
    let mut child = user
        .sbx()
        .args(["run", "-i", "-v", &volume, Service::image(), "--", "wc -c; sleep 30"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[b'x'; 1_000_000]).unwrap();
    drop(input);
    let mut counted = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut counted).unwrap();
    assert_eq!(counted.trim(), "1000000");
    let [id] = &user.live()[..] else { panic!("expected one sandbox") };
    let details = &user.json(&["inspect", id])[0];
    // If sbx is killed, the sandbox ends soon, as nobody renews its timeout, and is not paused when idle.
    assert_eq!((&details["timeoutMs"], &details["idleTimeoutMs"]), (&300_000.into(), &0.into()));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

fn interrupt(child: &Child) {
    signal(child, "INT");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_are_created_listed_paused_and_removed() {
    let user = TestUser::new().await;
    let image = Service::image();
    let id = user.stdout(&["create", image, "-m", "job=17", "--idle", "0", "--timeout", "1h"]);
    let id = id.trim();
    let other = user.create();
    let table = user.stdout(&["ls"]);
    assert!(table.starts_with("ID ") && table.contains(id) && table.contains(image), "{table}");
    assert!(!table.contains('\x1b'), "colours in a pipe");
    assert_eq!(user.stdout(&["ls", "-q", "-m", "job=17"]).trim(), id);
    let details = &user.json(&["inspect", id])[0];
    assert_eq!((&details["idleTimeoutMs"], &details["timeoutMs"]), (&0.into(), &3_600_000.into()));
    assert_eq!(user.stdout(&["pause", id, &other]), format!("{id}\n{other}\n"));
    assert_eq!(user.stdout(&["ls", "-q", "--state", "paused"]).lines().count(), 2);
    let refused = user.run(&["exec", "--no-resume", id, "--", "true"]);
    assert_eq!(code(&refused), 125);
    assert!(text(&refused.stderr).contains("INVALID_STATE"), "{}", text(&refused.stderr));
    assert_eq!(user.json(&["resume", "--json", id])["state"], "running");
    assert_eq!(user.stdout(&["exec", id, "-e", "A=1", "-w", "/tmp", "--", "echo $A; pwd"]), "1\n/tmp\n");
    let removed = user.run(&["rm", "sb_00000000", id]);
    assert_eq!((code(&removed), text(&removed.stdout)), (125, format!("{id}\n")));
    assert_eq!(user.live(), [other.as_str()]);
    // A sandbox that is gone needs nothing, as with the ids of `ls -aq`.
    let removed = user.run(&["rm", id, &other, id]);
    assert_eq!((code(&removed), text(&removed.stdout)), (0, format!("{other}\n")));
    assert_eq!(text(&removed.stderr), format!("sbx: already terminated: {id}, {id}\n"));
    assert_eq!(user.live(), Vec::<String>::new());
    user.create();
    user.stdout(&["rm", "--all"]);
    assert_eq!(user.live(), Vec::<String>::new());
    let all = user.json(&["ls", "--all", "--json"]);
    assert!(all.as_array().unwrap().iter().all(|item| item["state"] == "terminated"));
    assert_eq!(all.as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_stands_for_the_id_in_every_command() {
    let user = TestUser::new().await;
    let image = Service::image();
    let id = user.stdout(&["create", image, "--name", "web", "--timeout", "1h"]);
    let id = id.trim();
    let table = user.stdout(&["ls"]);
    assert!(table.starts_with("ID ") && table.contains(" NAME ") && table.contains(" web "), "{table}");
    assert_eq!(user.stdout(&["ls", "-q", "-m", "sandboxd.name=web"]).trim(), id);
    assert_eq!(user.stdout(&["exec", "web", "--", "echo kept > note; cat note"]), "kept\n");
    assert_eq!(user.stdout(&["cp", "web:note", "-"]), "kept\n");
    assert_eq!(user.json(&["inspect", "web"])[0]["id"], id);
    assert_eq!(user.json(&["timeout", "2h", "web", "--json"])["id"], id);
    user.stdout(&["ps", "web"]);
    assert!(user.stdout(&["events", "web"]).contains("exec.completed"));
    assert_eq!(user.stdout(&["pause", "web"]), "web\n");
    assert_eq!(user.json(&["resume", "web", "--json"])["id"], id);
    let snapshot = user.stdout(&["snapshot", "create", "web"]);
    assert_eq!(user.stdout(&["snapshot", "ls", "-q", "--sandbox", "web"]), snapshot);
    let fork = user.stdout(&["fork", "web", "--name", "copy"]);
    assert_eq!(user.stdout(&["exec", "copy", "--", "cat note"]), "kept\n");
    let refused = user.run(&["create", image, "--name", "web"]);
    assert!(text(&refused.stderr).contains(id), "{}", text(&refused.stderr));
    assert_eq!(user.json(&["rm", "web", "--json"])["id"], id);
    // The name still says what has ended, until another sandbox has it.
    for words in [&["exec", "web", "--", "true"][..], &["logs", "web"], &["inspect", "web"]] {
        let output = user.run(words);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 125, "{stderr}");
        assert!(stderr.contains(id) && stderr.contains("was terminated at"), "{words:?}: {stderr}");
    }
    assert!(user.stdout(&["events", "web"]).contains("sandbox.terminated"));
    assert!(user.stdout(&["ls", "--all"]).contains(" web "));
    assert_eq!(text(&user.run(&["rm", "web"]).stderr), "sbx: already terminated: web\n");
    // It is free at once.
    let next = user.stdout(&["create", image, "--name", "web"]);
    assert_ne!(next.trim(), id);
    user.stdout(&["rm", "web", fork.trim()]);
    assert_eq!(user.live(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_a_sandbox_are_shown() {
    let user = TestUser::new().await;
    let id = user.create();
    // Until it calls exec, the child has the command line of its shell.
    let sleep = "sleep 4711 & until grep -q sleep /proc/$!/comm; do :; done";
    user.stdout(&["exec", &id, "--", &format!("{sleep}; (while :; do :; done) & echo")]);
    let table = user.stdout(&["ps", &id]);
    assert!(table.starts_with("PID ") && table.contains("sleep 4711"), "{table}");
    let processes = user.json(&["--json", "ps", &id]);
    let sleep =
        processes.as_array().unwrap().iter().find(|process| process["command"] == "sleep 4711").unwrap();
    assert!(sleep["memoryKb"].as_u64().unwrap() > 0 && sleep["user"] == "0", "{sleep}");
    let busiest = user.stdout(&["top", &id, "--every", "500ms"]);
    let first = busiest.lines().nth(1).unwrap();
    let share: f64 = first.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!(share > 10.0, "{busiest}");
    // `top` has taken half a second.
    let later = user.json(&["--json", "ps", &id]);
    let old = later.as_array().unwrap().iter().find(|process| process["command"] == "sleep 4711").unwrap();
    assert!((0.4..60.0).contains(&old["ageSeconds"].as_f64().unwrap()), "{old}");
    user.stdout(&["pause", &id]);
    assert_eq!(code(&user.run(&["ps", &id])), 125);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_remedy() {
    let user = TestUser::new().await;
    let wrong = |words: &[&str], parts: &[&str]| {
        let output = user.run(words);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 125, "{words:?}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{words:?}: {stderr:?} lacks {part:?}");
        }
    };
    wrong(&["exec", "sb_00000000", "--", "true"], &["SANDBOX_NOT_FOUND", "request req_", "sbx ls"]);
    wrong(&["run", "no-such:image", "--", "true"], &["no-such:image", "INVALID_CONFIG", "ubuntu:24.04"]);
    wrong(&["run", "--cpu", "3", Service::image(), "--", "true"], &["2, 4 or 8"]);
    wrong(&["exec", "nonsense", "--", "true"], &["'nonsense' does not exist", "SANDBOX_NOT_FOUND", "sbx ls"]);
    wrong(&["exec", "sb_nonsense!", "--", "true"], &["sb_nonsense!", "write the whole id, sb_"]);
    wrong(&["logs", "sb_00000000", "ex_nope"], &["ex_nope", "'sbx logs --list SANDBOX' lists executions"]);
    wrong(&["logs", "ex_00000000000000000000"], &["'sbx logs SANDBOX ex_00000000000000000000'"]);
    wrong(&["exec", "--timeout", "25h", "sb_00000000", "--", "true"], &["up to 24h"]);
    wrong(&["exec", "--timeout", "6m", "--buffered", "sb_00000000", "--", "true"], &["at most 5m"]);
    wrong(&["--url", "https://127.0.0.1:9", "ls"], &["127.0.0.1:9", "check that the service runs"]);
    wrong(&["--url", "http://a.example", "ls"], &["unencrypted"]);
    wrong(&["--profile", "nowhere", "ls"], &["nowhere", "sbx login"]);
    wrong(&["frobnicate"], &["frobnicate"]);
    let output = user.sbx().env("SANDBOXD_API_KEY", "sk_wrong").arg("ls").output().unwrap();
    assert!(text(&output.stderr).contains("UNAUTHORIZED") && text(&output.stderr).contains("sbx login"));
    let output = user.sbx_without_login().arg("ls").output().unwrap();
    assert!(text(&output.stderr).contains("still preparing"), "{}", text(&output.stderr));
    // As `sbx ls | head -0` does.
    let mut child =
        user.sbx().args(["ls", "--all"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
    assert_eq!(code(&user.run(&["--help"])), 0);
    let help = user.stdout(&["run", "--help"]);
    for bounds in [MEMORY_MB, DISK_MB] {
        let range = format!("{}g to {}g", bounds.min / 1024, bounds.max / 1024);
        assert!(help.contains(&range), "{bounds:?}: {help}");
    }
}

/// A service user often has no home directory.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_works_without_a_home_directory() {
    let user = TestUser::new().await;
    let without_home = |mut command: Command, words: &[&str]| {
        let output = command.env_remove("HOME").args(words).output().unwrap();
        (code(&output), text(&output.stderr))
    };
    assert_eq!(without_home(user.sbx(), &["ls"]), (0, String::new()));
    // The key of a local daemon is in its data directory.
    let mut local = user.sbx_without_login();
    local.env("SANDBOXD_DATA_DIR", &user.service.layout.data);
    assert_eq!(without_home(local, &["--url", &user.url(), "ls"]), (0, String::new()));
    for words in [&["--profile", "work", "ls"][..], &["login"]] {
        let (code, stderr) = without_home(user.sbx(), words);
        assert!(
            code == 125 && stderr.contains("neither XDG_CONFIG_HOME nor HOME is set"),
            "{words:?}: {stderr}"
        );
    }
    let mut invalid_home = user.sbx();
    invalid_home.env("HOME", "/dev/null");
    assert!(invalid_home.arg("ls").output().unwrap().status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_private_and_used_only_for_its_service() {
    let user = TestUser::new().await;
    let log_in = |words: &[&str], key: &str| {
        let mut command = user.sbx_without_login();
        command
            .args(["--url", &user.url(), "login"])
            .args(words)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may fail before it reads the key.
        let _ = child.stdin.take().unwrap().write_all(key.as_bytes());
        child.wait_with_output().unwrap()
    };
    let output = log_in(&[], &user.key);
    let stderr = text(&output.stderr);
    assert_eq!(code(&output), 125, "{stderr}");
    let fingerprint = stderr.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap();
    let output = log_in(&["--fingerprint", fingerprint], "sk_wrong");
    assert!(text(&output.stderr).contains("UNAUTHORIZED"), "{}", text(&output.stderr));
    let file = user.home.path().join(".config/sbx/config.toml");
    assert!(!file.exists(), "an invalid key was stored");
    let output = log_in(&["--fingerprint", fingerprint], &user.key);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = user.sbx_without_login().arg("ls").output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let certificate = user.service.certificate_file().unwrap();
    let output = log_in(&["--profile", "two", "--certificate", certificate.to_str().unwrap()], &user.key);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = user.sbx_without_login().args(["--profile", "two", "ls"]).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    // The stored key is used only for its own service.
    let elsewhere = user.sbx_without_login().args(["--url", "https://127.0.0.1:9", "ls"]).output().unwrap();
    assert!(text(&elsewhere.stderr).contains("no API key"), "{}", text(&elsewhere.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_offers_commands_and_ids_of_live_sandboxes() {
    let user = TestUser::new().await;
    let (id, gone) = (user.create(), user.create());
    user.stdout(&["rm", &gone]);
    let candidates = user.stdout(&["__complete", "--", "exec", ""]);
    assert_eq!(candidates, format!("{id}\t{}, running\n", Service::image()));
    assert_eq!(user.stdout(&["__complete", "--", "resume", "sb_"]), "");
    assert!(user.stdout(&["__complete", "--", "ins"]).starts_with("inspect\t"));
    let script = r#"source <(sbx completion bash)
        COMP_WORDS=(sbx exec sb_) COMP_CWORD=2; _sbx; echo "${COMPREPLY[@]}""#;
    let dir = program().parent().unwrap().to_owned();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    for (name, value) in user.sbx().get_envs() {
        bash.env(name, value.unwrap());
    }
    let output = bash.env("PATH", path).args(["-c", script]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), id, "{}", text(&output.stderr));
    // Without a service there are no candidates and no error messages in the command line.
    let output = user.sbx_without_login().args(["__complete", "--", "exec", ""]).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len(), code(&output)), (0, 0, 0));
    let pages = user.home.path().join("man");
    user.stdout(&["man", pages.to_str().unwrap()]);
    let page = std::fs::read_to_string(pages.join("sbx-run.1")).unwrap();
    assert!(page.contains("in a new sandbox") && pages.join("sbx.1").exists());
    for shell in ["zsh", "fish"] {
        assert!(user.stdout(&["completion", shell]).contains("__complete"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_used_only_on_terminals() {
    let user = TestUser::new().await;
    user.create();
    let on_a_terminal = |extra: &[(&str, &str)]| {
        user.on_a_terminal("ls").env("TERM", "xterm").envs(extra.iter().copied()).output().ok()
    };
    let Some(painted) = on_a_terminal(&[("NO_COLOR", "")]) else {
        return skipped("colours_are_used_only_on_terminals", "the program 'script' is not installed");
    };
    assert!(text(&painted.stdout).contains("\x1b[32mrunning"), "{:?}", text(&painted.stdout));
    let plain = on_a_terminal(&[("NO_COLOR", "1")]).unwrap();
    assert!(text(&plain.stdout).contains("running") && !text(&plain.stdout).contains('\x1b'));
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_measures_the_service() {
    let user = TestUser::new().await;
    let lines = user.stdout(&["bench", "--json", "-n", "2", Service::image()]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row["p50_ms"].as_f64().unwrap() > 0.0), "{lines}");
    assert_eq!(user.live(), Vec::<String>::new());
    assert_eq!(user.stdout(&["open"]).trim(), format!("{}/docs", user.url()));
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_exposed_listed_opened_and_closed() {
    let user = TestUser::new().await;
    let id = user.create();
    assert!(user.stdout(&["ports", &id]).starts_with("PORT"));
    let port = user.service.address.port();
    let url = |number: u16| format!("https://{number}-{}.sandboxes.localhost:{port}", id.replace('_', "-"));
    assert_eq!(user.stdout(&["expose", &id, "8080", "9090"]), format!("{}\n{}\n", url(8080), url(9090)));
    let public = user.json(&["--json", "expose", &id, "3000", "--public", "--no-resume"]);
    assert_eq!(
        (public["visibility"].as_str(), public["autoResume"].as_bool()),
        (Some("public"), Some(false))
    );
    let listed = user.json(&["--json", "ports", &id]);
    let numbers: Vec<_> =
        listed.as_array().unwrap().iter().map(|port| port["port"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [3000, 8080, 9090]);
    assert_eq!(user.stdout(&["open", &id, "3000"]).trim(), url(3000));
    let link = user.stdout(&["open", &id, "8080", "--for", "10m"]);
    assert!(link.starts_with(&format!("{}/?sandbox_token=spt_", url(8080))), "{link}");
    assert_eq!(user.stdout(&["unexpose", &id, "9090"]), "9090\n");
    for words in
        [&["unexpose", &id, "9090"][..], &["open", &id, "9090"], &["expose", &id, "0"], &["open", &id]]
    {
        assert_ne!(code(&user.run(words)), 0, "{words:?}");
    }
    let output = user.run(&["open", &id, "9090"]);
    assert!(text(&output.stderr).contains(&format!("'sbx expose {id} 9090'")), "{}", text(&output.stderr));
    // A person reads how to reach a private port, if there is a terminal to test with.
    if let Ok(output) = user.on_a_terminal(&format!("expose {id} 8080")).output() {
        let told = text(&output.stdout);
        assert!(told.contains("'sbx open") && told.contains("--cacert /"), "{told}");
    }
}
