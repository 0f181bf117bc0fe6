//! Commands on terminals: size, input and output, signals, and the end of their processes.

use guest_proto::{Channel, Exit, RefusalKind, StdinMode, TerminalSize, ToGuest};

use crate::host::{Agent, Host, HostMessage};

const SIZE: TerminalSize = TerminalSize { columns: 80, rows: 24 };

impl Host {
    /// Reads the output of a terminal until it contains the text.
    fn read_until(&mut self, op: u64, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            match self.receive() {
                HostMessage::Data { op: of, channel: Channel::Stdout, bytes } if of == op => {
                    all.push_str(&String::from_utf8_lossy(&bytes));
                    self.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: bytes.len() as u32 });
                }
                HostMessage::Credit { .. } => {}
                other => panic!("after {all:?}: {other:?}"),
            }
        }
        all
    }

    fn type_text(&mut self, op: u64, text: &str) {
        self.send(&ToGuest::Data { op, bytes: text.as_bytes() });
    }
}

#[test]
fn a_command_has_a_terminal_of_its_own() {
    let agent = Agent::start();
    let mut host = agent.host();
    let script = "tty; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; \
        ps -o sid=,pid=,tpgid= -p $$ | { read a b c; [ $a = $b ] && [ $b = $c ] && echo leads; }; echo x > /dev/tty";
    let op = host.start_detached(script, StdinMode::Null, Some(SIZE));
    let out = host.finish(op);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!((out.exit, out.stderr.len()), (Exit::Code(0), 0), "{text}");
    assert!(text.starts_with("/dev/pts/") && text.ends_with("24 80\r\nall\r\nleads\r\nx\r\n"), "{text:?}");
    host.send(&ToGuest::Release { op });
}

#[test]
fn large_output_is_complete_and_in_order() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("stty -opost; seq 1 100000", StdinMode::Null, Some(SIZE));
    let out = host.finish(op);
    let expected: Vec<u8> = (1..=100_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    assert!(out.stdout == expected, "{} bytes of {}", out.stdout.len(), expected.len());
}

#[test]
fn input_is_echoed_and_read_and_the_size_changes() {
    let agent = Agent::start();
    let mut host = agent.host();
    let script =
        "trap 'echo now $(stty size)' WINCH; while read -r line; do echo \"got $line\"; done; echo over";
    let op = host.start_detached(script, StdinMode::Null, Some(SIZE));
    host.type_text(op, "hello\r");
    assert_eq!(host.read_until(op, "got hello\r\n"), "hello\r\ngot hello\r\n");
    host.send(&ToGuest::Resize { op, size: TerminalSize { columns: 132, rows: 50 } });
    // If the signal arrives just before the shell waits for a line, its trap runs after that line.
    host.type_text(op, "again\r");
    host.read_until(op, "now 50 132\r\n");
    host.type_text(op, "\x04");
    host.read_until(op, "over\r\n");
    assert_eq!(host.finish(op).exit, Exit::Code(0));
}

#[test]
fn the_interrupt_key_reaches_the_foreground_group() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached(
        "trap 'echo int; kill $!; exit 3' INT; sleep 60 & echo ready; wait",
        StdinMode::Null,
        Some(SIZE),
    );
    host.read_until(op, "ready");
    host.type_text(op, "\x03");
    host.read_until(op, "int");
    assert_eq!(host.finish(op).exit, Exit::Code(3));
}

#[test]
fn a_signal_reaches_the_foreground_group() {
    let agent = Agent::start();
    let mut host = agent.host();
    // The foreground command has its own process group, and only the signal ends it.
    let script = r#"trap 'echo leader' USR1; set -m
        bash -c 'trap "echo front; exit 5" USR1; read -r _ _ _ _ group _ < /proc/$$/stat; [ $group = $$ ] && echo ready
            while :; do sleep 0.05; done'
        echo after $?"#;
    let op = host.start_detached(script, StdinMode::Null, Some(SIZE));
    host.read_until(op, "ready");
    host.send(&ToGuest::Signal { op, signal: 10 });
    let text = host.read_until(op, "after 5");
    assert!(text.contains("front") && text.contains("leader"), "{text:?}");
    assert_eq!(host.finish(op).exit, Exit::Code(0));
}

#[test]
fn attach_continues_a_terminal_at_its_position() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("PS1='$ ' exec bash --norc --noediting -i", StdinMode::Null, Some(SIZE));
    host.type_text(op, "x=kept; echo first $x\r");
    host.read_until(op, "first kept\r\n$ ");
    // Waits until the agent has received the acknowledgement.
    let nonce = 7;
    host.send(&ToGuest::Ping { nonce });
    while host.receive() != (HostMessage::Pong { nonce }) {}
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    // Replays from the first unacknowledged byte: acknowledged output is not repeated.
    host.send(&ToGuest::Attach { op, stdout: 0, stderr: 0 });
    assert!(matches!(host.receive(), HostMessage::Refused { kind: RefusalKind::Failed, .. }));
}

#[test]
fn everything_on_a_terminal_dies_with_it() {
    let agent = Agent::start();
    let mut host = agent.host();
    let script = "set -m; sleep 1111 & setsid sleep 1112 & (setsid sleep 1113 &) ; nohup sleep 1114 & echo ready; wait";
    let op = host.start_detached(script, StdinMode::Null, Some(SIZE));
    host.read_until(op, "ready");
    host.send(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    host.send(&ToGuest::Release { op });
    assert_eq!(host.run("pgrep -c -f 'sleep 111[1-4]'; true").stdout, b"0\n");
}

#[test]
fn a_background_process_does_not_delay_the_end_of_a_terminal() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("trap '' HUP; (sleep 1000) & echo bye", StdinMode::Null, Some(SIZE));
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"bye\r\n".as_slice(), Exit::Code(0)));
    host.send(&ToGuest::Release { op });
    assert_eq!(host.run("pgrep -c -x sleep").stdout, b"1\n");
}

#[test]
fn unread_input_does_not_block_the_agent() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("stty raw -echo; echo ready; sleep 1000", StdinMode::Null, Some(SIZE));
    host.read_until(op, "ready");
    let mut sent = 0;
    // Sends the whole window: the terminal buffers a part, the agent the rest.
    while sent < 64 * 1024 {
        host.send(&ToGuest::Data { op, bytes: &[b'x'; 4096] });
        sent += 4096;
    }
    assert_eq!(host.run_beside("echo served"), b"served\n");
    host.send(&ToGuest::Kill { op });
}

impl Host {
    /// Runs another command and ignores frames of other operations.
    fn run_beside(&mut self, script: &str) -> Vec<u8> {
        let op = self.begin(script, StdinMode::Null, 1000);
        let mut stdout = Vec::new();
        loop {
            match self.receive() {
                HostMessage::Data { op: of, bytes, .. } if of == op => stdout.extend(bytes),
                HostMessage::Exited { op: of, .. } if of == op => return stdout,
                _ => {}
            }
        }
    }
}
