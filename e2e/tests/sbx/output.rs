//! No output is lost, however much a command prints and however slowly it is read.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use e2e::service::Service;

use crate::TestUser;

/// A line of output with its line end.
const LINE_BYTES: usize = 1024;
/// One gigabyte.
const MANY: usize = 1_000_000;
/// Sixteen times what the service stores.
const SOME: usize = 262_144;

/// Prints numbered lines as fast as it can.
fn print_lines(count: usize) -> String {
    format!("seq -f '%0{}.0f' 1 {count}", LINE_BYTES - 1)
}

/// Reads the lines of a child to its end. Reading pauses after a quarter of them.
fn check_lines(mut child: Child, count: usize, pause: Duration, what: &str) {
    let mut stderr = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap());
    let (mut line, mut read) = (Vec::with_capacity(LINE_BYTES), 0);
    while output.read_until(b'\n', &mut line).unwrap() > 0 {
        read += 1;
        let number = std::str::from_utf8(&line).unwrap().trim_start_matches('0').trim_end();
        assert!(line.len() == LINE_BYTES && number == read.to_string(), "{what}: line {read} is {number}");
        line.clear();
        if read == count / 4 {
            std::thread::sleep(pause);
        }
    }
    let errors = errors.join().unwrap().unwrap();
    assert_eq!((child.wait().unwrap().code(), read), (Some(0), count), "{what}: {errors}");
}

impl TestUser {
    fn spawn(&self, words: &[&str]) -> Child {
        self.sbx().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gigabyte_is_printed_completely() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let (id, command) = (id.trim(), print_lines(MANY));
    let exec = user.spawn(&["exec", "--timeout", "30m", id, "--", &command]);
    check_lines(exec, MANY, Duration::ZERO, "exec");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_a_slow_reader() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let (id, command, pause) = (id.trim(), print_lines(SOME), Duration::from_secs(5));
    let exec = user.spawn(&["exec", "--timeout", "30m", id, "--", &command]);
    check_lines(exec, SOME, pause, "exec");
    let run = user.spawn(&["run", "--timeout", "5m", Service::image(), "--", &command]);
    check_lines(run, SOME, pause, "run");
    // It has printed more than the service stores before the reader comes.
    let execution = user.stdout(&["exec", "--detach", "--reader-timeout", "2m", id, "--", &command]);
    std::thread::sleep(pause);
    let logs = user.spawn(&["logs", "-f", id, execution.trim()]);
    check_lines(logs, SOME, pause, "logs -f");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_under_a_command_is_reported() {
    let user = TestUser::new().await;
    let id = user.stdout(&["create", Service::image(), "--timeout", "1h", "--idle", "0"]);
    let id = id.trim();
    let mut exec = user.spawn(&["exec", id, "--", "echo begun; sleep 2; echo ended"]);
    let (mut output, mut text) = (BufReader::new(exec.stdout.take().unwrap()), String::new());
    output.read_line(&mut text).unwrap();
    user.stdout(&["pause", id]);
    let (mut errors, mut note) = (BufReader::new(exec.stderr.take().unwrap()), String::new());
    errors.read_line(&mut note).unwrap();
    assert!(note.contains("the sandbox is paused") && note.contains(&format!("sbx resume {id}")), "{note}");
    user.stdout(&["resume", id]);
    output.read_to_string(&mut text).unwrap();
    assert_eq!((exec.wait().unwrap().code(), text.as_str()), (Some(0), "begun\nended\n"));
}
