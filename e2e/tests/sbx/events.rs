//! `sbx events` and `sbx key`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::{Person, code, interrupt, text};

#[tokio::test(flavor = "multi_thread")]
async fn events_are_shown_and_followed() {
    let person = Person::new().await;
    let (id, other) = (person.create(), person.create());
    assert_eq!(code(&person.run(&["exec", &id, "--", "exit 3"])), 3);
    person.says(&["pause", &id]);
    let shown = person.says(&["events", &id]);
    let kinds: Vec<&str> = shown.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    let expected = ["sandbox.created", "sandbox.started", "exec.started", "exec.completed", "sandbox.paused"];
    assert_eq!(kinds, expected);
    assert!(shown.contains("exitCode=3") && shown.contains("command=\"exit 3\""), "{shown}");
    assert_eq!(person.says(&["events", "-n", "2", "--type", "exec.*"]).lines().count(), 2);
    let event: Value = serde_json::from_str(&person.says(&["events", "--json", "-n", "1", &id])).unwrap();
    assert_eq!((&event["type"], &event["sandboxId"]), (&"sandbox.paused".into(), &id.as_str().into()));

    let mut child =
        person.sbx().args(["events", "-f", "-n", "1", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("sandbox.paused"));
    person.says(&["resume", &id]);
    assert!(lines.next().unwrap().unwrap().contains("sandbox.resumed"));
    person.service.kill().unwrap();
    person.service.boot().await.unwrap();
    person.says(&["rm", &id]);
    assert!(lines.next().unwrap().unwrap().contains("sandbox.terminated"));
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success(), "the end of its sandbox is no failure");

    let mut child = person.sbx().args(["events", "-f", "-n", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // It listens some time after it was started; what happens is told from then on.
    let begin = std::time::Instant::now();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&stop);
    let reader = std::thread::spawn(move || {
        let line = lines.next().unwrap().unwrap();
        told.store(true, std::sync::atomic::Ordering::Relaxed);
        // Read on: without a reader it would end by itself.
        (line, lines.count())
    });
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        assert!(begin.elapsed() < crate::PATIENCE, "nothing is followed");
        person.says(&["exec", &other, "--", "true"]);
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(reader.join().unwrap().0.contains(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_on_the_machine_of_the_service() {
    let person = Person::new().await;
    let keys = |words: &[&str]| {
        let mut command = person.stranger();
        command.env("SANDBOXD_CONFIG", person.service.config_file()).arg("key").args(words);
        command.env("SANDBOXD_DATA_DIR", &person.service.place.data).output().unwrap()
    };
    let made = keys(&["create", "--account", "team", "--scopes", "read", "--label", "from sbx"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let key = text(&made.stdout);
    let list = keys(&["list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let found = list.as_array().unwrap().iter().find(|found| found["label"] == "from sbx").unwrap();
    assert_eq!((&found["account"], &found["revokedAt"]), (&"team".into(), &Value::Null));
    let works = || {
        let output = person.sbx().env("SANDBOXD_API_KEY", key.trim()).arg("ls").output().unwrap();
        (code(&output), text(&output.stderr))
    };
    let begin = std::time::Instant::now();
    while works().0 != 0 {
        assert!(begin.elapsed() < crate::PATIENCE, "{}", works().1);
    }
    assert!(keys(&["revoke", found["id"].as_str().unwrap()]).status.success());
    while works().0 == 0 {
        assert!(begin.elapsed() < crate::PATIENCE, "a revoked key works");
    }
    assert!(works().1.contains("UNAUTHORIZED"));
    let away = person.stranger().args(["--url", "https://a.example", "key", "list"]).output().unwrap();
    assert!(code(&away) == 125 && text(&away.stderr).contains("sandboxd key list"), "{}", text(&away.stderr));
}
