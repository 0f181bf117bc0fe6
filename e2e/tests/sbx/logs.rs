//! `sbx logs`: the output of detached commands.

use e2e::service::Service;

use crate::{TestUser, code, text};

/// Prints 30 MB, of which the execution log holds the last 16 MiB.
const LONG_OUTPUT: &str = "seq 1 3888888";
const LONG_OUTPUT_BYTES: usize = 30_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn dropped_output_is_reported() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--idle", "0"]);
    let id = id.trim();
    let execution = user.stdout(&["exec", "--detach", "--reader-timeout", "2m", id, "--", LONG_OUTPUT]);
    let execution = execution.trim();
    // Following ends with the command, which waits for the reader as it was told to.
    let followed = user.run(&["logs", "-f", id, execution]);
    assert_eq!(code(&followed), 0, "{}", text(&followed.stderr));
    assert_eq!(followed.stdout.len(), LONG_OUTPUT_BYTES);
    // The output that everyone has read is not stored.
    let output = user.run(&["logs", id, execution]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("sbx: part of the output was dropped"));
    let shown = text(&output.stdout);
    assert!(shown.len() < 17 << 20 && shown.ends_with("\n3888887\n3888888\n"), "{} bytes", shown.len());
    // No message if no output was dropped.
    let execution = user.stdout(&["exec", "--detach", id, "--", "echo all"]);
    user.stdout(&["logs", "-f", id, execution.trim()]);
    let output = user.run(&["logs", id, execution.trim()]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("all\n", ""));
}
