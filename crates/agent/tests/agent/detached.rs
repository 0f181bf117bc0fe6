//! Commands that outlive their link: nothing of their output is lost or comes twice, however often it breaks.

use guest_proto::{Channel, ExecSpec, Exit, KEPT_WINDOW, RefusalKind, StdinMode, TerminalSize, ToGuest};

use crate::host::{Agent, Host, Said, until};

impl Host {
    pub fn keep(&mut self, script: &str, stdin: StdinMode, terminal: Option<TerminalSize>) -> u64 {
        let op = self.op();
        self.keep_as(op, script, stdin, terminal);
        op
    }

    fn keep_as(&mut self, op: u64, script: &str, stdin: StdinMode, terminal: Option<TerminalSize>) {
        let env =
            vec![("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("TERM", "xterm")];
        let spec = ExecSpec { argv: vec!["bash", "-c", script], env, cwd: "/", stdin };
        self.say(&ToGuest::Keep { op, spec, terminal });
        match self.hear() {
            Said::Started { op: started, .. } if started == op => {}
            other => panic!("not started: {other:?}"),
        }
    }

    fn take(&mut self, op: u64, stdout: u64, stderr: u64) -> u64 {
        self.say(&ToGuest::Take { op, stdout, stderr });
        match self.hear() {
            Said::Taken { op: taken, stdin, .. } if taken == op => stdin,
            other => panic!("not taken: {other:?}"),
        }
    }
}

/// As many lines as it takes to be many windows long.
const COUNT: &str = "seq 1 200000; seq 1 50000 >&2; exit 7";

fn lines(to: u32) -> Vec<u8> {
    (1..=to).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

#[test]
fn output_goes_on_from_what_the_host_has() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep(COUNT, StdinMode::Null, None);
    let mut have = [Vec::new(), Vec::new()];
    let mut frames = 0;
    let (mut links, mut acknowledged) = (0, [0usize; 2]);
    let exit = loop {
        match host.hear() {
            Said::Data { op: of, channel, bytes } => {
                assert_eq!(of, op);
                have[channel as usize].extend(bytes);
                frames += 1;
            }
            Said::Eof { .. } => continue,
            Said::Exited { exit, .. } => break exit,
            other => panic!("unexpected: {other:?}"),
        }
        let is_stuck = (0..2).any(|n| have[n].len() - acknowledged[n] >= KEPT_WINDOW as usize);
        if frames % 3 == 0 || is_stuck && frames % 4 != 1 {
            // What came is acknowledged now and then, and not at all before some of the breaks.
            for (channel, n) in [Channel::Stdout, Channel::Stderr].into_iter().zip(0..) {
                let bytes = have[n].len() - acknowledged[n];
                if bytes > 0 {
                    host.say(&ToGuest::Credit { op, channel, bytes: bytes as u32 });
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
            host.take(op, have[0].len() as u64, have[1].len() as u64);
            acknowledged = [have[0].len(), have[1].len()];
        }
    };
    assert!(links > 5, "only {links} links");
    assert_eq!(exit, Exit::Code(7));
    assert!(have == [lines(200_000), lines(50_000)], "{} and {} bytes", have[0].len(), have[1].len());
    // Its end is told until the host has it.
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    host.take(op, have[0].len() as u64, have[1].len() as u64);
    assert!(matches!(host.hear(), Said::Exited { exit: Exit::Code(7), .. }));
    host.say(&ToGuest::Forget { op });
    host.ping();
    drop(host);
    assert_eq!(agent.link().1, []);
}

#[test]
fn a_link_that_was_told_and_wrote_nothing_down_is_told_again() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("echo out; echo err >&2", StdinMode::Null, None);
    loop {
        if let Said::Exited { exit, .. } = host.hear() {
            assert_eq!(exit, Exit::Code(0));
            break;
        }
    }
    drop(host);
    let (mut host, _) = agent.link();
    host.take(op, 1, 0);
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (b"ut\n".as_slice(), b"err\n".as_slice()));
}

#[test]
fn nothing_comes_before_it_is_taken_and_the_command_waits() {
    let agent = Agent::start();
    let mut host = agent.host();
    let file = agent.path("written");
    let script = format!("head -c 10000000 /dev/zero | tee >(wc -c > {}) ; sleep 1000", file.display());
    let op = host.keep(&script, StdinMode::Null, None);
    host.hear_output(op);
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    assert!(host.is_quiet(std::time::Duration::from_millis(200)));
    assert_eq!(std::fs::read(&file).unwrap_or_default(), b"", "it did not wait");
    host.take(op, 0, 0);
    let mut came = 0;
    while came < KEPT_WINDOW as usize {
        came += host.hear_output(op).len();
    }
    assert_eq!(came, KEPT_WINDOW as usize);
    assert!(host.is_quiet(std::time::Duration::from_millis(100)));
    host.say(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
}

#[test]
fn places_that_are_gone_and_commands_that_are_none_are_refused() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("echo hello; sleep 1000", StdinMode::Null, None);
    assert_eq!(host.hear_output(op), b"hello\n");
    host.say(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 6 });
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
        host.say(&ToGuest::Take { op, stdout, stderr: 0 });
        assert!(matches!(host.hear(), Said::Refused { kind, .. } if kind == expected), "{op} at {stdout}");
    }
    assert_eq!(host.take(op, 6, 0), 0);
    // More acknowledged than was ever sent is a breach.
    host.say(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 1 });
    assert!(matches!(host.hear(), Said::Bye { .. }));
}

#[test]
fn what_is_forgotten_while_it_runs_is_as_any_command() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("sleep 1000", StdinMode::Null, None);
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    host.say(&ToGuest::Kill { op });
    host.say(&ToGuest::Forget { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    drop(host);
    assert_eq!(agent.link().1, []);
}

#[test]
fn input_goes_on_and_its_bytes_are_counted() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.keep("cat", StdinMode::Pipe, None);
    host.say(&ToGuest::Data { op, bytes: b"one " });
    assert_eq!(host.hear_output(op), b"one ");
    drop(host);
    let (mut host, _) = agent.link();
    assert_eq!(host.take(op, 4, 0), 4);
    host.say(&ToGuest::Data { op, bytes: b"two" });
    host.say(&ToGuest::Eof { op });
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"two".as_slice(), Exit::Code(0)));
}

#[test]
fn many_kept_commands_hold_their_windows_and_no_more() {
    let agent = Agent::start();
    let mut host = agent.host();
    let ops: Vec<u64> = (0..20).map(|_| host.keep_yes()).collect();
    drop(host);
    let (mut host, found) = agent.link();
    assert_eq!(found, ops);
    for op in ops {
        host.say(&ToGuest::Kill { op });
        host.say(&ToGuest::Forget { op });
        loop {
            if matches!(host.hear(), Said::Exited { op: of, .. } if of == op) {
                break;
            }
        }
    }
    until("all is given back", || (agent.resident_kib() < 4096).then_some(()));
    assert_eq!(agent.link().1, []);
}

impl Host {
    fn keep_yes(&mut self) -> u64 {
        let op = self.keep("exec yes", StdinMode::Null, None);
        let mut came = 0;
        while came < KEPT_WINDOW as usize {
            came += self.hear_output(op).len();
        }
        op
    }
}
