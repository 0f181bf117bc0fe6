//! Ctrl-C and other signals: the end of commands, and cleanup.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use e2e::service::Service;

use crate::{TIMEOUT, TestUser, interrupt, signal, skipped, text};

/// Waits for a background process: a bash whose foreground child is interrupted too sometimes skips its trap.
const CLEANUP: &str = "trap 'echo tidied; kill $!; exit 7' INT; sleep 60 & echo begun; wait";

/// Starts sbx and waits until its command has printed a line.
fn start(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_interrupt_kills_the_command() {
    let user = TestUser::new().await;
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut command = user.sbx();
        command.args(["run", Service::image(), "--", "echo begun; sleep 60"]);
        let mut child = start(command);
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(user.live(), Vec::<String>::new());
    }
    let id = user.create();
    let mut command = user.sbx();
    command.args(["exec", &id, "--", "echo begun; exec sleep 4711"]);
    let mut child = start(command);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let begin = Instant::now();
    while user.stdout(&["ps", &id]).contains("sleep 4711") {
        assert!(begin.elapsed() < TIMEOUT, "the command still runs");
    }
}

/// The first interrupt is sent to the command; the second kills it.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_can_clean_up_after_an_interrupt() {
    let user = TestUser::new().await;
    let id = user.create();
    let mut command = user.sbx();
    command.args(["exec", &id, "--", CLEANUP]);
    let child = start(command);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "tidied\n"));
    let mut command = user.sbx();
    command.args(["exec", &id, "--", "trap '' INT; echo begun; exec sleep 4712"]);
    let mut child = start(command);
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "an ignored interrupt ended the command");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!user.stdout(&["ps", &id]).contains("sleep 4712"), "the command still runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_terminal_can_clean_up_after_an_interrupt() {
    let user = TestUser::new().await;
    let command = CLEANUP.replace('$', "\\$");
    let mut command = user.on_a_terminal(&format!("run {} -- \"{command}\"", Service::image()));
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        return skipped(
            "a_run_on_a_terminal_can_clean_up_after_an_interrupt",
            "the program 'script' is not installed",
        );
    };
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "sbx ended early");
    }
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("tidied"), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(7), "{rest:?}");
    assert_eq!(user.live(), Vec::<String>::new());
}

/// When the reader of its output is gone, `sbx` ends and kills the command.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_stdout_ends_the_command() {
    let user = TestUser::new().await;
    let id = user.create();
    let mut command = user.sbx();
    command.args(["exec", &id, "--", "echo begun; while :; do echo 4713; sleep 0.05; done"]);
    let mut child = start(command);
    drop(child.stdout.take());
    child.wait().unwrap();
    let begin = Instant::now();
    while user.stdout(&["ps", &id]).contains("echo 4713") {
        assert!(begin.elapsed() < TIMEOUT, "the command still runs");
    }
}

/// Output that is longer than the execution log, with a slow reader.
#[tokio::test(flavor = "multi_thread")]
async fn run_loses_no_output_with_a_slow_reader() {
    const LINES: u32 = 4_000_000;
    let user = TestUser::new().await;
    let mut command = user.sbx();
    command.args(["run", Service::image(), "--", &format!("seq 1 {LINES}")]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let mut next = 1;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        assert_eq!(line.unwrap().parse(), Ok(next));
        next += 1;
    }
    assert_eq!((child.wait().unwrap().code(), next), (Some(0), LINES + 1));
}

/// If the service does not answer, sbx cannot clean up; the second signal ends it anyway.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_interrupt_ends_sbx() {
    let user = TestUser::new().await;
    let mut command = user.sbx();
    command.args(["run", Service::image(), "--", "echo begun; sleep 60"]);
    let mut child = start(command);
    user.service.signal(rustix::process::Signal::STOP).unwrap();
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "sbx ended without waiting for the cleanup");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    user.service.signal(rustix::process::Signal::CONT).unwrap();
}
