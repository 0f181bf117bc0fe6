//! Ctrl-C: what it does to a command, and what is put in order after it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use e2e::service::Service;

use crate::{PATIENCE, Person, interrupt, signal, skipped, text};

/// It waits, and does not sleep in front: a bash whose child is interrupted with it now and then forgets its trap.
const TIDY: &str = "trap 'echo tidied; kill $!; exit 7' INT; sleep 60 & echo begun; wait";

/// Started, and its command has printed a line.
fn begun(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_interrupt_kills_the_command() {
    let person = Person::new().await;
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut command = person.sbx();
        command.args(["run", Service::image(), "--", "echo begun; sleep 60"]);
        let mut child = begun(command);
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(person.live(), Vec::<String>::new());
    }
    let id = person.create();
    let mut command = person.sbx();
    command.args(["exec", &id, "--", "echo begun; exec sleep 4711"]);
    let mut child = begun(command);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let begin = Instant::now();
    while person.says(&["ps", &id]).contains("sleep 4711") {
        assert!(begin.elapsed() < PATIENCE, "the command lives on");
    }
}

/// The first is for the command to take; the second ends it whether it wants or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_tidy_up_before_it_ends() {
    let person = Person::new().await;
    let id = person.create();
    let mut command = person.sbx();
    command.args(["exec", &id, "--", TIDY]);
    let child = begun(command);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "tidied\n"));
    let mut command = person.sbx();
    command.args(["exec", &id, "--", "trap '' INT; echo begun; exec sleep 4712"]);
    let mut child = begun(command);
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "what it does not take does not end it");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!person.says(&["ps", &id]).contains("sleep 4712"), "the command lives on");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_the_command_of_run_may_too() {
    let person = Person::new().await;
    let command = TIDY.replace('$', "\\$");
    let mut command = person.on_a_terminal(&format!("run {} -- \"{command}\"", Service::image()));
    let Ok(mut typed) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        return skipped("on_a_terminal_the_command_of_run_may_too", "the program 'script' is not installed");
    };
    let mut shown = BufReader::new(typed.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(shown.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let mut keys = typed.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("tidied"), "{rest:?}");
    assert_eq!(typed.wait().unwrap().code(), Some(7), "{rest:?}");
    assert_eq!(person.live(), Vec::<String>::new());
}

/// A reader that went away ends the command with `sbx`.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_on_for_a_reader_that_left() {
    let person = Person::new().await;
    let id = person.create();
    let mut command = person.sbx();
    command.args(["exec", &id, "--", "echo begun; while :; do echo 4713; sleep 0.05; done"]);
    let mut child = begun(command);
    drop(child.stdout.take());
    child.wait().unwrap();
    let begin = Instant::now();
    while person.says(&["ps", &id]).contains("echo 4713") {
        assert!(begin.elapsed() < PATIENCE, "the command lives on");
    }
}

/// More than the service keeps of a detached command, to a reader that takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn run_loses_nothing_of_what_a_slow_reader_has_not_read() {
    const LINES: u32 = 4_000_000;
    let person = Person::new().await;
    let mut command = person.sbx();
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

/// While the service does not answer, nothing can be put in order: the second signal leaves all the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_interrupt_leaves() {
    let person = Person::new().await;
    let mut command = person.sbx();
    command.args(["run", Service::image(), "--", "echo begun; sleep 60"]);
    let mut child = begun(command);
    person.service.signal(rustix::process::Signal::STOP).unwrap();
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "it does not put things in order");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    person.service.signal(rustix::process::Signal::CONT).unwrap();
}
