//! Starting commands: exit, environment, directory, privileges, refusals.

use guest_proto::{Exit, RefusalKind, StdinMode, ToGuest};

use crate::host::{Agent, HostMessage, LARGE_WINDOW};

#[test]
fn the_exit_code_is_reported() {
    let agent = Agent::start();
    let mut host = agent.host();
    assert_eq!(host.run("true").exit, Exit::Code(0));
    assert_eq!(host.run("false").exit, Exit::Code(1));
    assert_eq!(host.run("exit 7").exit, Exit::Code(7));
}

#[test]
fn a_signal_that_ends_a_command_is_reported() {
    let agent = Agent::start();
    let mut host = agent.host();
    assert_eq!(host.run("kill -TERM $$").exit, Exit::Signal(15));
    assert_eq!(host.run("bash -c 'kill -KILL $$'").exit, Exit::Signal(9));
    assert_eq!(host.run("bash -c 'kill -KILL $$'; exit $?").exit, Exit::Code(137));
}

#[test]
fn the_duration_is_that_of_the_command() {
    let agent = Agent::start();
    let mut host = agent.host();
    let slow = host.run("sleep 0.2");
    assert!((200_000..5_000_000).contains(&slow.duration_us), "{slow:?}");
    assert!(host.run("true").duration_us < slow.duration_us);
}

#[test]
fn environment_and_directory_are_those_of_the_request() {
    let agent = Agent::start();
    let mut host = agent.host();
    let env = [("PATH", "/usr/bin:/bin"), ("NAME", "a b=c"), ("EMPTY", ""), ("UML", "ü")];
    let op = host.begin_as(&["env"], &env, "/usr", StdinMode::Null, LARGE_WINDOW);
    assert!(matches!(host.receive(), HostMessage::Started { .. }));
    let out = host.finish(op);
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "PATH=/usr/bin:/bin\nNAME=a b=c\nEMPTY=\nUML=ü\n");
    let op = host.begin_as(&["/bin/pwd"], &env, "/usr/lib", StdinMode::Null, LARGE_WINDOW);
    assert!(matches!(host.receive(), HostMessage::Started { .. }));
    assert_eq!(host.finish(op).stdout, b"/usr/lib\n");
}

#[test]
fn bash_is_found_with_any_path_variable() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.begin_as(
        &["bash", "-c", "echo $PATH"],
        &[("PATH", "/nope")],
        "/",
        StdinMode::Null,
        LARGE_WINDOW,
    );
    assert!(matches!(host.receive(), HostMessage::Started { .. }));
    assert_eq!(host.finish(op).stdout, b"/nope\n");
}

#[test]
fn a_command_that_cannot_start_is_refused_with_the_reason() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = [("PATH", "/usr/bin:/bin")];
    let mut refused = |argv: &[&str], cwd: &str| {
        let op = host.begin_as(argv, &path, cwd, StdinMode::Pipe, LARGE_WINDOW);
        match host.receive() {
            HostMessage::Refused { op: of, kind, message } if of == op => (kind, message),
            other => panic!("not refused: {other:?}"),
        }
    };
    let (kind, message) = refused(&["true"], "/no/such/place");
    assert_eq!(kind, RefusalKind::CwdMissing);
    assert!(message.contains("/no/such/place"), "{message}");
    assert_eq!(refused(&["true"], "/etc/passwd").0, RefusalKind::CwdMissing);
    let (kind, message) = refused(&["no-such-program"], "/");
    assert_eq!(kind, RefusalKind::ProgramMissing);
    assert!(message.contains("no-such-program"), "{message}");
    assert_eq!(refused(&["/no/such/program"], "/").0, RefusalKind::ProgramMissing);
    assert_eq!(refused(&["/etc/passwd"], "/").0, RefusalKind::NotAllowed);
    // The attempts leave no process behind.
    assert_eq!(host.run("ps -eo stat | grep -c Z").stdout, b"0\n");
}

#[test]
fn a_command_inherits_no_descriptors_or_signals() {
    let agent = Agent::start();
    let mut host = agent.host();
    // Only descriptors 0 to 2; bash opens 255, and ls opens 3 for the directory.
    let fds = host.run("exec ls /proc/self/fd");
    assert_eq!(String::from_utf8(fds.stdout).unwrap(), "0\n1\n2\n3\n");
    let status = String::from_utf8(host.run("exec cat /proc/self/status").stdout).unwrap();
    for name in ["SigBlk:", "SigIgn:", "SigCgt:", "SigPnd:", "ShdPnd:"] {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    assert_eq!(host.run("umask").stdout, b"0022\n");
    assert_eq!(host.run("cat /proc/self/oom_score_adj").stdout, b"200\n");
    assert_eq!(host.run("readlink /proc/self/fd/0").stdout, b"/dev/null\n");
    // The command has its own session and process group.
    assert_eq!(host.run("[ $(ps -o sid= -p $$) = $$ ] && [ $(ps -o pgid= -p $$) = $$ ]").exit, Exit::Code(0));
    // A reader that stops early ends its writer, as in any shell.
    assert_eq!(host.run("yes | head -1; echo ${PIPESTATUS[0]}").stdout, b"y\n141\n");
}

#[test]
fn a_command_has_only_the_listed_capabilities() {
    let agent = Agent::start();
    let mut host = agent.host();
    let out = host.run("exec grep -E '^Cap' /proc/self/status");
    // CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7, SETPCAP 8, NET_BIND_SERVICE 10,
    // NET_RAW 13, SYS_CHROOT 18, MKNOD 27, AUDIT_WRITE 29, SETFCAP 31.
    let allowed: u64 = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31].iter().map(|n| 1 << n).sum();
    let mut seen = 0;
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let (name, bits) = line.split_once(":\t").unwrap();
        let bits = u64::from_str_radix(bits, 16).unwrap();
        let expected = if matches!(name, "CapInh" | "CapAmb") { 0 } else { allowed };
        assert_eq!(bits, expected, "{line}");
        seen += 1;
    }
    assert_eq!(seen, 5);
    assert_ne!(host.run("mount -t tmpfs none /mnt").exit, Exit::Code(0));
    assert_ne!(host.run("unshare --cgroup true").exit, Exit::Code(0));
}

