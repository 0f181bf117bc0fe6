//! Links that are suspended and continue on another stream.

use guest_proto::{Channel, Exit, StdinMode, ToGuest};

use crate::host::{Agent, Host, HostMessage, LARGE_WINDOW, until};

/// Suspends the link. Returns the frames that came before the answer.
fn suspend(host: &mut Host) -> Vec<HostMessage> {
    host.send(&ToGuest::Suspend);
    let mut before = Vec::new();
    loop {
        match host.receive() {
            HostMessage::Suspended => return before,
            message => before.push(message),
        }
    }
}

#[test]
fn commands_continue_with_their_link() {
    for agent in [Agent::start(), Agent::start_connecting()] {
        let mut host = agent.host();
        let (go, done) = (agent.path("go"), agent.path("done"));
        let script = format!(
            "echo one; until [ -e {} ]; do sleep 0.01; done; echo two; touch {}; read line; echo $line >&2; exit 4",
            go.display(),
            done.display()
        );
        let op = host.start(&script, StdinMode::Pipe, LARGE_WINDOW);
        assert_eq!(host.receive_output(op), b"one\n");
        assert_eq!(suspend(&mut host), []);
        std::fs::write(&go, "").unwrap();
        until("the command has printed", || done.exists().then_some(()));
        // The old stream stays silent, and may stay open for a while.
        assert!(host.is_quiet(std::time::Duration::from_millis(50)));
        let mut host = agent.continue_link(host);
        assert_eq!(host.receive_output(op), b"two\n");
        host.send(&ToGuest::Data { op, bytes: b"three\n" });
        let out = host.finish(op);
        assert_eq!((out.stderr.as_slice(), out.exit), (b"three\n".as_slice(), Exit::Code(4)));
        assert_eq!(host.run("echo next").stdout, b"next\n");
    }
}

#[test]
fn nothing_is_lost_when_the_suspension_comes_between_much_output() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("seq 1 400000", StdinMode::Null, LARGE_WINDOW);
    let mut output = host.receive_output(op);
    let (mut exit, mut suspensions) = (None, 0);
    // A fast host reads everything before the last one.
    while exit.is_none() {
        let messages = if suspensions < 5 { suspend(&mut host) } else { vec![host.receive()] };
        for message in messages {
            match message {
                HostMessage::Data { bytes, .. } => output.extend(bytes),
                HostMessage::Eof { .. } => {}
                HostMessage::Exited { exit: code, .. } => exit = Some(code),
                other => panic!("unexpected: {other:?}"),
            }
        }
        if suspensions < 5 {
            // The agent fills its buffer meanwhile.
            std::thread::sleep(std::time::Duration::from_millis(20));
            host = agent.continue_link(host);
            suspensions += 1;
        }
    }
    assert_eq!(exit, Some(Exit::Code(0)));
    let expected: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(output == expected.as_bytes(), "{} of {} bytes", output.len(), expected.len());
}

#[test]
fn an_end_during_the_suspension_is_reported_once() {
    let agent = Agent::start();
    let mut host = agent.host();
    let go = agent.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; exit 3", go.display());
    let op = host.start(&script, StdinMode::Null, LARGE_WINDOW);
    suspend(&mut host);
    std::fs::write(&go, "").unwrap();
    until("the command has ended", || agent.is_childless().then_some(()));
    let mut host = agent.continue_link(host);
    assert_eq!(host.finish(op).exit, Exit::Code(3));
    drop(host);
    assert_eq!(agent.link().1, []);
}

#[test]
fn connections_to_ports_continue_with_their_link() {
    let agent = Agent::start_plain();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut host = agent.host();
    let op = host.op();
    host.send(&ToGuest::Dial { op, port, window: LARGE_WINDOW });
    let (mut inside, _) = listener.accept().unwrap();
    assert!(matches!(host.receive(), HostMessage::Opened { .. }));
    suspend(&mut host);
    std::io::Write::write_all(&mut inside, b"meanwhile").unwrap();
    let mut host = agent.continue_link(host);
    assert_eq!(host.receive_output(op), b"meanwhile");
    host.send(&ToGuest::Data { op, bytes: b"back" });
    let mut read = [0; 4];
    std::io::Read::read_exact(&mut inside, &mut read).unwrap();
    assert_eq!(&read, b"back");
}

#[test]
fn a_hello_after_a_suspension_begins_a_new_link() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("yes", StdinMode::Null, LARGE_WINDOW);
    host.receive_output(op);
    suspend(&mut host);
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(host);
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    // As after a lost link: nothing of the old one is sent, and output waits for a grant.
    assert!(host.is_quiet(std::time::Duration::from_millis(50)));
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 10 });
    assert_eq!(host.receive_output(op).len(), 10);
    host.send(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
}

#[test]
fn only_a_suspended_link_can_be_continued() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("sleep 1000", StdinMode::Null, LARGE_WINDOW);
    drop(host);
    let mut host = agent.connect();
    host.send(&ToGuest::Continue);
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
    let (mut host, ops) = agent.link();
    assert_eq!(ops, [op]);
    // Frames after `Suspend` end the link for good.
    suspend(&mut host);
    host.send(&ToGuest::Ping { nonce: 1 });
    assert_eq!(host.try_receive().map(|message| matches!(message, HostMessage::Bye { .. })), Some(true));
    assert_eq!(host.try_receive(), None);
    let mut host = agent.connect();
    host.send(&ToGuest::Continue);
    assert!(matches!(host.receive(), HostMessage::Bye { .. }));
    assert_eq!(agent.link().1, [op]);
}
