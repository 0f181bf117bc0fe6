//! Ctrl-C: what it does to a command, and what is put in order after it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use e2e::service::Service;

use crate::{PATIENCE, Person, interrupt, signal, text};

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
    for place in [["run", Service::image()], ["exec", &id]] {
        let mut command = person.sbx();
        let script = "trap 'echo tidied; exit 7' INT; echo begun; while :; do sleep 0.1; done";
        command.args(place).args(["--", script]);
        let child = begun(command);
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "tidied\n"));
        let mut command = person.sbx();
        command.args(place).args(["--", "trap '' INT; echo begun; exec sleep 4712"]);
        let mut child = begun(command);
        interrupt(&child);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(child.try_wait().unwrap(), None, "what it does not take does not end it");
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(person.live(), [id.clone()]);
        assert!(!person.says(&["ps", &id]).contains("sleep 4712"), "the command lives on");
    }
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
