//! Detached commands and terminals in real sandboxes, under a native runtime and under gVisor, and across kills of the daemon.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use api::SandboxId;
use e2e::{
    CleanupGuard, Daemon, Expected, Rig, RigLayout, RigOptions, wait_for_resources, wait_until, with_rig,
};
use engine::{
    DetachedRequest, EngineError, ExecutionError, ExecutionId, ExecutionState, ExecutionStatus, OutputEvent,
    OutputReader, TerminalSize,
};
use rules::{AutoResume, OutputPosition};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");
const TIMEOUT: Duration = Duration::from_secs(60);

fn request(command: &str) -> DetachedRequest {
    DetachedRequest { command: command.to_owned(), auto_resume: true, ..DetachedRequest::default() }
}

fn on_terminal(command: &str) -> DetachedRequest {
    DetachedRequest { terminal: TerminalSize::new(80, 24), ..request(command) }
}

async fn detach(rig: &Rig, id: &SandboxId, request: DetachedRequest) -> ExecutionId {
    rig.engine.sandbox("test", id).start_detached(request).await.unwrap().id
}

/// The output from a position to the end.
async fn read(
    rig: &Rig,
    id: &SandboxId,
    execution: &ExecutionId,
    from: OutputPosition,
) -> (String, ExecutionStatus) {
    let mut reader = rig.engine.sandbox("test", id).follow(execution, from).await.unwrap();
    let mut text = Vec::new();
    loop {
        match tokio::time::timeout(TIMEOUT, reader.next()).await.unwrap().unwrap() {
            OutputEvent::Output { bytes, .. } => text.extend_from_slice(&bytes),
            OutputEvent::Dropped { position } => panic!("dropped up to {position}"),
            OutputEvent::Ended(status) => return (String::from_utf8(text).unwrap(), *status),
        }
    }
}

/// Reads until the output contains a text.
async fn read_until(reader: &mut OutputReader, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        match tokio::time::timeout(TIMEOUT, reader.next()).await {
            Ok(Ok(OutputEvent::Output { bytes, .. })) => text.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{wanted:?} did not follow {text:?}: {other:?}"),
        }
    }
    text
}

/// Detached commands and terminals with any isolation backend.
async fn check_detached_commands(rig: &Rig) {
    let id = rig.create().await.unwrap();
    let beginning = OutputPosition::default();

    let execution = detach(rig, &id, request("seq 1 20000; echo bad >&2; exit 3")).await;
    let (text, status) = read(rig, &id, &execution, beginning).await;
    let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert!(text.replace("bad\n", "") == expected, "{} bytes", text.len());
    assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(3)));
    let from = OutputPosition { stdout: 5, ..beginning };
    assert!(read(rig, &id, &execution, from).await.0.replace("bad\n", "") == expected[5..]);

    let terminal =
        detach(rig, &id, on_terminal("stty size; echo $TERM; [ -t 0 ] && [ -t 2 ] && echo all; exit 5"))
            .await;
    let (text, status) = read(rig, &id, &terminal, beginning).await;
    assert_eq!((text.as_str(), status.exit_code), ("24 80\r\nxterm-256color\r\nall\r\n", Some(5)));

    let terminal = detach(rig, &id, on_terminal("echo ready; exec sleep 6661")).await;
    let mut attached =
        rig.engine.sandbox("test", &id).attach(&terminal, beginning, AutoResume::Allowed).await.unwrap();
    read_until(&mut attached.output, "ready").await;
    drop(attached);
    let status = rig.engine.sandbox("test", &id).cancel(&terminal, AutoResume::Allowed).await.unwrap();
    assert_eq!((status.state, status.signal.as_deref()), (ExecutionState::Exited, Some("SIGKILL")));
    rig.engine.sandbox("test", &id).terminate("test").await.unwrap();
}

