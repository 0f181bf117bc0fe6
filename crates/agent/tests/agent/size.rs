//! Resource use of the agent: memory, start time, time per command. The limits hold for the tested build; the
//! documentation has figures of the small build.

use std::time::{Duration, Instant};

use guest_proto::{Channel, StdinMode, ToGuest};

use crate::host::{Agent, HostMessage, LARGE_WINDOW, until};

const MAX_RESIDENT_KIB: u64 = 2048;

/// Memory that is not backed by the program's files: the test build is larger than the small build, and uses shared
/// libraries.
fn own_kib(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_idle_agent_returns_memory_after_work() {
    let agent = Agent::start();
    let mut host = agent.host();
    assert!(own_kib(&agent) <= MAX_RESIDENT_KIB);
    for _ in 0..50 {
        host.run("true");
    }
    let out = host.run("head -c 30000000 /dev/zero");
    assert_eq!(out.stdout.len(), 30_000_000);
    let op = host.start("cat >/dev/null", StdinMode::Pipe, LARGE_WINDOW);
    host.send(&ToGuest::Data { op, bytes: &[0; 60_000] });
    host.send(&ToGuest::Eof { op });
    host.finish(op);
    let kib = until("the memory is returned", || Some(own_kib(&agent)).filter(|kib| *kib <= 512));
    println!(
        "own memory after work: {kib} KiB, resident with shared libraries: {} KiB",
        agent.resident_kib()
    );
}

#[test]
fn the_agent_is_ready_quickly() {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let agent = Agent::start_plain();
        agent.host();
        best = best.min(start.elapsed());
    }
    println!("ready, bash and all, in {best:?}");
    assert!(best < Duration::from_millis(50), "{best:?}");
}

#[test]
fn an_idle_agent_sleeps() {
    let agent = Agent::start();
    let mut host = agent.host();
    host.run("sleep 1000 & yes >/dev/null & true");
    host.run("pkill yes");
    let waits = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // After it has returned its memory, no timer wakes the agent.
    until("it sleeps", || {
        let before = waits();
        std::thread::sleep(Duration::from_millis(300));
        (waits() == before).then_some(())
    });
}

/// `cargo test … -- --nocapture figures` prints them.
#[test]
fn figures() {
    let agent = Agent::start_plain();
    let mut host = agent.host();
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            host.run("true");
            start.elapsed()
        })
        .collect();
    times.sort();
    let mut bare: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            let mut command = std::process::Command::new("bash");
            command.args(["-c", "true"]).stdin(std::process::Stdio::null());
            command.output().unwrap();
            start.elapsed()
        })
        .collect();
    bare.sort();
    println!("bash -c true: agent p50 {:?} p99 {:?}, bare p50 {:?}", times[100], times[198], bare[100]);
    let total = 1usize << 30;
    let op = host.start("exec head -c 1G /dev/zero", StdinMode::Null, LARGE_WINDOW);
    let start = Instant::now();
    let mut seen = 0;
    let mut owed = 0;
    loop {
        match host.receive() {
            HostMessage::Data { bytes, .. } => {
                seen += bytes.len();
                owed += bytes.len();
                if owed > 16 << 20 {
                    host.send(&ToGuest::Credit { op, channel: Channel::Stdout, bytes: owed as u32 });
                    owed = 0;
                }
            }
            HostMessage::Eof { .. } => {}
            HostMessage::Exited { .. } => break,
            other => panic!("unexpected: {other:?}"),
        }
    }
    let rate = seen as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("output: {rate:.0} MB/s");
    assert_eq!(seen, total);
}
