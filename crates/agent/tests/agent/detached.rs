//! Detached commands: no output is lost or repeated when links break.

use guest_proto::{Channel, DETACHED_WINDOW, ExecSpec, Exit, RefusalKind, StdinMode, TerminalSize, ToGuest};

use crate::host::{Agent, Host, HostMessage, until};

impl Host {
    pub fn start_detached(&mut self, script: &str, stdin: StdinMode, terminal: Option<TerminalSize>) -> u64 {
        let op = self.op();
        self.start_detached_as(op, script, stdin, terminal);
        op
    }

    fn start_detached_as(&mut self, op: u64, script: &str, stdin: StdinMode, terminal: Option<TerminalSize>) {
        let env =
            vec![("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("TERM", "xterm")];
        let spec = ExecSpec { argv: vec!["bash", "-c", script], env, cwd: "/", stdin };
        self.send(&ToGuest::StartDetached { op, spec, terminal });
        match self.receive() {
            HostMessage::Started { op: started, .. } if started == op => {}
            other => panic!("not started: {other:?}"),
        }
    }

    fn attach(&mut self, op: u64, stdout: u64, stderr: u64) -> u64 {
        self.send(&ToGuest::Attach { op, stdout, stderr });
        match self.receive() {
            HostMessage::Running { op: running, pid } if running == op => assert!(pid > 1),
            other => panic!("the pid is not reported: {other:?}"),
        }
        match self.receive() {
            HostMessage::Attached { op: attached, stdin, .. } if attached == op => stdin,
            other => panic!("not attached: {other:?}"),
        }
    }
}

/// Prints output much longer than the window.
const COUNT_SCRIPT: &str = "seq 1 200000; seq 1 50000 >&2; exit 7";

fn lines(to: u32) -> Vec<u8> {
    (1..=to).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

#[test]
fn output_continues_at_the_positions_of_the_host() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached(COUNT_SCRIPT, StdinMode::Null, None);
    let mut have = [Vec::new(), Vec::new()];
    let mut frames = 0;
    let (mut links, mut acknowledged) = (0, [0usize; 2]);
    let exit = loop {
        match host.receive() {
            HostMessage::Data { op: of, channel, bytes } => {
                assert_eq!(of, op);
                have[channel as usize].extend(bytes);
                frames += 1;
            }
            HostMessage::Eof { .. } => continue,
            HostMessage::Exited { exit, .. } => break exit,
            other => panic!("unexpected: {other:?}"),
        }
        let is_stuck = (0..2).any(|n| have[n].len() - acknowledged[n] >= DETACHED_WINDOW as usize);
        if frames % 3 == 0 || is_stuck && frames % 4 != 1 {
            // Output is acknowledged only sometimes, and not before some of the breaks.
            for (channel, n) in [Channel::Stdout, Channel::Stderr].into_iter().zip(0..) {
                let bytes = have[n].len() - acknowledged[n];
                if bytes > 0 {
                    host.send(&ToGuest::Credit { op, channel, bytes: bytes as u32 });
                    acknowledged[n] = have[n].len();
                }
            }
        }
        if frames % 4 == 1 {
            links += 1;
            drop(host);
            let (next, ops) = agent.link();
            assert_eq!(ops, [op]);
            host = next;
            host.attach(op, have[0].len() as u64, have[1].len() as u64);
            acknowledged = [have[0].len(), have[1].len()];
        }
    };
    assert!(links > 5, "only {links} links");
    assert_eq!(exit, Exit::Code(7));
    assert!(have == [lines(200_000), lines(50_000)], "{} and {} bytes", have[0].len(), have[1].len());
    // The end is reported until the host releases the command.
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    host.attach(op, have[0].len() as u64, have[1].len() as u64);
    assert!(matches!(host.receive(), HostMessage::Exited { exit: Exit::Code(7), .. }));
    host.send(&ToGuest::Release { op });
    host.ping();
    drop(host);
    assert_eq!(agent.link().1, []);
}

#[test]
fn an_unreleased_end_is_reported_to_each_link() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("echo out; echo err >&2", StdinMode::Null, None);
    loop {
        if let HostMessage::Exited { exit, .. } = host.receive() {
            assert_eq!(exit, Exit::Code(0));
            break;
        }
    }
    drop(host);
    let (mut host, _) = agent.link();
    host.attach(op, 1, 0);
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (b"ut\n".as_slice(), b"err\n".as_slice()));
}

