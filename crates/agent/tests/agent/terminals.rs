//! Terminals: that they are ones, that they have a size, that signals and ends reach what runs on them.

use guest_proto::{Channel, Exit, RefusalKind, StdinMode, TerminalSize, ToGuest};

use crate::host::{Agent, Host, Said};

const SIZE: TerminalSize = TerminalSize { columns: 80, rows: 24 };

impl Host {
    /// Reads a terminal until it has shown this.
    fn shown(&mut self, op: u64, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            match self.hear() {
                Said::Data { op: of, channel: Channel::Stdout, bytes } if of == op => {
                    all.push_str(&String::from_utf8_lossy(&bytes));
                    self.say(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: bytes.len() as u32 });
                }
                Said::Credit { .. } => {}
                other => panic!("after {all:?}: {other:?}"),
            }
        }
        all
    }

    fn type_in(&mut self, op: u64, text: &str) {
        self.say(&ToGuest::Data { op, bytes: text.as_bytes() });
    }
}

#[test]
fn a_command_has_a_terminal_of_its_own() {
    let agent = Agent::start();
    let mut host = agent.host();
    let script = "tty; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; \
        ps -o sid=,pid=,tpgid= -p $$ | { read a b c; [ $a = $b ] && [ $b = $c ] && echo leads; }; echo x > /dev/tty";
    let op = host.keep(script, StdinMode::Null, Some(SIZE));
    let out = host.finish(op);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!((out.exit, out.stderr.len()), (Exit::Code(0), 0), "{text}");
    assert!(text.starts_with("/dev/pts/") && text.ends_with("24 80\r\nall\r\nleads\r\nx\r\n"), "{text:?}");
    host.say(&ToGuest::Forget { op });
}

#[test]
fn all_of_a_large_output_comes_and_in_order() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("stty -opost; seq 1 100000", StdinMode::Null, Some(SIZE));
    let out = host.finish(op);
    let expected: Vec<u8> = (1..=100_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    assert!(out.stdout == expected, "{} bytes of {}", out.stdout.len(), expected.len());
}

#[test]
fn what_is_typed_is_shown_and_read_and_the_size_changes() {
    let agent = Agent::start();
    let mut host = agent.host();
    let script =
        "trap 'echo now $(stty size)' WINCH; while read -r line; do echo \"got $line\"; done; echo over";
    let op = host.keep(script, StdinMode::Null, Some(SIZE));
    host.type_in(op, "hello\r");
    assert_eq!(host.shown(op, "got hello\r\n"), "hello\r\ngot hello\r\n");
    host.say(&ToGuest::Resize { op, size: TerminalSize { columns: 132, rows: 50 } });
    // A signal that comes just before a shell begins to wait for a line is heard after that line.
    host.type_in(op, "again\r");
    host.shown(op, "now 50 132\r\n");
    host.type_in(op, "\x04");
    host.shown(op, "over\r\n");
    assert_eq!(host.finish(op).exit, Exit::Code(0));
}

#[test]
fn the_interrupt_key_reaches_who_is_in_front() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep(
        "trap 'echo int; kill $!; exit 3' INT; sleep 60 & echo ready; wait",
        StdinMode::Null,
        Some(SIZE),
    );
    host.shown(op, "ready");
    host.type_in(op, "\x03");
    host.shown(op, "int");
    assert_eq!(host.finish(op).exit, Exit::Code(3));
}

#[test]
fn a_signal_reaches_the_group_in_front_too() {
    let agent = Agent::start();
    let mut host = agent.host();
    // What is in front has a group of its own, and nothing but the signal ends it.
    let script = r#"trap 'echo leader' USR1; set -m
        bash -c 'trap "echo front; exit 5" USR1; read -r _ _ _ _ group _ < /proc/$$/stat; [ $group = $$ ] && echo ready
            while :; do sleep 0.05; done'
        echo after $?"#;
    let op = host.keep(script, StdinMode::Null, Some(SIZE));
    host.shown(op, "ready");
    host.say(&ToGuest::Signal { op, signal: 10 });
    let shown = host.shown(op, "after 5");
    assert!(shown.contains("front") && shown.contains("leader"), "{shown:?}");
    assert_eq!(host.finish(op).exit, Exit::Code(0));
}

#[test]
fn a_terminal_is_taken_up_again_where_it_was() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("PS1='$ ' exec bash --norc --noediting -i", StdinMode::Null, Some(SIZE));
    host.type_in(op, "x=kept; echo first $x\r");
    host.shown(op, "first kept\r\n$ ");
    // Not before the agent has heard what was shown.
    let nonce = 7;
    host.say(&ToGuest::Ping { nonce });
    while host.hear() != (Said::Pong { nonce }) {}
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    // From the beginning of what is not acknowledged: nothing is repeated that was.
    host.say(&ToGuest::Take { op, stdout: 0, stderr: 0 });
    assert!(matches!(host.hear(), Said::Refused { kind: RefusalKind::Failed, .. }));
}

#[test]
fn everything_on_a_terminal_dies_with_it() {
    let agent = Agent::start();
    let mut host = agent.host();
    let script = "set -m; sleep 1111 & setsid sleep 1112 & (setsid sleep 1113 &) ; nohup sleep 1114 & echo ready; wait";
    let op = host.keep(script, StdinMode::Null, Some(SIZE));
    host.shown(op, "ready");
    host.say(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    host.say(&ToGuest::Forget { op });
    assert_eq!(host.run("pgrep -c -f 'sleep 111[1-4]'; true").stdout, b"0\n");
}

#[test]
fn what_a_shell_leaves_in_the_background_does_not_hold_its_end_up() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("trap '' HUP; (sleep 1000) & echo bye", StdinMode::Null, Some(SIZE));
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"bye\r\n".as_slice(), Exit::Code(0)));
    host.say(&ToGuest::Forget { op });
    assert_eq!(host.run("pgrep -c -x sleep").stdout, b"1\n");
}

#[test]
fn nobody_is_waited_for_who_never_reads_what_is_typed() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("stty raw -echo; echo ready; sleep 1000", StdinMode::Null, Some(SIZE));
    host.shown(op, "ready");
    let mut sent = 0;
    // As much as is granted: the terminal holds some of it, the agent the rest.
    while sent < 64 * 1024 {
        host.say(&ToGuest::Data { op, bytes: &[b'x'; 4096] });
        sent += 4096;
    }
    assert_eq!(host.run_beside("echo served"), b"served\n");
    host.say(&ToGuest::Kill { op });
}

impl Host {
    /// Another command's output, while frames of others may come.
    fn run_beside(&mut self, script: &str) -> Vec<u8> {
        let op = self.begin(script, StdinMode::Null, 1000);
        let mut stdout = Vec::new();
        loop {
            match self.hear() {
                Said::Data { op: of, bytes, .. } if of == op => stdout.extend(bytes),
                Said::Exited { op: of, .. } if of == op => return stdout,
                _ => {}
            }
        }
    }
}
