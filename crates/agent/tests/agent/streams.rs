//! Output and input of commands: order, credits, back-pressure, fairness, background writers.

use std::time::Duration;

use guest_proto::{Channel, Exit, StdinMode, ToGuest};
use sha2::{Digest, Sha256};

use crate::host::{Agent, HostMessage, LARGE_WINDOW, until};

const QUIET: Duration = Duration::from_millis(150);

#[test]
fn stdout_and_stderr_are_separate() {
    let agent = Agent::start();
    let mut host = agent.host();
    let out = host.run("echo one; echo two >&2; echo three; echo four >&2");
    assert_eq!(out.stdout, b"one\nthree\n");
    assert_eq!(out.stderr, b"two\nfour\n");
}

#[test]
fn large_output_is_complete_with_small_credits() {
    let agent = Agent::start();
    let mut host = agent.host();
    // 50 MB of numbers, so that a lost, repeated or moved piece is detected.
    let script = "seq 1 10000000 | head -c 50000000";
    let op = host.start(script, StdinMode::Null, 777);
    let (mut hash, mut bytes_seen, mut open) = (Sha256::new(), 0, 777);
    let exit = loop {
        match host.receive() {
            HostMessage::Data { channel: Channel::Stdout, bytes, .. } => {
                assert!(bytes.len() <= open, "{} bytes where {open} were granted", bytes.len());
                open -= bytes.len();
                bytes_seen += bytes.len();
                hash.update(&bytes);
                if open < 300 {
                    let grant = 40_000;
                    open += grant;
                    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: grant as u32 });
                }
            }
            HostMessage::Eof { .. } => {}
            HostMessage::Exited { exit, .. } => break exit,
            other => panic!("unexpected: {other:?}"),
        }
    };
    assert_eq!((exit, bytes_seen), (Exit::Code(0), 50_000_000));
    let mut expected = Vec::with_capacity(60_000_000);
    for n in 1..=10_000_000u32 {
        use std::io::Write;
        writeln!(expected, "{n}").unwrap();
        if expected.len() >= 50_000_000 {
            break;
        }
    }
    assert_eq!(hash.finalize(), Sha256::digest(&expected[..50_000_000]));
}

#[test]
fn without_credit_the_command_waits_and_the_agent_does_not_grow() {
    let agent = Agent::start();
    let mut host = agent.host();
    let progress = agent.path("progress");
    let script = format!(
        "for i in $(seq 1 1000); do head -c 100000 /dev/zero; echo $i > {}; done",
        progress.display()
    );
    let op = host.start(&script, StdinMode::Null, 1000);
    let mut open = 1000;
    while open > 0 {
        open -= host.receive_output(op).len();
    }
    assert!(host.is_quiet(QUIET));
    let before = agent.resident_kib();
    assert!(host.is_quiet(QUIET));
    let done = std::fs::read_to_string(&progress).unwrap_or_default();
    assert!(done.trim().parse().unwrap_or(0) < 30, "the command was not blocked: {done}");
    assert!(agent.resident_kib() <= before.max(2048), "{before} KiB grew to {} KiB", agent.resident_kib());
    // Other commands are not delayed.
    host.ping();
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: LARGE_WINDOW });
    let out = host.finish(op);
    assert_eq!(out.stdout.len(), 100_000_000 - 1000);
}

#[test]
fn a_blocked_command_does_not_delay_others() {
    let agent = Agent::start();
    let mut host = agent.host();
    let blocked = host.start("yes", StdinMode::Null, 10);
    assert_eq!(host.receive_output(blocked).len(), 10);
    for n in 0..20 {
        assert_eq!(host.run(&format!("echo {n}")).stdout, format!("{n}\n").as_bytes());
    }
    host.send(&ToGuest::Kill { op: blocked });
    assert_eq!(host.finish(blocked).exit, Exit::Signal(9));
}

