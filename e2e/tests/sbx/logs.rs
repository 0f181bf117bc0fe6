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

#[tokio::test(flavor = "multi_thread")]
async fn both_streams_are_printed_in_the_order_in_which_they_were_written() {
    const ORDER: &str = "out1\nerr1\nout2\nerr2\nout3\n";
    let user = TestUser::new().await;
    let id = user.create();
    let pause = "sleep 0.3";
    let steps =
        ["echo out1", "echo err1 >&2", "echo out2", "echo err2 >&2", "echo out3; printf begun; sleep 600"];
    let started = user.stdout(&["exec", "--detach", &id, "--", &steps.join(&format!("; {pause}; "))]);
    // Both streams in one file, as on a terminal.
    let together = |words: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || std::fs::OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut command = user.sbx();
        command.args(words.split(' ')).stdout(open()).stderr(open());
        assert!(command.status().unwrap().success(), "{words}");
        std::fs::read_to_string(file.path()).unwrap()
    };
    let execution = started.trim();
    let begin = std::time::Instant::now();
    // It still runs, and its last line has not ended.
    while together(&format!("logs {id} {execution}")) != format!("{ORDER}begun") {
        assert!(begin.elapsed() < crate::TIMEOUT, "{}", together(&format!("logs {id} {execution}")));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(together(&format!("logs --tail 3 {id} {execution}")), "err2\nout3\nbegun");
    user.stdout(&["kill", &id, execution]);
    assert_eq!(together(&format!("logs {id} {execution}")), format!("{ORDER}begun"));
    // A command that was waited for counts less than one in the background.
    user.stdout(&["exec", &id, "echo beside"]);
    assert!(user.stdout(&["logs", &id]).contains("out1"));
    assert!(user.stdout(&["ls"]).contains("(command killed by SIGKILL)"), "{}", user.stdout(&["ls"]));
}