#[test]
fn a_command_can_neither_inspect_nor_kill_the_agent() {
    let agent = Agent::start();
    let mut host = agent.host();
    for look in [
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "head -c 1 /proc/1/mem",
        "head -c 0 /proc/1/fd/0",
        "readlink /proc/1/fd/3",
        "readlink /proc/1/exe",
        "ls /proc/1/root/",
        "readlink /proc/1/ns/cgroup",
        "echo -17 > /proc/1/oom_score_adj",
    ] {
        assert_ne!(host.run(look).exit, Exit::Code(0), "{look}");
    }
    for signal in ["KILL", "STOP", "SEGV", "TERM", "HUP", "USR1", "PIPE", "CHLD"] {
        host.run(&format!("kill -{signal} 1"));
        host.ping();
    }
    host.run("kill -KILL -1");
    host.ping();
}

#[test]
fn each_command_has_its_own_mark() {
    let agent = Agent::start();
    let mut host = agent.host();
    let own = host.run("readlink /proc/self/ns/cgroup").stdout;
    // A process of the first command holds its namespace open, so that the inode number is not reused.
    let first = host.run("sleep 1000 >/dev/null 2>&1 & readlink /proc/self/ns/cgroup").stdout;
    let second = host.run("readlink /proc/self/ns/cgroup").stdout;
    assert!(own.starts_with(b"cgroup:["));
    assert_ne!(first, second);
}

#[test]
fn setup_creates_directories_and_their_parents() {
    let agent = Agent::start();
    let mut host = agent.host();
    let dir = agent.path("a/b/c");
    let file = agent.path("file");
    std::fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let op = host.op();
        host.send(&ToGuest::Setup { op, dirs: vec![dir.to_str().unwrap(), "/"] });
        assert_eq!(host.receive(), HostMessage::Done { op });
        assert!(dir.is_dir());
    }
    let below = file.join("x");
    let op = host.op();
    host.send(&ToGuest::Setup { op, dirs: vec![below.to_str().unwrap()] });
    match host.receive() {
        HostMessage::Refused { op: of, message, .. } => {
            assert_eq!(of, op);
            assert!(message.contains(below.to_str().unwrap()), "{message}");
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_signal_reaches_the_commands_group() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start(
        "trap 'echo got; kill $!; exit 3' INT; sleep 60 & echo ready; wait",
        StdinMode::Null,
        LARGE_WINDOW,
    );
    assert_eq!(host.receive_output(op), b"ready\n");
    host.send(&ToGuest::Signal { op, signal: 2 });
    let out = host.finish(op);
    assert_eq!((out.stdout.as_slice(), out.exit), (b"got\n".as_slice(), Exit::Code(3)));
}

#[test]
fn orphans_are_collected() {
    let agent = Agent::start();
    let mut host = agent.host();
    host.run("for i in $(seq 50); do (setsid true &) ; done");
    crate::host::until("no orphan is left", || {
        (host.run("ps -eo stat= | grep -c Z").stdout == b"0\n").then_some(())
    });
}

#[test]
fn the_agent_works_without_being_process_1() {
    let agent = Agent::start_plain();
    let mut host = agent.host();
    let out = host.run("echo out; echo err >&2; (setsid sleep 0.01 &); exit 4");
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (b"out\n".as_slice(), b"err\n".as_slice()));
    assert_eq!(out.exit, Exit::Code(4));
}

#[test]
fn commands_beyond_the_limit_are_refused() {
    let agent = Agent::start();
    let mut host = agent.host();
    let ops: Vec<u64> = (0..300).map(|_| host.begin("read", StdinMode::Pipe, LARGE_WINDOW)).collect();
    let (mut started, mut refused) = (Vec::new(), 0);
    for _ in &ops {
        match host.receive() {
            HostMessage::Started { op, .. } => started.push(op),
            HostMessage::Refused { kind: RefusalKind::TooMany, message, .. } => {
                assert!(message.contains("256"), "{message}");
                refused += 1;
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!((started.len(), refused), (256, 44));
    for op in &started {
        host.send(&ToGuest::Data { op: *op, bytes: b"\n" });
    }
    let mut exited = 0;
    while exited < started.len() {
        match host.receive() {
            HostMessage::Exited { exit, .. } => {
                assert_eq!(exit, Exit::Code(0));
                exited += 1;
            }
            HostMessage::Eof { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(host.run("echo again").stdout, b"again\n");
}
