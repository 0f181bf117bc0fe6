//! `sbx logs`: what a detached command printed.

use e2e::service::Service;

use crate::{Person, code, text};

/// Of 29 MB, in lines, the service keeps the last 16 MiB.
const MUCH: &str = "seq 1 3888888";

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_kept_is_told_of() {
    let person = Person::new().await;
    let id = person.says(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let execution = person.says(&["exec", "--detach", id, "--", MUCH]);
    let execution = execution.trim();
    // Followed, it ends with the command.
    let followed = person.run(&["logs", "-f", id, execution]);
    assert_eq!(code(&followed), 0, "{}", text(&followed.stderr));
    let output = person.run(&["logs", id, execution]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("sbx: part of the output was dropped"));
    let shown = text(&output.stdout);
    assert!(shown.len() < 17 << 20 && shown.ends_with("\n3888887\n3888888\n"), "{} bytes", shown.len());
    // Nothing is said where nothing is missing.
    let execution = person.says(&["exec", "--detach", id, "--", "echo all"]);
    person.says(&["logs", "-f", id, execution.trim()]);
    let output = person.run(&["logs", id, execution.trim()]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("all\n", ""));
}
