//! Starting commands: exit, environment, directory, privileges, refusals.

use guest_proto::{Exit, RefusalKind, StdinMode, ToGuest};

use crate::host::{Agent, PLENTY, Said};

#[test]
fn the_exit_code_comes_back() {
    let agent = Agent::start();
    let mut host = agent.host();
    assert_eq!(host.run("true").exit, Exit::Code(0));
    assert_eq!(host.run("false").exit, Exit::Code(1));
    assert_eq!(host.run("exit 7").exit, Exit::Code(7));
}

#[test]
fn a_command_that_dies_by_a_signal_says_which() {
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
    assert!(host.run("true").duration_us < 150_000);
}

#[test]
fn environment_and_directory_are_the_given_ones() {
    let agent = Agent::start();
    let mut host = agent.host();
    let env = [("PATH", "/usr/bin:/bin"), ("NAME", "a b=c"), ("EMPTY", ""), ("UML", "ü")];
    let op = host.begin_as(&["env"], &env, "/usr", StdinMode::Null, PLENTY);
    assert!(matches!(host.hear(), Said::Started { .. }));
    let out = host.finish(op);
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "PATH=/usr/bin:/bin\nNAME=a b=c\nEMPTY=\nUML=ü\n");
    let op = host.begin_as(&["/bin/pwd"], &env, "/usr/lib", StdinMode::Null, PLENTY);
    assert!(matches!(host.hear(), Said::Started { .. }));
    assert_eq!(host.finish(op).stdout, b"/usr/lib\n");
}

#[test]
fn a_path_of_the_commands_own_does_not_keep_bash_from_it() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.begin_as(&["bash", "-c", "echo $PATH"], &[("PATH", "/nope")], "/", StdinMode::Null, PLENTY);
    assert!(matches!(host.hear(), Said::Started { .. }));
    assert_eq!(host.finish(op).stdout, b"/nope\n");
}

#[test]
fn what_does_not_start_is_refused_and_says_why() {
    let agent = Agent::start();
    let mut host = agent.host();
    let path = [("PATH", "/usr/bin:/bin")];
    let mut refused = |argv: &[&str], cwd: &str| {
        let op = host.begin_as(argv, &path, cwd, StdinMode::Pipe, PLENTY);
        match host.hear() {
            Said::Refused { op: of, kind, message } if of == op => (kind, message),
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
    // Nothing of these attempts is left.
    assert_eq!(host.run("ps -eo stat | grep -c Z").stdout, b"0\n");
}

#[test]
fn a_command_starts_clean() {
    let agent = Agent::start();
    let mut host = agent.host();
    // Descriptors 0 to 2 only; 255 is what bash itself opens, 3 is ls's own directory.
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
    // Its own session and group.
    assert_eq!(host.run("[ $(ps -o sid= -p $$) = $$ ] && [ $(ps -o pgid= -p $$) = $$ ]").exit, Exit::Code(0));
    // A reader that stops early ends its writer, as in any shell.
    assert_eq!(host.run("yes | head -1; echo ${PIPESTATUS[0]}").stdout, b"y\n141\n");
}

#[test]
fn a_command_has_the_listed_capabilities_and_no_way_to_more() {
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
fn a_command_cannot_look_into_or_end_the_agent() {
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
fn commands_have_marks_of_their_own() {
    let agent = Agent::start();
    let mut host = agent.host();
    let own = host.run("readlink /proc/self/ns/cgroup").stdout;
    // Held open by a process of the first command, so that its number is not given away again.
    let first = host.run("sleep 1000 >/dev/null 2>&1 & readlink /proc/self/ns/cgroup").stdout;
    let second = host.run("readlink /proc/self/ns/cgroup").stdout;
    assert!(own.starts_with(b"cgroup:["));
    assert_ne!(first, second);
}

#[test]
fn setup_makes_directories_and_those_above() {
    let agent = Agent::start();
    let mut host = agent.host();
    let dir = agent.path("a/b/c");
    let file = agent.path("file");
    std::fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let op = host.op();
        host.say(&ToGuest::Setup { op, dirs: vec![dir.to_str().unwrap(), "/"] });
        assert_eq!(host.hear(), Said::Done { op });
        assert!(dir.is_dir());
    }
    let below = file.join("x");
    let op = host.op();
    host.say(&ToGuest::Setup { op, dirs: vec![below.to_str().unwrap()] });
    match host.hear() {
        Said::Refused { op: of, message, .. } => {
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
        PLENTY,
    );
    assert_eq!(host.hear_output(op), b"ready\n");
    host.say(&ToGuest::Signal { op, signal: 2 });
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
fn it_works_as_an_ordinary_process_too() {
    let agent = Agent::start_plain();
    let mut host = agent.host();
    let out = host.run("echo out; echo err >&2; (setsid sleep 0.01 &); exit 4");
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (b"out\n".as_slice(), b"err\n".as_slice()));
    assert_eq!(out.exit, Exit::Code(4));
}

#[test]
fn more_than_the_most_commands_are_refused() {
    let agent = Agent::start();
    let mut host = agent.host();
    let ops: Vec<u64> = (0..300).map(|_| host.begin("read", StdinMode::Pipe, PLENTY)).collect();
    let (mut started, mut refused) = (Vec::new(), 0);
    for _ in &ops {
        match host.hear() {
            Said::Started { op, .. } => started.push(op),
            Said::Refused { kind: RefusalKind::TooMany, message, .. } => {
                assert!(message.contains("256"), "{message}");
                refused += 1;
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!((started.len(), refused), (256, 44));
    for op in &started {
        host.say(&ToGuest::Data { op: *op, bytes: b"\n" });
    }
    let mut exited = 0;
    while exited < started.len() {
        match host.hear() {
            Said::Exited { exit, .. } => {
                assert_eq!(exit, Exit::Code(0));
                exited += 1;
            }
            Said::Eof { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(host.run("echo again").stdout, b"again\n");
}
