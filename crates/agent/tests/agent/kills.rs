//! Ending commands with everything they started.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest_proto::{Channel, Exit, RefusalKind, StdinMode, ToGuest};

use crate::host::{Agent, HostMessage, LARGE_WINDOW, until};

#[test]
fn a_killed_command_dies_by_signal_9() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("echo there; sleep 1000", StdinMode::Null, LARGE_WINDOW);
    assert_eq!(host.receive_output(op), b"there\n");
    let before = Instant::now();
    host.send(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    assert_eq!(host.run("pgrep -c sleep").stdout, b"0\n");
}

#[test]
fn output_before_the_kill_is_delivered() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("head -c 5000 /dev/zero; sleep 1000", StdinMode::Null, 2000);
    let mut seen = 0;
    while seen < 2000 {
        seen += host.receive_output(op).len();
    }
    // Buffered output is sent as far as there is credit; the end does not wait for more.
    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: 1000 });
    host.send(&ToGuest::Kill { op });
    while seen < 3000 {
        seen += host.receive_output(op).len();
    }
    let out = host.finish(op);
    assert_eq!((seen, out.stdout.len(), out.exit), (3000, 0, Exit::Signal(9)));
}

#[test]
fn a_kill_reaches_other_sessions_and_no_other_command() {
    let agent = Agent::start();
    let mut host = agent.host();
    let other = host.start("sleep 3333", StdinMode::Null, LARGE_WINDOW);
    // A background process of an ended command survives the kill of another command.
    host.run("setsid sleep 2222 >/dev/null 2>&1 &");
    let script = "setsid sleep 1001 & (setsid bash -c 'sleep 1002 & sleep 1003' &) ; \
                  setsid env -i bash -c '(/usr/bin/setsid /usr/bin/sleep 1004 &) ; exec -a other /usr/bin/sleep 1005' & \
                  sleep 0.2; echo ready; sleep 1006";
    let op = host.start(script, StdinMode::Null, LARGE_WINDOW);
    assert_eq!(host.receive_output(op), b"ready\n");
    assert_eq!(host.run("ps -eo args= | grep -c -E '^(/usr/bin/)?sleep 100|^other 1005'").stdout, b"6\n");
    host.send(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    assert_eq!(host.run("ps -eo args= | grep -c -E '^(/usr/bin/)?sleep 100|^other 1005'").stdout, b"0\n");
    assert_eq!(host.run("ps -eo args= | grep -c -E '^sleep (2222|3333)'").stdout, b"2\n");
    host.send(&ToGuest::Kill { op: other });
    assert_eq!(host.finish(other).exit, Exit::Signal(9));
}

#[test]
fn processes_that_continue_each_other_are_killed() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start(
        "for i in 1 2 3 4; do setsid bash -c 'while :; do kill -CONT -1; done' 2>/dev/null & done; echo ready; wait",
        StdinMode::Null,
        LARGE_WINDOW,
    );
    assert_eq!(host.receive_output(op), b"ready\n");
    host.send(&ToGuest::Kill { op });
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    assert_eq!(host.run("pgrep -c -f '[k]ill -CONT'").stdout, b"0\n");
}

#[test]
fn killing_an_ended_command_reports_its_end() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("sleep 4444 >/dev/null 2>&1 & exit 6", StdinMode::Null, LARGE_WINDOW);
    assert_eq!(host.finish(op).exit, Exit::Code(6));
    host.send(&ToGuest::Kill { op });
    match host.receive() {
        HostMessage::Refused { op: of, kind, .. } => assert_eq!((of, kind), (op, RefusalKind::UnknownOp)),
        other => panic!("unexpected: {other:?}"),
    }
    until("the background process still runs", || {
        (host.run("pgrep -c sleep").stdout == b"1\n").then_some(())
    });
}

#[test]
fn a_kill_ends_the_wait_for_undelivered_output() {
    let agent = Agent::start();
    let mut host = agent.host();
    let op = host.start("echo much; exit 6", StdinMode::Null, 0);
    until("the command has ended", || agent.is_childless().then_some(()));
    assert!(host.is_quiet(Duration::from_millis(50)));
    host.send(&ToGuest::Kill { op });
    let out = host.finish(op);
    assert_eq!((out.exit, out.stdout.len()), (Exit::Code(6), 0));
}

/// A cgroup that bounds the number of processes, removed at the end.
struct PidsCgroup {
    dir: PathBuf,
}

impl PidsCgroup {
    fn new(name: &str, max: u32) -> Self {
        let root = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(PathBuf::from);
        let root = root
            .iter()
            .find(|dir| dir.join("cgroup.procs").exists())
            .expect("no cgroup hierarchy is mounted");
        if root.join("cgroup.subtree_control").exists() {
            std::fs::write(root.join("cgroup.subtree_control"), "+pids").unwrap();
        }
        let dir = root.join(format!("agent-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("pids.max"), max.to_string()).unwrap();
        Self { dir }
    }

    /// A script that moves its shell into the cgroup.
    fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs; ", self.dir.display())
    }
}

impl Drop for PidsCgroup {
    fn drop(&mut self) {
        until("the cgroup is empty", || std::fs::remove_dir(&self.dir).ok());
    }
}

fn assert_bomb_is_killed(name: &str, bomb: &str) {
    let cgroup = PidsCgroup::new(name, 1000);
    let agent = Agent::start_with(&cgroup.enter());
    let mut host = agent.host();
    let op = host.start(bomb, StdinMode::Null, LARGE_WINDOW);
    until("the bomb has filled its bound", || {
        let now = std::fs::read_to_string(cgroup.dir.join("pids.current")).unwrap();
        (now.trim().parse::<u32>().unwrap() > 900).then_some(())
    });
    let before = Instant::now();
    host.send(&ToGuest::Kill { op });
    // Drops the shell's messages about failed forks.
    assert_eq!(host.finish(op).exit, Exit::Signal(9));
    let took = before.elapsed();
    println!("{name}: killed in {took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(
        host.run("ps -e --no-headers | grep -v -c -E ' (ps|grep|bash|sandbox-agent)$'").stdout,
        b"0\n"
    );
    assert_eq!(host.run("echo fine").stdout, b"fine\n");
    drop(host);
    drop(agent);
}

#[test]
fn a_fork_bomb_is_killed() {
    assert_bomb_is_killed("plain", "b() { b | b & }; b 2>/dev/null; sleep 1000");
}

#[test]
fn a_fork_bomb_over_sessions_is_killed() {
    assert_bomb_is_killed(
        "sessions",
        "export B='while :; do setsid bash -c \"$B\" & setsid bash -c \"$B\" & sleep 0.001; done'; \
         exec 2>/dev/null; setsid bash -c \"$B\" & sleep 1000",
    );
}
