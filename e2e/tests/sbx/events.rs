//! `sbx events` and `sbx key`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::{TestUser, code, interrupt, text};

#[tokio::test(flavor = "multi_thread")]
async fn events_are_shown_and_followed() {
    let user = TestUser::new().await;
    let (id, other) = (user.create(), user.create());
    assert_eq!(code(&user.run(&["exec", &id, "--", "exit 3"])), 3);
    user.stdout(&["pause", &id]);
    let shown = user.stdout(&["events", &id]);
    let kinds: Vec<&str> = shown.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    let expected = ["sandbox.created", "sandbox.started", "exec.started", "exec.completed", "sandbox.paused"];
    assert_eq!(kinds, expected);
    assert!(shown.contains("exitCode=3") && shown.contains("command=\"exit 3\""), "{shown}");
    assert_eq!(user.stdout(&["events", "-n", "2", "--type", "exec.*"]).lines().count(), 2);
    let event: Value = serde_json::from_str(&user.stdout(&["events", "--json", "-n", "1", &id])).unwrap();
    assert_eq!((&event["type"], &event["sandboxId"]), (&"sandbox.paused".into(), &id.as_str().into()));

    let mut child = user.sbx().args(["events", "-f", "-n", "1", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("sandbox.paused"));
    user.stdout(&["resume", &id]);
    assert!(lines.next().unwrap().unwrap().contains("sandbox.resumed"));
    user.service.kill().unwrap();
    user.service.start_process().await.unwrap();
    user.stdout(&["rm", &id]);
    assert!(lines.next().unwrap().unwrap().contains("sandbox.terminated"));
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success(), "the end of the sandbox is not an error");

    let mut child = user.sbx().args(["events", "-f", "-n", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // sbx connects some time after its start and shows events from then on.
    let begin = std::time::Instant::now();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let received = std::sync::Arc::clone(&stop);
    let reader = std::thread::spawn(move || {
        let line = lines.next().unwrap().unwrap();
        received.store(true, std::sync::atomic::Ordering::Relaxed);
        // Continue to read: without a reader sbx would end.
        (line, lines.count())
    });
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        assert!(begin.elapsed() < crate::TIMEOUT, "no event is received");
        user.stdout(&["exec", &other, "--", "true"]);
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(reader.join().unwrap().0.contains(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_managed_on_the_host_of_the_service() {
    let user = TestUser::new().await;
    let keys = |words: &[&str]| {
        let mut command = user.sbx_without_login();
        command.env("SANDBOXD_CONFIG", user.service.config_file()).arg("key").args(words);
        command.env("SANDBOXD_DATA_DIR", &user.service.layout.data).output().unwrap()
    };
    let created = keys(&["create", "--account", "team", "--scopes", "read", "--label", "from sbx"]);
    assert!(created.status.success(), "{}", text(&created.stderr));
    let key = text(&created.stdout);
    let list = keys(&["list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let found = list.as_array().unwrap().iter().find(|found| found["label"] == "from sbx").unwrap();
    assert_eq!((&found["account"], &found["revokedAt"]), (&"team".into(), &Value::Null));
    let works = || {
        let output = user.sbx().env("SANDBOXD_API_KEY", key.trim()).arg("ls").output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let begin = std::time::Instant::now();
    while works().0 != 0 {
        assert!(begin.elapsed() < crate::TIMEOUT, "{}", works().1);
    }
    assert!(keys(&["revoke", found["id"].as_str().unwrap()]).status.success());
    while works().0 == 0 {
        assert!(begin.elapsed() < crate::TIMEOUT, "a revoked key works");
    }
    assert!(works().1.contains("UNAUTHORIZED"));
    let remote =
        user.sbx_without_login().args(["--url", "https://a.example", "key", "list"]).output().unwrap();
    assert!(
        code(&remote) == 125 && text(&remote.stderr).contains("sandboxd key list"),
        "{}",
        text(&remote.stderr)
    );
}
