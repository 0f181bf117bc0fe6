//! What users of Docker and other tools type, and what they expect to read.

use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::service::Service;

use crate::{TIMEOUT, TestUser, code, skipped, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_follows_the_sandbox_or_the_image() {
    let user = TestUser::new().await;
    let id = user.create();
    assert_eq!(user.stdout(&["exec", &id, "echo", "-n", "hi"]), "hi");
    assert_eq!(
        user.stdout(&["exec", "-e", "A=1", &id, "-w", "/tmp", "sh", "-c", "echo $A; pwd"]),
        "1\n/tmp\n"
    );
    assert_eq!(user.stdout(&["run", Service::image(), "echo", "-n", "--json"]), "--json");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_come_from_files() {
    let user = TestUser::new().await;
    let id = user.create();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# a comment\nA=\"1\"\n\nB=file\n").unwrap();
    let (file, print) = (file.path().to_str().unwrap(), "echo $A $B");
    assert_eq!(user.stdout(&["exec", "--env-file", file, "-e", "B=word", &id, print]), "\"1\" word\n");
    assert_eq!(user.stdout(&["run", "--env-file", file, Service::image(), print]), "\"1\" file\n");
    // As in a file, a name without a value here is skipped.
    assert_eq!(user.stdout(&["exec", "-e", "SBX_NOT_SET", &id, "echo ${SBX_NOT_SET-unset}"]), "unset\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_on_a_terminal() {
    const NAME: &str = "commands_run_on_a_terminal";
    let user = TestUser::new().await;
    let id = user.create();
    let on_a_terminal = |words: &str| user.on_a_terminal(words).output().ok();
    let Some(output) = on_a_terminal(&format!("exec -it {id} tty")) else {
        return skipped(NAME, "the program 'script' is not installed");
    };
    assert!(text(&output.stdout).contains("/dev/pts/"), "{}", text(&output.stdout));
    let output = on_a_terminal(&format!("run -it {} -- 'tty; exit 3'", Service::image())).unwrap();
    assert!(text(&output.stdout).contains("/dev/pts/") && code(&output) == 3, "{}", text(&output.stdout));
    assert_eq!(user.live(), [id.as_str()]);
    // Only the input has to be a terminal.
    let file = user.home.path().join("output");
    let output = on_a_terminal(&format!("exec -it {id} tty > {}", file.display())).unwrap();
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(code(&output) == 0 && written.contains("/dev/pts/"), "{written:?}");
    let output = user.run(&["exec", "-it", &id, "tty"]);
    assert!(code(&output) == 125 && text(&output.stderr).contains("--tty"), "{}", text(&output.stderr));
    // A person reads when the sandbox ends, unless it was said; a script does not.
    let output = on_a_terminal(&format!("create {}", Service::image())).unwrap();
    assert!(text(&output.stdout).contains("ends in 5m; 'sbx timeout 1h"), "{}", text(&output.stdout));
    let output = on_a_terminal(&format!("create --timeout 1h {}", Service::image())).unwrap();
    assert!(!text(&output.stdout).contains("ends in"), "{}", text(&output.stdout));
    assert_eq!(text(&user.run(&["create", Service::image()]).stderr), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_is_shown_and_changed() {
    let user = TestUser::new().await;
    let image = Service::image();
    let create = |words: &[&str]| user.stdout(&[&["create", image][..], words].concat()).trim().to_owned();
    let egress = |id: &str| user.json(&["--json", "network", "show", id])["egress"].clone();
    for words in [&["--offline"][..], &["--network", "none"]] {
        let id = create(words);
        assert_eq!(
            (&egress(&id)["default"], egress(&id)["allow"].as_array().unwrap().len()),
            (&"deny".into(), 0)
        );
        user.stdout(&["rm", &id]);
    }
    let id = create(&["--network", "example.com"]);
    assert_eq!(egress(&id)["allow"], serde_json::json!(["example.com"]));
    assert_eq!(user.stdout(&["network", "allow", &id, "*.example.org", "192.0.2.0/24"]).trim(), id);
    let table = user.stdout(&["network", "show", &id]);
    assert!(table.contains("example.com, *.example.org") && table.contains("192.0.2.0/24"), "{table}");
    user.stdout(&["network", "deny", &id, "example.com"]);
    assert_eq!(egress(&id)["allow"], serde_json::json!(["*.example.org"]));
    user.stdout(&["network", "allow", &id, "--only", "example.net"]);
    assert_eq!(egress(&id)["allow"], serde_json::json!(["example.net"]));
    user.stdout(&["network", "allow", &id, "--all"]);
    assert_eq!(egress(&id)["default"], "allow");
    let refused = user.run(&["network", "deny", &id, "example.com"]);
    assert!(code(&refused) == 125 && text(&refused.stderr).contains("--only"), "{}", text(&refused.stderr));
    user.stdout(&["network", "offline", &id]);
    assert_eq!(egress(&id)["default"], "deny");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_isolation_expiry_and_metadata() {
    let user = TestUser::new().await;
    let words =
        ["create", Service::image(), "-m", "job=17", "--timeout", "90m", "--memory", "2g", "--disk", "5g"];
    let id = user.stdout(&words);
    let table = user.stdout(&["ls"]);
    assert!(table.contains("container") && table.contains("in 1h") && table.contains("2g"), "{table}");
    assert!(!table.contains("job=17"), "{table}");
    assert!(user.stdout(&["ls", "--wide"]).contains("job=17"));
    let item = &user.json(&["--json", "ls"])[0];
    assert_eq!((&item["id"], &item["metadata"]["job"]), (&id.trim().into(), &"17".into()));
    user.stdout(&["pause", id.trim()]);
    assert!(user.stdout(&["ls"]).contains("paused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_range_are_named_in_the_units_of_the_user() {
    let user = TestUser::new().await;
    let id = user.create();
    for (words, part) in [
        (&["create", Service::image(), "--memory", "1g"][..], "--memory is 1g; allowed: 2g to 16g"),
        (&["create", Service::image(), "--memory", "1g"], "resources.minimum.memory_mb"),
        (&["create", Service::image(), "--cpus", "1"], "resources.minimum.cpu"),
        (&["create", Service::image(), "--disk", "100g"], "--disk is 100g; allowed: 5g to 50g"),
        (&["create", Service::image(), "--timeout", "25h"], "--timeout is 25h; allowed: 1ms to 24h"),
        (&["timeout", "2d", &id], "--timeout is 2d; allowed: "),
        (&["create", Service::image(), "--memory", "4k"], "such as 4g"),
        (&["exec", "--timeout", "25h", &id, "true"], "up to 24h"),
        (&["run", "--cpus", "1.5", Service::image(), "true"], "2, 4 or 8"),
        (&["exec", "-u", "1000:1000", &id, "true"], "the name or the number of a user"),
        (&["exec", "-u", "1000:1000", &id, "true"], "write -u 1000;"),
        (&["exec", &id[..8], "true"], "whole id"),
    ] {
        let output = user.run(words);
        assert!(
            code(&output) == 125 && text(&output.stderr).contains(part),
            "{words:?}: {}",
            text(&output.stderr)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_command_says_why() {
    let user = TestUser::new().await;
    let id = user.create();
    for (words, exit, part) in [
        (&["exec", "--timeout", "1s", &id, "sleep 60"][..], 137, "time limit of 1s"),
        (&["exec", "--buffered", "--timeout", "1s", &id, "sleep 60"], 137, "time limit of 1s"),
        (&["run", "--timeout", "1s", Service::image(), "sleep 60"], 137, "time limit of 1s"),
        (&["exec", &id, "kill -9 $$"], 137, "SIGKILL"),
        (&["exec", &id, "bash -c 'kill -9 $$'; exit $?"], 137, "SIGKILL"),
    ] {
        let output = user.run(words);
        let stderr = text(&output.stderr);
        let lines = stderr.lines().filter(|line| line.starts_with("sbx: ")).count();
        assert_eq!((code(&output), lines), (exit, 1), "{words:?}: {stderr}");
        assert!(stderr.contains(part), "{words:?}: {stderr}");
    }
    // The message of the service has no prefix, so a line of sbx tells it from the output of a command.
    for words in [&["exec", "-w", "/nope", &id, "ls"][..], &["exec", "--buffered", "-w", "/nope", &id, "ls"]]
    {
        let output = user.run(words);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 126, "{words:?}: {stderr}");
        assert!(stderr.contains("/nope does not exist"), "{words:?}: {stderr}");
        assert!(stderr.ends_with("sbx: the command could not start\n"), "{words:?}: {stderr}");
    }
    // Following a log is like running the command.
    let execution = user.stdout(&["exec", "--detach", &id, "echo late; exit 7"]);
    let followed = user.run(&["logs", "-f", &id, execution.trim()]);
    assert_eq!((code(&followed), text(&followed.stdout)), (7, "late\n".to_owned()));
    // Without an execution it is the newest one.
    let followed = user.run(&["logs", "-f", &id]);
    assert_eq!((code(&followed), text(&followed.stdout)), (7, "late\n".to_owned()));
    assert!(text(&followed.stderr).contains(execution.trim()), "{}", text(&followed.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_run_is_a_sandbox_with_a_command() {
    let user = TestUser::new().await;
    let image = Service::image();
    let work = "id -un; echo $A; pwd; sleep 600";
    let options = ["--name", "web", "-e", "A=1", "-w", "/tmp", "-u", "nobody", "-p", "8080"];
    let started = user.run(&[&["run", "-d"][..], &options, &[image, "--", work]].concat());
    let stderr = text(&started.stderr);
    assert_eq!((code(&started), text(&started.stdout).as_str()), (0, "web\n"), "{stderr}");
    assert!(!stderr.contains("--pause-on-timeout"), "'run' has no such option: {stderr}");
    for part in ["ends in 5m", "https://8080-", "'sbx open web 8080'"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert_eq!(user.json(&["inspect", "web"])[0]["idleTimeoutMs"], 0);
    let begin = Instant::now();
    while user.stdout(&["logs", "web"]) != "nobody\n1\n/tmp\n" {
        assert!(begin.elapsed() < TIMEOUT, "{}", user.stdout(&["logs", "web"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(user.stdout(&["logs", "--tail", "1", "web"]), "/tmp\n");
    // A server counts more than what is run beside it.
    assert_eq!(user.stdout(&["exec", "web", "echo beside"]), "beside\n");
    let logs = user.run(&["logs", "web"]);
    assert_eq!(text(&logs.stdout), "nobody\n1\n/tmp\n");
    assert!(text(&logs.stderr).contains("'sbx logs --list web'"), "{}", text(&logs.stderr));
    let listed = user.stdout(&["logs", "--list", "web"]);
    assert!(listed.contains("sleep 600") && listed.contains("echo beside"), "{listed}");
    // Without a name it is the id, and a refusal creates no sandbox.
    let id = user.stdout(&["run", "-dit", "--timeout", "1h", image]);
    assert_eq!(user.json(&["inspect", id.trim()])[0]["timeoutMs"], 3_600_000);
    let before = user.live().len();
    for words in [["-v", ".:/w:rw"], ["-p", "8080:80"], ["-u", "1000:1000"]] {
        let failed = user.run(&[&["run", "-d"][..], &words, &[image, "true"]].concat());
        assert_eq!(code(&failed), 125, "{words:?}: {}", text(&failed.stderr));
    }
    assert_eq!(user.live().len(), before);
    let execution = user.stdout(&["exec", "-dit", "web", "echo detached"]);
    assert_eq!(user.stdout(&["logs", "-f", "web", execution.trim()]), "detached\n");
    assert_eq!(user.stdout(&["logs", "-f", "--tail", "1", "web", execution.trim()]), "detached\n");
}

/// It would wait for two minutes at first, and then again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_detached_run_does_not_wait_for_a_reader() {
    let user = TestUser::new().await;
    // More than is stored.
    let work = "head -c 50000000 /dev/zero; touch /tmp/printed; sleep 600";
    user.stdout(&["run", "-d", "--name", "chatty", Service::image(), "--", work]);
    let is_printed = |file: &str| {
        let begin = Instant::now();
        while code(&user.run(&["exec", "chatty", &format!("test -e {file}")])) != 0 {
            assert!(begin.elapsed() < TIMEOUT, "it waits for a reader");
            std::thread::sleep(Duration::from_millis(500));
        }
    };
    is_printed("/tmp/printed");
    // A detached command beside it does not wait, either.
    user.stdout(&["exec", "-d", "chatty", "head -c 50000000 /dev/zero; touch /tmp/beside"]);
    is_printed("/tmp/beside");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_as_a_user() {
    let user = TestUser::new().await;
    let number_of = |name: &str| user.stdout(&["run", "-u", name, Service::image(), "id -u"]);
    assert_eq!(number_of("0"), "0\n");
    assert_ne!(number_of("nobody"), "0\n");
}

/// As 'docker start' does for a container that runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_sandbox_is_resumed_without_a_failure() {
    let user = TestUser::new().await;
    let id = user.create();
    let output = user.run(&["resume", &id]);
    assert_eq!((code(&output), text(&output.stdout)), (0, format!("{id}\n")), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), format!("sbx: {id} runs already\n"));
    // Its processes would go on, which is not what was asked for.
    assert_eq!(code(&user.run(&["resume", "--cold", &id])), 125);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_port_has_no_url_to_use() {
    let user = TestUser::new().await;
    let id = user.create();
    let output = user.run(&["expose", &id, "6379"]);
    assert_eq!(code(&output), 0);
    for part in ["HTTP only", "Redis", &format!("sbx exec -i {id} 'socat - TCP:localhost:6379'")] {
        assert!(text(&output.stderr).contains(part), "{part}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_has_timed_out_says_so_by_its_name() {
    let user = TestUser::new().await;
    user.stdout(&["create", Service::image(), "--name", "short", "--timeout", "1s"]);
    let begin = Instant::now();
    while !user.stdout(&["ls", "--all"]).contains("terminated") {
        assert!(begin.elapsed() < TIMEOUT, "{}", user.stdout(&["ls", "--all"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let output = user.run(&["exec", "short", "true"]);
    for part in ["reason 'timeout'", "--timeout of 'sbx create'", "'sbx timeout 24h SANDBOX'"] {
        assert!(text(&output.stderr).contains(part), "{part}: {}", text(&output.stderr));
    }
    let table = user.stdout(&["ls", "--all"]);
    assert!(table.contains(" short "), "{table}");
    // A command that the timeout ends names the same.
    user.stdout(&["create", Service::image(), "--name", "short", "--timeout", "3s"]);
    let output = user.run(&["exec", "short", "sleep 60"]);
    assert!(text(&output.stderr).contains("'sbx timeout"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_are_killed_and_signalled() {
    let user = TestUser::new().await;
    let id = user.create();
    let start = || user.stdout(&["exec", "--detach", &id, "sleep 600"]).trim().to_owned();
    let (first, second, third) = (start(), start(), start());
    assert_eq!(user.stdout(&["kill", &id, &first, &second]), format!("{first}\n{second}\n"));
    assert_eq!(user.stdout(&["kill", "--signal", "term", &id, &third]).trim(), third);
    let begin = Instant::now();
    while user.stdout(&["logs", "--list", &id]).contains("running") {
        assert!(begin.elapsed() < TIMEOUT, "{}", user.stdout(&["logs", "--list", &id]));
        std::thread::sleep(Duration::from_millis(50));
    }
    let listed = user.stdout(&["logs", "--list", &id]);
    assert!(listed.contains("SIGKILL") && listed.contains("SIGTERM"), "{listed}");
    // One that has ended needs no signal.
    assert_eq!(user.stdout(&["kill", "-s", "TERM", &id, &third]).trim(), third);
    assert_eq!(user.stdout(&["kill", "-s", "15", &id, &third]).trim(), third);
    let missing = user.run(&["kill", &id, "ex_00000000000000000000"]);
    assert!(code(&missing) == 125 && text(&missing.stderr).contains("sbx logs"), "{}", text(&missing.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_shown_while_commands_hold_all_slots() {
    let user = TestUser::new().await;
    let id = user.create();
    let spawn = || {
        let mut command = user.sbx();
        command.args(["exec", "--buffered", &id, "sleep 4712"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut commands = [spawn(), spawn(), spawn()];
    let begin = Instant::now();
    while user.stdout(&["ps", &id]).matches("sleep 4712").count() < 3 {
        assert!(begin.elapsed() < TIMEOUT, "{}", user.stdout(&["ps", &id]));
        std::thread::sleep(Duration::from_millis(500));
    }
    for command in &mut commands {
        command.kill().unwrap();
        command.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_have_names() {
    let user = TestUser::new().await;
    let id = user.create();
    user.stdout(&["exec", &id, "echo one > step"]);
    let first = user.stdout(&["snapshot", "create", &id, "--name", "step-one"]);
    user.stdout(&["exec", &id, "echo two > step"]);
    assert_eq!(user.stdout(&["rollback", &id, "step-one"]).trim(), id);
    assert_eq!(user.stdout(&["exec", &id, "cat step"]), "one\n");
    let copy = user.stdout(&["create", "step-one:latest"]);
    assert_eq!(user.stdout(&["exec", copy.trim(), "cat step"]), "one\n");
    let second = user.stdout(&["snapshot", "create", &id, "--name", "step-one"]);
    assert_eq!(user.json(&["inspect", "step-one"])[0]["id"], second.trim());
    assert_eq!(user.json(&["inspect", first.trim()])[0]["name"], "step-one");
    let ambiguous = user.run(&["snapshot", "rm", "step-one"]);
    let stderr = text(&ambiguous.stderr);
    assert!(stderr.contains(first.trim()) && stderr.contains(second.trim()), "{stderr}");
    user.stdout(&["snapshot", "rm", second.trim()]);
    assert_eq!(user.stdout(&["snapshot", "rm", "step-one"]), first);
    let missing = user.run(&["rollback", &id, "step-one"]);
    assert!(text(&missing.stderr).contains("snapshot ls"), "{}", text(&missing.stderr));
    // The working directory of the sandbox is that of sandboxes and builds above the snapshot.
    let own = user.stdout(&["create", "-w", "/srv/app", Service::image()]);
    user.stdout(&["snapshot", "create", own.trim(), "--name", "with-directory"]);
    assert_eq!(user.stdout(&["run", "with-directory", "pwd"]), "/srv/app\n");
    assert_eq!(user.stdout(&["run", "-w", "/tmp", "with-directory", "pwd"]), "/tmp\n");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("Dockerfile"), "FROM with-directory\nRUN pwd > here\n").unwrap();
    user.stdout(&["build", "-t", "above", dir.path().to_str().unwrap()]);
    assert_eq!(user.stdout(&["run", "above", "cat /srv/app/here; pwd"]), "/srv/app\n/srv/app\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_belongs_to_the_account_of_the_caller() {
    let user = TestUser::new().await;
    let mut command = user.sbx();
    command.env("SANDBOXD_CONFIG", user.service.config_file());
    command.env("SANDBOXD_DATA_DIR", &user.service.layout.data);
    let created = command.args(["key", "create"]).output().unwrap();
    assert!(created.status.success(), "{}", text(&created.stderr));
    let account = user.json(&["--json", "usage"])["account"].as_str().unwrap().to_owned();
    assert!(text(&created.stderr).contains(&format!("'{account}'")), "{}", text(&created.stderr));
    let mut other = user.sbx();
    let id = user.create();
    other.env("SANDBOXD_API_KEY", text(&created.stdout).trim());
    let listed = other.args(["ls", "-q"]).output().unwrap();
    assert_eq!(text(&listed.stdout).trim(), id, "{}", text(&listed.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_errors_name_the_remedy() {
    let user = TestUser::new().await;
    let address = user.service.address;
    let plain = user.run(&["--url", &format!("http://{address}"), "ls"]);
    let hint = format!("use --url https://{address}");
    assert!(text(&plain.stderr).contains(&hint), "{}", text(&plain.stderr));
    // Without the certificate file, only the authorities of this machine count.
    let mut untrusted = user.sbx();
    let output = untrusted.env_remove("SANDBOXD_CERTIFICATE").arg("ls").output().unwrap();
    assert!(text(&output.stderr).contains("'sbx login' shows the certificate"), "{}", text(&output.stderr));
    // A service that has written no key yet has one line.
    let starting = user.sbx_without_login().arg("ls").output().unwrap();
    let stderr = text(&starting.stderr);
    assert!(stderr.contains("still preparing") && stderr.lines().count() == 1, "{stderr}");
    // Without a URL, that of the data directory is tried. This one is of a daemon that has ended.
    std::fs::write(user.home.path().join("local.json"), r#"{"url": "http://127.0.0.1:9"}"#).unwrap();
    let mut ended = user.sbx_without_login();
    let output = ended.env("SANDBOXD_API_KEY", &user.key).arg("ls").output().unwrap();
    let stderr = text(&output.stderr);
    for part in ["http://127.0.0.1:9", "SANDBOXD_DATA_DIR", "SANDBOXD_URL"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}