#[test]
fn nothing_is_sent_before_the_attach_and_the_command_blocks() {
    let agent = Agent::start();
    let mut host = agent.host();
    let file = agent.path("written");
    let script = format!("head -c 10000000 /dev/zero | tee >(wc -c > {}) ; sleep 1000", file.display());
    let op = host.start_detached(&script, StdinMode::Null, None);
    host.receive_output(op);
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    assert!(host.is_quiet(std::time::Duration::from_millis(200)));
    assert_eq!(std::fs::read(&file).unwrap_or_default(), b"", "the command was not blocked");
    host.attach(op, 0, 0);
    let mut received = 0;
    while received < DETACHED_WINDOW as usize {
        received += host.receive_output(op).len();
    }
    assert_eq!(received, DETACHED_WINDOW as usize);
    assert!(host.is_quiet(std::time::Duration::from_millis(100)));
    host.send(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
}

#[test]
fn attach_refuses_lost_positions_and_unknown_commands() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("echo hello; sleep 1000", StdinMode::Null, None);
    assert_eq!(host.receive_output(op), b"hello\n");
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 6 });
    let other = host.start("sleep 1000", StdinMode::Null, 100);
    drop(host);
    let (mut host, _) = agent.link();
    for (op, stdout, expected) in [
        (op, 5, RefusalKind::Failed),
        (op, 7, RefusalKind::Failed),
        (op, u64::MAX, RefusalKind::Failed),
        (other, 0, RefusalKind::UnknownOp),
        (op + 77, 0, RefusalKind::UnknownOp),
    ] {
        host.send(&ToGuest::Attach { op, stdout, stderr: 0 });
        assert!(
            matches!(host.receive(), HostMessage::Refused { kind, .. } if kind == expected),
            "{op} at {stdout}"
        );
    }
    assert_eq!(host.attach(op, 6, 0), 0);
    // Acknowledging more than was sent is a violation.
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 1 });
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
}

#[test]
fn a_running_command_is_an_ordinary_one_after_its_release() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("sleep 1000", StdinMode::Null, None);
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    host.send(&ToGuest::Kill { op });
    host.send(&ToGuest::Release { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    drop(host);
    assert_eq!(agent.link().1, []);
}

#[test]
fn attach_reports_the_received_bytes_of_input() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start_detached("cat", StdinMode::Pipe, None);
    host.send(&ToGuest::Data { op, bytes: b"one " });
    assert_eq!(host.receive_output(op), b"one ");
    drop(host);
    let (mut host, _) = agent.link();
    assert_eq!(host.attach(op, 4, 0), 4);
    host.send(&ToGuest::Data { op, bytes: b"two" });
    host.send(&ToGuest::Eof { op });
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"two".as_slice(), Exit::Code(0)));
}

#[test]
fn detached_commands_buffer_only_their_windows() {
    let agent = Agent::start();
    let mut host = agent.host();
    let ops: Vec<u64> = (0..20).map(|_| host.start_detached_yes()).collect();
    drop(host);
    let (mut host, found) = agent.link();
    assert_eq!(found, ops);
    for op in ops {
        host.send(&ToGuest::Kill { op });
        host.send(&ToGuest::Release { op });
        loop {
            if matches!(host.receive(), HostMessage::Exited { op: of, .. } if of == op) {
                break;
            }
        }
    }
    until("the memory is returned", || (agent.resident_kib() < 4096).then_some(()));
    assert_eq!(agent.link().1, []);
}

impl Host {
    fn start_detached_yes(&mut self) -> u64 {
        let op = self.start_detached("exec yes", StdinMode::Null, None);
        let mut received = 0;
        while received < DETACHED_WINDOW as usize {
            received += self.receive_output(op).len();
        }
        op
    }
}