/// An interactive shell on a terminal.
async fn check_interactive_shell(rig: &Rig) {
    let id = rig.create().await.unwrap();
    let beginning = OutputPosition::default();
    let terminal = detach(rig, &id, on_terminal("")).await;
    let mut attached =
        rig.engine.sandbox("test", &id).attach(&terminal, beginning, AutoResume::Allowed).await.unwrap();
    let input = attached.input();
    // Wait for the prompt: an old gVisor treats input before bash reads as end of file.
    read_until(&mut attached.output, "# ").await;
    input.write(b"tty; stty size; echo $TERM; kept=yes\r").await.unwrap();
    let text = read_until(&mut attached.output, "xterm-256color\r\n").await;
    assert!(text.contains("/dev/pts/") && text.contains("24 80\r\n"), "{text:?}");
    input.resize(TerminalSize::new(100, 30).unwrap()).await.unwrap();
    input.write(b"stty size\r").await.unwrap();
    read_until(&mut attached.output, "30 100\r\n").await;
    input.write(b"sleep 4444\r").await.unwrap();
    read_until(&mut attached.output, "sleep 4444").await;
    wait_until("the program runs", async || {
        rig.run(&id, "pgrep -f 'sleep 444[4]'").await.unwrap().exit_code == Some(0)
    })
    .await;
    input.write(b"\x03").await.unwrap();
    input.write(b"echo kept $kept\r").await.unwrap();
    read_until(&mut attached.output, "kept yes\r\n").await;

    // The terminal works after a pause and a resume.
    rig.engine.sandbox("test", &id).pause().await.unwrap();
    rig.engine.sandbox("test", &id).resume().await.unwrap();
    input.write(b"echo again $kept\r").await.unwrap();
    read_until(&mut attached.output, "again yes\r\n").await;

    // Cancelling kills all its processes, also those that left the session.
    input.write(b"setsid sleep 5551 & sleep 5552 & echo beg''un\r").await.unwrap();
    read_until(&mut attached.output, "begun\r\n").await;
    let status = rig.engine.sandbox("test", &id).cancel(&terminal, AutoResume::Allowed).await.unwrap();
    assert_eq!((status.state, status.signal.as_deref()), (ExecutionState::Exited, Some("SIGKILL")));
    let left = rig.run(&id, "pgrep -f 'sleep 555[12]'").await.unwrap();
    assert_eq!((left.exit_code, left.stdout.as_str()), (Some(1), ""));
    drop((attached, input));
    rig.engine.sandbox("test", &id).terminate("test").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_commands_and_terminals_work_under_a_native_runtime() {
    with_rig(RigOptions::default(), async |rig| {
        check_detached_commands(rig).await;
        check_interactive_shell(rig).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_commands_work_under_gvisor() {
    with_rig(RigOptions::gvisor(), check_detached_commands).await;
}

/// The daemon is killed repeatedly; a reader that continues at its offset gets exactly the bytes of the command.
#[tokio::test(flavor = "multi_thread")]
async fn output_is_complete_across_kills_of_the_daemon() {
    let layout = RigLayout::unused();
    let _cleanup = CleanupGuard::new(&layout, &RigOptions::default());
    let mut daemon = Daemon::start(Path::new(VICTIM), &layout, 0, 64).unwrap();
    daemon.ready().await.unwrap();
    let id = daemon.expect_ok("create").await.unwrap();
    // Bursts that are longer than the credit, and single lines.
    let script =
        "for n in $(seq 1 150); do seq $((n * 1000)) $((n * 1000 + n * 10)); sleep 0.04; done; exit 7";
    let execution = daemon.expect_ok(&format!("detach {id} {script}")).await.unwrap();
    let expected: String =
        (1..=150u32).flat_map(|n| (n * 1000..=n * 1000 + n * 10).map(|line| format!("{line}\n"))).collect();

    let (mut position, mut text, mut kills) = ("0.0".to_owned(), String::new(), 0);
    let begun = Instant::now();
    let end = loop {
        assert!(begun.elapsed() < Duration::from_secs(180), "{} of {} bytes", text.len(), expected.len());
        let answer = daemon.expect_ok(&format!("output {id} {execution} {position}")).await.unwrap();
        let mut parts = answer.splitn(3, ' ');
        position = parts.next().unwrap().to_owned();
        let end = parts.next().unwrap().to_owned();
        text.push_str(parts.next().unwrap());
        assert!(expected.starts_with(&text), "after {kills} kills, at {position}");
        if end != "-" {
            break end;
        }
        if kills < 12 {
            kills += 1;
            daemon.kill().await.unwrap();
            if kills % 4 == 0 {
                // Long enough to fill the pipes and the agent's replay buffer, so that the command blocks.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            daemon = Daemon::start(Path::new(VICTIM), &layout, 0, 64).unwrap();
            assert_eq!(daemon.ready().await.unwrap().running, 1);
        }
    };
    assert!(kills > 3, "the command ended after {kills} kills");
    assert_eq!(end, "Exited:Some(7)");
    assert!(text == expected, "{} of {} bytes", text.len(), expected.len());
    // Read again from the beginning.
    let answer = daemon.expect_ok(&format!("output {id} {execution} 0.0")).await.unwrap();
    assert!(expected.starts_with(answer.splitn(3, ' ').nth(2).unwrap()));
    daemon.expect_ok(&format!("destroy {id}")).await.unwrap();
    let strays = wait_for_resources(&layout, &Expected { daemon: daemon.pid(), ..Expected::default() }).await;
    assert!(strays.is_empty(), "{}", strays.join("\n"));
    daemon.stop().await.unwrap();
}

/// A terminal continues across a clean restart of the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_continues_across_a_restart() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let id = rig.create().await.unwrap();
    let terminal = detach(&rig, &id, on_terminal("")).await;
    let mut attached = rig
        .engine
        .sandbox("test", &id)
        .attach(&terminal, OutputPosition::default(), AutoResume::Allowed)
        .await
        .unwrap();
    attached.input().write(b"kept=yes; echo fi''rst\r").await.unwrap();
    read_until(&mut attached.output, "first\r\n").await;
    drop(attached);
    let rig = rig.restart().await.unwrap();
    let status = rig.engine.sandbox("test", &id).execution(&terminal).await.unwrap();
    assert_eq!(status.state, ExecutionState::Running);
    let mut attached =
        rig.engine.sandbox("test", &id).attach(&terminal, status.output, AutoResume::Allowed).await.unwrap();
    attached.input().write(b"echo still $kept\r").await.unwrap();
    let text = read_until(&mut attached.output, "still yes\r\n").await;
    assert!(!text.contains("first"), "{text:?}");
    attached.input().write(b"exit 4\r").await.unwrap();
    let (_, status) = read(&rig, &id, &terminal, status.output).await;
    assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(4)));
    drop(attached);
    rig.clear().await.unwrap();
}

/// The agent reports an end before the log has it. Input in between is too late, and no failure of the sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn input_during_the_end_of_a_command_is_refused_as_too_late() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let id = rig.create().await.unwrap();
    for round in 0..40 {
        let terminal = detach(&rig, &id, on_terminal("exit 8")).await;
        let beginning = OutputPosition::default();
        let attached =
            rig.engine.sandbox("test", &id).attach(&terminal, beginning, AutoResume::Allowed).await;
        // Slower machines attach after the end.
        let Ok(attached) = attached else { continue };
        let input = attached.input();
        let typing = async {
            loop {
                if let Err(error) = input.write(b"x").await {
                    return error;
                }
            }
        };
        let error = tokio::time::timeout(TIMEOUT, typing).await.unwrap();
        assert!(
            matches!(error, EngineError::Execution(ExecutionError::Ended { .. })),
            "round {round}: {error}"
        );
    }
    rig.clear().await.unwrap();
}