#[test]
fn much_output_does_not_starve_other_commands() {
    let agent = Agent::start();
    let mut host = agent.host();
    let chatty = host.start("yes", StdinMode::Null, LARGE_WINDOW);
    let op = host.begin("for i in 1 2 3; do echo $i; done", StdinMode::Null, LARGE_WINDOW);
    let mut quiet_out = Vec::new();
    let mut others = 0usize;
    loop {
        match host.receive() {
            HostMessage::Data { op: of, channel, bytes } if of == chatty => {
                others += bytes.len();
                host.send(&ToGuest::Credit { op: chatty, channel, bytes: bytes.len() as u32 });
            }
            HostMessage::Data { bytes, .. } => quiet_out.extend(bytes),
            HostMessage::Exited { op: of, .. } if of == op => break,
            HostMessage::Started { .. } | HostMessage::Eof { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(quiet_out, b"1\n2\n3\n");
    assert!(others < 2_000_000_000, "{others}");
}

#[test]
fn stdin_is_delivered_and_its_credit_returned() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.begin("cat", StdinMode::Pipe, LARGE_WINDOW);
    let mut open = match host.receive() {
        HostMessage::Started { window, .. } => window as usize,
        other => panic!("not started: {other:?}"),
    };
    let total = 3_000_000;
    let piece: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
    let (mut sent, mut back) = (0, Vec::new());
    let exit = loop {
        while sent < total && open > 0 {
            let rest = &piece[sent % piece.len()..];
            let now = &rest[..rest.len().min(open)];
            host.send(&ToGuest::Data { op, bytes: now });
            open -= now.len();
            sent += now.len();
            if sent == total {
                host.send(&ToGuest::Eof { op });
            }
        }
        match host.receive() {
            HostMessage::Credit { bytes, .. } => open += bytes as usize,
            HostMessage::Data { bytes, .. } => back.extend_from_slice(&bytes),
            HostMessage::Eof { .. } => {}
            HostMessage::Exited { exit, .. } => break exit,
            other => panic!("unexpected: {other:?}"),
        }
    };
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(back.len(), total);
    assert!(back.chunks(piece.len()).all(|chunk| chunk == piece));
}

#[test]
fn unread_stdin_is_bounded_and_dropped_after_the_reader_closes() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("exec 0<&-; echo closed; sleep 0.3", StdinMode::Pipe, LARGE_WINDOW);
    assert_eq!(host.receive_output(op), b"closed\n");
    let piece = vec![0; 30_000];
    for _ in 0..50 {
        host.send(&ToGuest::Data { op, bytes: &piece });
        host.send(&ToGuest::Data { op, bytes: &piece[..2768] });
        match host.receive() {
            HostMessage::Credit { bytes, .. } => assert_eq!(bytes, 32_768),
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(host.finish(op).exit, Exit::Code(0));
}

#[test]
fn more_stdin_than_granted_ends_the_link() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("sleep 1000", StdinMode::Pipe, LARGE_WINDOW);
    let piece = vec![0; 200_000];
    host.send(&ToGuest::Data { op, bytes: &piece });
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
    assert_eq!(host.try_receive(), None);
    let (_, ops) = agent.link();
    assert_eq!(ops, [op]);
}

#[test]
fn a_background_process_survives_without_delaying_the_end() {
    let agent = Agent::start();
    let mut host = agent.host();
    let (file, go) = (agent.path("alive"), agent.path("go"));
    // The process writes more than a pipe holds to the command's stdout, after the command has ended.
    let script = format!(
        "(trap 'echo died > {0}; exit' PIPE; until [ -e {1} ]; do sleep 0.01; done; for i in $(seq 40); do head -c 10000 /dev/zero || exit; done; \
         echo fine > {0}; exec sleep 1000) & echo started",
        file.display(),
        go.display()
    );
    let out = host.run(&script);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"started\n".as_slice(), Exit::Code(0)));
    // The process waits for this file, so the end of the command did not wait for the process.
    std::fs::write(&go, "").unwrap();
    let fate = until("the background process reports its exit", || {
        std::fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'))
    });
    assert_eq!(fate, "fine\n");
    until("the background process still runs", || {
        (host.run("pgrep -c sleep").stdout == b"1\n").then_some(())
    });
}

#[test]
fn an_endless_background_writer_does_not_delay_the_end() {
    let agent = Agent::start();
    let mut host = agent.host();
    let out = host.run("yes & sleep 0.05; exit 5");
    assert_eq!(out.exit, Exit::Code(5));
    assert!(out.stdout.iter().all(|byte| matches!(byte, b'y' | b'\n')));
    assert_eq!(host.run("pgrep -c yes").stdout, b"1\n");
    host.run("pkill yes");
}

#[test]
fn output_in_the_pipe_at_the_end_is_delivered() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("head -c 60000 /dev/zero", StdinMode::Null, 1);
    assert_eq!(host.receive_output(op).len(), 1);
    // The command ends as soon as it has written; the report of its end waits for the delivery.
    until("the command has ended", || agent.is_childless().then_some(()));
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: LARGE_WINDOW });
    let out = host.finish(op);
    assert_eq!((out.stdout.len(), out.exit), (59_999, Exit::Code(0)));
}

#[test]
fn after_close_output_is_dropped_and_the_end_is_reported() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("echo here; read; head -c 1000000 /dev/zero; exit 3", StdinMode::Pipe, 1000);
    assert_eq!(host.receive_output(op), b"here\n");
    host.send(&ToGuest::Close { op });
    host.send(&ToGuest::Data { op, bytes: b"\n" });
    let out = host.finish(op);
    assert_eq!((out.stdout.len(), out.exit), (0, Exit::Code(3)));
}

#[test]
fn a_grant_above_the_maximum_ends_the_link() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("sleep 1000", StdinMode::Null, LARGE_WINDOW);
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 1 });
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
    assert_eq!(host.try_receive(), None);
}
