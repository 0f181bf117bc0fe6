//! Detached executions on a fake host: their status, their output, and their end or continuation when links,
//! sandboxes and daemons end.

use std::path::Path;
use std::time::Duration;

use api::SandboxId;
use driver::fake::{AgentMode, DriverOp, FakeDriver};
use engine::{
    Channel, DaemonError, DetachedRequest, DetachedSettings, EngineError, EngineSettings, ExecutionError,
    ExecutionId, ExecutionState, OutputEvent, SandboxError, TerminalSize,
};
use guest_proto::DETACHED_WINDOW;
use rules::{AutoResume, OutputPosition};
use store::{MemoryStore, Store};
use tempfile::TempDir;

use crate::harness::{Harness, START, config, pass, runtime, settings, settle};

const BEGINNING: OutputPosition = OutputPosition { stdout: 0, stderr: 0 };

fn request(command: &str) -> DetachedRequest {
    DetachedRequest { command: command.to_owned(), auto_resume: true, ..DetachedRequest::default() }
}

fn with_dir(dir: &TempDir) -> EngineSettings {
    EngineSettings { detached: DetachedSettings::in_dir(dir.path().join("executions")), ..settings() }
}

/// Daemons that run one after the other on the same host.
struct Host {
    dir: TempDir,
    driver: FakeDriver,
    store: MemoryStore,
}

impl Host {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), driver: FakeDriver::new(), store: MemoryStore::new() }
    }

    async fn open(&self) -> Harness {
        self.open_with(with_dir(&self.dir).detached).await
    }

    /// With logs that 1 MiB of output fills.
    async fn open_with_small_logs(&self) -> Harness {
        self.open_with(DetachedSettings { log_bytes: 1 << 20, ..with_dir(&self.dir).detached }).await
    }

    async fn open_with(&self, detached: DetachedSettings) -> Harness {
        self.store.open_again();
        let settings = EngineSettings { detached, ..settings() };
        Harness::over(self.driver.clone(), self.store.clone(), settings, START).await
    }
}

impl Harness {
    async fn detach(&self, id: &SandboxId, request: DetachedRequest) -> ExecutionId {
        let status = self.engine.sandbox("test", id).start_detached(request).await.unwrap();
        assert_eq!((status.state, status.output), (ExecutionState::Running, BEGINNING));
        status.id
    }

    async fn status(&self, id: &SandboxId, execution: &ExecutionId) -> engine::ExecutionStatus {
        self.engine.sandbox("test", id).execution(execution).await.unwrap()
    }

    /// All output from a position on, and the final status.
    async fn read(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        from: OutputPosition,
    ) -> ([Vec<u8>; 2], engine::ExecutionStatus) {
        let mut reader = self.engine.sandbox("test", id).follow(execution, from).await.unwrap();
        let mut bytes = [Vec::new(), Vec::new()];
        loop {
            match reader.next().await.unwrap() {
                OutputEvent::Output { channel, bytes: piece, .. } => {
                    bytes[channel as usize].extend_from_slice(&piece);
                }
                OutputEvent::Dropped { position } => panic!("dropped up to {position}"),
                OutputEvent::Ended(status) => return (bytes, *status),
            }
        }
    }
}

#[test]
fn an_execution_outlives_its_request_and_is_read_from_any_position() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let execution = harness.detach(&id, request("echo hello")).await;
        let ([stdout, stderr], status) = harness.read(&id, &execution, BEGINNING).await;
        assert_eq!((stdout.as_slice(), stderr.as_slice()), (b"hello\n".as_slice(), b"".as_slice()));
        assert_eq!(
            (status.state, status.exit_code, status.signal.as_deref()),
            (ExecutionState::Exited, Some(0), None)
        );
        assert_eq!(status.output, OutputPosition { stdout: 6, stderr: 0 });
        assert!(status.ended_at.is_some() && status.duration_ms.is_some());
        let from = OutputPosition { stdout: 4, stderr: 0 };
        assert_eq!(harness.read(&id, &execution, from).await.0[0], b"o\n");
        // A position beyond the end yields only the end.
        let from = OutputPosition { stdout: 400, stderr: 9 };
        assert_eq!(harness.read(&id, &execution, from).await.0[0], b"");
        settle().await;
        assert_eq!(
            harness.kinds(&id).await,
            ["sandbox.created", "sandbox.started", "exec.started", "exec.completed"]
        );
        let data = harness.events(&id).await.pop().unwrap().data;
        assert_eq!(data["executionId"], execution.as_str());
        assert_eq!((&data["stdoutBytes"], &data["exitCode"]), (&6.into(), &0.into()));
        harness.assert_clean().await;
    });
}

#[test]
fn an_execution_that_cannot_start_reports_the_reason() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let detached = DetachedRequest { cwd: Some("/missing".into()), ..request("true") };
        let status = harness.engine.sandbox("test", &id).start_detached(detached).await.unwrap();
        let ([_, stderr], status) = harness.read(&id, &status.id, BEGINNING).await;
        assert_eq!(stderr, b"the working directory does not exist\n");
        assert_eq!((status.state, status.exit_code, status.signal), (ExecutionState::Exited, None, None));
        settle().await;
        assert_eq!(harness.kinds(&id).await, ["sandbox.created", "sandbox.started", "exec.error"]);
        // Its slot is free.
        harness.output(&id, "true").await;
        harness.assert_clean().await;
    });
}

#[test]
fn input_is_written_and_closed() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let detached = DetachedRequest { stdin: Some("one ".into()), open_stdin: true, ..request("cat") };
        let execution = harness.detach(&id, detached).await;
        let input =
            harness.engine.sandbox("test", &id).write_stdin(&execution, AutoResume::Allowed).await.unwrap();
        input.write(b"two ").await.unwrap();
        input.clone().write(&vec![b'x'; 200_000]).await.unwrap();
        assert!(harness.engine.sandbox("test", &id).execution(&execution).await.unwrap().open_stdin);
        input.close().await.unwrap();
        let ([stdout, _], status) = harness.read(&id, &execution, BEGINNING).await;
        assert!(stdout.starts_with(b"one two xxx") && stdout.len() == 200_008, "{}", stdout.len());
        assert!(!status.open_stdin);
        assert!(matches!(input.write(b"x").await, Err(EngineError::Execution(ExecutionError::Ended { .. }))));
        let ended = harness.engine.sandbox("test", &id).write_stdin(&execution, AutoResume::Allowed).await;
        assert!(matches!(ended, Err(EngineError::Execution(ExecutionError::Ended { .. }))));

        // Without open stdin the initial stdin is all its input.
        let none = harness.detach(&id, request("sleep 1000")).await;
        let input =
            harness.engine.sandbox("test", &id).write_stdin(&none, AutoResume::Allowed).await.unwrap();
        assert!(matches!(
            input.write(b"x").await,
            Err(EngineError::Execution(ExecutionError::NoStdin { .. }))
        ));
        assert!(matches!(input.close().await, Err(EngineError::Execution(ExecutionError::NoStdin { .. }))));
        let size = TerminalSize::new(80, 24).unwrap();
        assert!(matches!(
            input.resize(size).await,
            Err(EngineError::Execution(ExecutionError::NoTerminal { .. }))
        ));
        let detached = DetachedRequest { stdin: Some("all".into()), ..request("cat") };
        let execution = harness.detach(&id, detached).await;
        assert_eq!(harness.read(&id, &execution, BEGINNING).await.0[0], b"all");
        drop(input);
        harness.assert_clean().await;
    });
}

#[test]
fn an_execution_holds_a_slot_of_detached_ones_until_it_ends() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let mut executions = Vec::new();
        for _ in 0..3 {
            executions.push(harness.detach(&id, request("sleep 1000")).await);
        }
        for terminal in [None, TerminalSize::new(80, 24)] {
            let request = DetachedRequest { terminal, ..request("true") };
            let refused = harness.engine.sandbox("test", &id).start_detached(request).await;
            let Err(EngineError::Execution(ExecutionError::TooMany(refused))) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!((refused.kind, refused.limit), (rules::SlotKind::Detached, 3));
        }
        // Attached commands have slots of their own.
        harness.output(&id, "true").await;
        let status =
            harness.engine.sandbox("test", &id).cancel(&executions[0], AutoResume::Allowed).await.unwrap();
        assert_eq!((status.state, status.signal.as_deref()), (ExecutionState::Exited, Some("SIGKILL")));
        assert_eq!(
            harness.engine.sandbox("test", &id).cancel(&executions[0], AutoResume::Allowed).await.unwrap(),
            status
        );
        harness.detach(&id, request("sleep 1000")).await;
        let listed = harness.engine.sandbox("test", &id).executions().await.unwrap();
        assert_eq!(listed.len(), 4);
        let unknown = ExecutionId::from_random([7; 20]);
        let missing = harness.engine.sandbox("test", &id).execution(&unknown).await;
        assert!(matches!(missing, Err(EngineError::Execution(ExecutionError::NotFound { .. }))));
        let others = harness.engine.sandbox("other", &id).executions().await;
        assert!(matches!(others, Err(EngineError::Sandbox(SandboxError::NotFound { .. }))));
        harness.assert_clean().await;
    });
}

#[test]
fn the_time_limit_ends_an_execution() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let detached = DetachedRequest { timeout_ms: Some(5000), ..request("sleep 1000") };
        let execution = harness.detach(&id, detached).await;
        pass(3000).await;
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        pass(60_000).await;
        harness.engine.sandbox("test", &id).resume().await.unwrap();
        pass(1500).await;
        assert_eq!(
            harness.engine.sandbox("test", &id).execution(&execution).await.unwrap().state,
            ExecutionState::Running
        );
        pass(1000).await;
        let status = harness.engine.sandbox("test", &id).execution(&execution).await.unwrap();
        assert_eq!((status.exit_code, status.signal.as_deref()), (None, Some("SIGKILL")));
        harness.assert_clean().await;
    });
}

#[test]
fn commands_and_attached_terminals_keep_a_sandbox_active() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let awake = api::SandboxConfig { idle_timeout_ms: 10_000, ..config() };
        let id = harness.create_with(awake.clone()).await.unwrap();
        let execution = harness.detach(&id, request("sleep 50")).await;
        pass(45_000).await;
        assert_eq!(harness.state(&id).await, Some(api::SandboxState::Running));
        pass(20_000).await;
        assert_eq!(harness.state(&id).await, Some(api::SandboxState::Paused));
        // Reading the status does not resume the sandbox.
        assert_eq!(harness.read(&id, &execution, BEGINNING).await.1.state, ExecutionState::Exited);
        assert_eq!(harness.state(&id).await, Some(api::SandboxState::Paused));

        let id = harness.create_with(awake).await.unwrap();
        let terminal = TerminalSize::new(80, 24);
        let execution = harness.detach(&id, DetachedRequest { terminal, ..request("cat") }).await;
        let attached = harness
            .engine
            .sandbox("test", &id)
            .attach(&execution, BEGINNING, AutoResume::Allowed)
            .await
            .unwrap();
        pass(60_000).await;
        assert_eq!(harness.state(&id).await, Some(api::SandboxState::Running));
        drop(attached);
        pass(11_000).await;
        assert_eq!(harness.state(&id).await, Some(api::SandboxState::Paused));
        let refused =
            harness.engine.sandbox("test", &id).attach(&execution, BEGINNING, AutoResume::Forbidden).await;
        assert!(matches!(refused, Err(EngineError::Sandbox(SandboxError::Refused(_)))));
        // It was frozen and continues.
        let mut attached = harness
            .engine
            .sandbox("test", &id)
            .attach(&execution, BEGINNING, AutoResume::Allowed)
            .await
            .unwrap();
        attached.input().write(b"typed").await.unwrap();
        let output = attached.output.next().await.unwrap();
        assert!(matches!(&output, OutputEvent::Output { bytes, .. } if &**bytes == b"typed"), "{output:?}");
        attached.input().resize(TerminalSize::new(100, 50).unwrap()).await.unwrap();
        let status = harness.engine.sandbox("test", &id).execution(&execution).await.unwrap();
        assert_eq!((status.terminal, status.open_stdin), (TerminalSize::new(100, 50), true));
        drop(attached);
        harness.assert_clean().await;
    });
}

#[test]
fn a_broken_link_loses_no_output() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let execution = harness.detach(&id, DetachedRequest { open_stdin: true, ..request("cat") }).await;
        let mut expected = Vec::new();
        let input =
            harness.engine.sandbox("test", &id).write_stdin(&execution, AutoResume::Allowed).await.unwrap();
        for n in 0..20 {
            let line = format!("line {n}\n");
            input.write(line.as_bytes()).await.unwrap();
            expected.extend_from_slice(line.as_bytes());
            settle().await;
            host.driver.hang_up(&id);
            pass(3000).await;
        }
        input.close().await.unwrap();
        let ([stdout, _], status) = harness.read(&id, &execution, BEGINNING).await;
        assert_eq!(String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&expected));
        assert_eq!(status.exit_code, Some(0));
        drop(input);
        harness.assert_clean().await;
    });
}

/// A pause during a reattach must not end the new link, which other requests use too.
#[test]
fn a_reattach_continues_after_a_pause() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let sandbox = harness.engine.sandbox("test", &id);
        let execution = harness.detach(&id, request("sleep 100")).await;
        // The reply to the greeting arrives after one second, that to the reattach after two.
        host.driver.set_agent_mode_of(&id, AgentMode::Slow(Duration::from_secs(1)));
        host.driver.hang_up(&id);
        pass(1500).await;
        let links = host.driver.calls(DriverOp::Connect);
        sandbox.pause().await.unwrap();
        pass(20_000).await;
        sandbox.resume().await.unwrap();
        pass(5000).await;
        assert_eq!(host.driver.calls(DriverOp::Connect), links);
        assert_eq!(harness.output(&id, "echo hi").await, "hi\n");
        pass(100_000).await;
        let status = sandbox.execution(&execution).await.unwrap();
        assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(0)));
        harness.assert_clean().await;
    });
}

#[test]
fn the_next_daemon_continues_an_execution() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let running = harness.detach(&id, request("sleep 100")).await;
        let printing = harness.detach(&id, DetachedRequest { open_stdin: true, ..request("cat") }).await;
        let over = harness.detach(&id, request("echo over")).await;
        harness
            .engine
            .sandbox("test", &id)
            .write_stdin(&printing, AutoResume::Allowed)
            .await
            .unwrap()
            .write(b"before ")
            .await
            .unwrap();
        let mut reader = harness.engine.sandbox("test", &id).follow(&printing, BEGINNING).await.unwrap();
        assert!(matches!(reader.next().await, Ok(OutputEvent::Output { .. })));
        assert_eq!(harness.read(&id, &over, BEGINNING).await.0[0], b"over\n");
        harness.engine.shutdown().await;
        assert!(matches!(reader.next().await, Err(EngineError::Daemon(DaemonError::Stopping))));
        drop((harness, reader));

        let harness = host.open().await;
        // Two executions hold their slots.
        let third = harness.detach(&id, request("sleep 1000")).await;
        let refused = harness.engine.sandbox("test", &id).start_detached(request("true")).await;
        assert!(matches!(refused, Err(EngineError::Execution(ExecutionError::TooMany(_)))));
        let input =
            harness.engine.sandbox("test", &id).write_stdin(&printing, AutoResume::Allowed).await.unwrap();
        input.write(b"after").await.unwrap();
        input.close().await.unwrap();
        let (bytes, status) = harness.read(&id, &printing, BEGINNING).await;
        assert_eq!((bytes[0].as_slice(), status.exit_code), (b"before after".as_slice(), Some(0)));
        assert_eq!(harness.read(&id, &over, BEGINNING).await.0[0], b"over\n");
        pass(101_000).await;
        let status = harness.engine.sandbox("test", &id).execution(&running).await.unwrap();
        assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(0)));
        harness.engine.sandbox("test", &id).cancel(&third, AutoResume::Allowed).await.unwrap();
        settle().await;
        // Each has one start event and one end event.
        let kinds = harness.kinds(&id).await;
        for (kind, n) in [("exec.started", 4), ("exec.completed", 4), ("exec.error", 0)] {
            assert_eq!(kinds.iter().filter(|found| *found == kind).count(), n, "{kind}: {kinds:?}");
        }
        drop(input);
        harness.assert_clean().await;
    });
}

#[test]
fn an_end_between_two_daemons_is_reported_to_the_second() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let execution = harness.detach(&id, request("sleep 5")).await;
        harness.engine.shutdown().await;
        drop(harness);
        pass(10_000).await;
        let harness = host.open().await;
        let (_, status) = harness.read(&id, &execution, BEGINNING).await;
        assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(0)));
        harness.assert_clean().await;
    });
}

/// The size of the last entry of a log, which marks the end event as recorded.
const END_EVENT_RECORDED_BYTES: u64 = 17;

#[test]
fn a_crash_during_an_event_neither_loses_nor_duplicates_it() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let count = async |harness: &Harness, kind: &str| {
            settle().await;
            harness.kinds(&id).await.iter().filter(|found| *found == kind).count()
        };
        // As if the daemon had crashed before it recorded the start event.
        host.store.close().await;
        harness.detach(&id, request("sleep 1000")).await;
        host.store.open_again();
        let over = harness.detach(&id, request("echo over")).await;
        harness.read(&id, &over, BEGINNING).await;
        assert_eq!((count(&harness, "exec.started").await, count(&harness, "exec.completed").await), (1, 1));
        harness.engine.shutdown().await;
        drop(harness);
        // As if it had crashed between the end event and the entry that marks it as recorded.
        let log = host.dir.path().join(format!("executions/{id}/{over}/log.0000000000"));
        let whole = log.metadata().unwrap().len();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&log)
            .unwrap()
            .set_len(whole - END_EVENT_RECORDED_BYTES)
            .unwrap();
        for _ in 0..2 {
            let harness = host.open().await;
            assert_eq!(
                (count(&harness, "exec.started").await, count(&harness, "exec.completed").await),
                (2, 1)
            );
            assert_eq!(log.metadata().unwrap().len(), whole, "the end event was not recorded again");
            harness.engine.shutdown().await;
        }
        // The end event of an execution is in the commit of the termination of its sandbox, so that a crash cannot separate them.
        let harness = host.open().await;
        settle().await;
        harness.engine.sandbox("test", &id).terminate("test").await.unwrap();
        let kinds = harness.kinds(&id).await;
        assert_eq!(kinds[kinds.len() - 2..], ["exec.completed", "sandbox.terminated"]);
        assert_eq!(count(&harness, "exec.completed").await, 2);
        harness.assert_clean().await;
    });
}

/// A daemon that has not reattached to an execution does not invent an outcome.
#[test]
fn an_execution_that_is_not_reattached_has_an_unknown_outcome() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        host.store.close().await;
        harness.detach(&id, request("sleep 1000")).await;
        host.store.open_again();
        harness.engine.shutdown().await;
        drop(harness);
        host.driver.set_agent_mode_of(&id, driver::fake::AgentMode::Deaf);
        let harness = host.open().await;
        harness.engine.sandbox("test", &id).terminate("test").await.unwrap();
        pass(60_000).await;
        let kinds = harness.kinds(&id).await;
        let of_it: Vec<_> = kinds.iter().filter(|kind| kind.starts_with("exec.")).collect();
        assert_eq!(of_it, ["exec.error"], "{kinds:?}");
        harness.assert_clean().await;
    });
}

#[test]
fn an_execution_is_lost_with_the_processes_of_its_sandbox() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let execution = harness.detach(&id, request("sleep 1000")).await;
        host.driver.crash(&id);
        let (_, status) = harness.read(&id, &execution, BEGINNING).await;
        assert_eq!((status.state, status.exit_code, status.duration_ms), (ExecutionState::Lost, None, None));
        assert!(status.message.is_some());
        let again = harness.detach(&id, request("sleep 1000")).await;
        harness.engine.shutdown().await;
        drop(harness);
        host.driver.reboot();
        let harness = host.open().await;
        assert_eq!(harness.read(&id, &again, BEGINNING).await.1.state, ExecutionState::Lost);
        settle().await;
        assert_eq!(harness.kinds(&id).await.iter().filter(|kind| *kind == "exec.error").count(), 2);
        harness.assert_clean().await;
    });
}

#[test]
fn executions_are_removed_with_their_sandbox() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let execution = harness.detach(&id, request("sleep 1000")).await;
        let mut reader = harness.engine.sandbox("test", &id).follow(&execution, BEGINNING).await.unwrap();
        harness.engine.sandbox("test", &id).terminate("test").await.unwrap();
        let OutputEvent::Ended(status) = reader.next().await.unwrap() else { panic!("no end") };
        assert_eq!((status.state, status.signal.as_deref()), (ExecutionState::Exited, Some("SIGKILL")));
        let gone = harness.engine.sandbox("test", &id).execution(&execution).await;
        assert!(matches!(gone, Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some(_) }))));
        harness.assert_clean().await;
        assert_eq!(std::fs::read_dir(host.dir.path().join("executions")).unwrap().count(), 0);
        // Also if the daemon crashed before the removal.
        let stray = host.dir.path().join("executions/sb_01234567890123456789/ex_0");
        std::fs::create_dir_all(&stray).unwrap();
        harness.engine.shutdown().await;
        drop(harness);
        let harness = host.open().await;
        assert_eq!(std::fs::read_dir(host.dir.path().join("executions")).unwrap().count(), 0);
        harness.assert_clean().await;
    });
}

#[test]
fn a_log_is_bounded_and_a_reader_gets_the_gap() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open_with_small_logs().await;
        let id = harness.create().await;
        let unread = DetachedRequest { reader_timeout_ms: Some(0), ..request("head -c 8000000 /dev/zero") };
        let execution = harness.detach(&id, unread).await;
        let status = loop {
            let status = harness.status(&id, &execution).await;
            if status.state == ExecutionState::Exited {
                break status;
            }
            pass(10).await;
        };
        assert_eq!(status.output.stdout, 8_000_000);
        assert!(status.oldest.stdout >= 7_000_000 && status.oldest.stdout < 8_000_000);
        let mut reader = harness.engine.sandbox("test", &id).follow(&execution, BEGINNING).await.unwrap();
        let Ok(OutputEvent::Dropped { position }) = reader.next().await else {
            panic!("nothing was dropped")
        };
        assert_eq!(position, status.oldest);
        let mut at = position;
        while let OutputEvent::Output { channel, bytes, position, .. } = reader.next().await.unwrap() {
            assert_eq!((channel, position.stdout), (Channel::Stdout, at.stdout + bytes.len() as u64));
            at = position;
        }
        assert_eq!(at.stdout, 8_000_000);
        harness.assert_clean().await;
    });
}

#[test]
fn a_command_waits_for_its_slowest_reader() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open_with_small_logs().await;
        let id = harness.create().await;
        let execution = harness.detach(&id, request("head -c 8000000 /dev/zero")).await;
        let mut slow = harness.engine.sandbox("test", &id).follow(&execution, BEGINNING).await.unwrap();
        let OutputEvent::Output { bytes, .. } = slow.next().await.unwrap() else { panic!("no output") };
        let mut read = bytes.len();
        let fast = async {
            let (bytes, status) = harness.read(&id, &execution, BEGINNING).await;
            (bytes[0].len(), status.exit_code)
        };
        let slow = async {
            // Longer than any timeout of a reader that is absent.
            pass(600_000).await;
            let status = harness.status(&id, &execution).await;
            assert_eq!((status.state, status.oldest), (ExecutionState::Running, BEGINNING));
            assert!(status.output.stdout < 1_300_000, "{}", status.output);
            loop {
                match slow.next().await.unwrap() {
                    OutputEvent::Output { bytes, .. } => read += bytes.len(),
                    OutputEvent::Dropped { position } => panic!("dropped up to {position}"),
                    OutputEvent::Ended(status) => return (read, status.exit_code),
                }
            }
        };
        let (fast, slow) = tokio::join!(fast, slow);
        assert_eq!((fast, slow), ((8_000_000, Some(0)), (8_000_000, Some(0))));
        harness.assert_clean().await;
    });
}

#[test]
fn a_command_waits_for_a_reader_that_is_absent() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open_with_small_logs().await;
        let id = harness.create().await;
        // Nobody has come yet.
        let execution = harness.detach(&id, request("head -c 4000000 /dev/zero")).await;
        pass(100_000).await;
        let (bytes, _) = harness.read(&id, &execution, BEGINNING).await;
        assert_eq!(bytes[0].len(), 4_000_000);

        // A reader loses its connection, and what was on its way.
        let execution = harness.detach(&id, request("head -c 4000000 /dev/zero")).await;
        let mut reader = harness.engine.sandbox("test", &id).follow(&execution, BEGINNING).await.unwrap();
        let mut received = BEGINNING;
        while received.stdout < 2_000_000 {
            let OutputEvent::Output { position, .. } = reader.next().await.unwrap() else {
                panic!("dropped")
            };
            received = position;
        }
        drop(reader);
        pass(100_000).await;
        received.stdout -= 400_000;
        let (bytes, _) = harness.read(&id, &execution, received).await;
        assert_eq!(received.stdout + bytes[0].len() as u64, 4_000_000);

        // The daemon is replaced meanwhile.
        let execution = harness.detach(&id, request("head -c 4000000 /dev/zero")).await;
        pass(1000).await;
        harness.engine.shutdown().await;
        drop(harness);
        let harness = host.open_with_small_logs().await;
        pass(100_000).await;
        assert_eq!(harness.read(&id, &execution, BEGINNING).await.0[0].len(), 4_000_000);

        // Nobody comes within the timeout.
        let execution = harness.detach(&id, request("head -c 4000000 /dev/zero")).await;
        pass(110_000).await;
        assert_eq!(harness.status(&id, &execution).await.oldest, BEGINNING);
        pass(20_000).await;
        let status = harness.status(&id, &execution).await;
        assert!(status.state == ExecutionState::Exited && status.oldest.stdout > 2_000_000, "{status:?}");
        harness.assert_clean().await;
    });
}

/// A server whose output nobody reads must not stall after each restart of the daemon.
#[test]
fn the_next_daemon_does_not_wait_for_a_reader_that_never_came() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open_with_small_logs().await;
        let id = harness.create().await;
        let script = "head -c 4000000 /dev/zero; sleep 200; head -c 4000000 /dev/zero";
        let execution = harness.detach(&id, request(script)).await;
        pass(130_000).await;
        assert_eq!(harness.status(&id, &execution).await.output.stdout, 4_000_000);
        harness.engine.shutdown().await;
        drop(harness);
        let harness = host.open_with_small_logs().await;
        pass(80_000).await;
        let status = harness.status(&id, &execution).await;
        assert_eq!((status.state, status.output.stdout), (ExecutionState::Exited, 8_000_000));
        harness.assert_clean().await;
    });
}

/// A command waits to print, but not to end.
#[test]
fn the_end_of_a_command_does_not_wait_for_readers() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open_with_small_logs().await;
        let id = harness.create().await;
        // Some of them end when their log is full.
        for bytes in (980_000..1_120_000).step_by(10_000) {
            let execution = harness.detach(&id, request(&format!("head -c {bytes} /dev/zero"))).await;
            pass(1000).await;
            let status = harness.status(&id, &execution).await;
            // The rest is more than the agent may send before the log has it.
            let is_waiting = status.output.stdout + u64::from(DETACHED_WINDOW / 2) < bytes;
            assert!(is_waiting || status.state == ExecutionState::Exited, "{bytes}: {status:?}");
            let (output, _) = harness.read(&id, &execution, BEGINNING).await;
            assert_eq!(output[0].len() as u64, bytes);
        }
        harness.assert_clean().await;
    });
}

/// A command that waits for a reader can be killed, and the reader gets what it had printed.
#[test]
fn a_waiting_command_is_killed_without_its_reader() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open_with_small_logs().await;
        let id = harness.create().await;
        let sandbox = harness.engine.sandbox("test", &id);
        let script = "head -c 1500000 /dev/zero; sleep 1000";
        let by_request = harness.detach(&id, request(script)).await;
        let by_timeout =
            harness.detach(&id, DetachedRequest { timeout_ms: Some(5000), ..request(script) }).await;
        let with_sandbox = harness.detach(&id, request("head -c 4000000 /dev/zero; sleep 1000")).await;
        let mut readers = Vec::new();
        for execution in [&by_request, &by_timeout, &with_sandbox] {
            readers.push(sandbox.follow(execution, BEGINNING).await.unwrap());
        }
        pass(1000).await;
        assert_eq!(
            sandbox.cancel(&by_request, AutoResume::Allowed).await.unwrap().signal.as_deref(),
            Some("SIGKILL")
        );
        pass(5000).await;
        assert_eq!(harness.status(&id, &by_timeout).await.signal.as_deref(), Some("SIGKILL"));
        for reader in &mut readers[..2] {
            let mut read = 0;
            while let OutputEvent::Output { bytes, .. } = reader.next().await.unwrap() {
                read += bytes.len();
            }
            assert_eq!(read, 1_500_000);
        }
        assert_eq!(harness.status(&id, &with_sandbox).await.state, ExecutionState::Running);
        sandbox.terminate("test").await.unwrap();
        let last = async { while !matches!(readers[2].next().await, Ok(OutputEvent::Ended(_))) {} };
        tokio::time::timeout(Duration::from_secs(60), last).await.unwrap();
        harness.assert_clean().await;
    });
}

/// The output of a finished execution with an unreadable log does not look complete.
#[test]
fn lost_output_is_a_gap_before_the_end() {
    runtime().block_on(async {
        for spoil in [|log: &Path| std::fs::remove_file(log), |log: &Path| std::fs::write(log, "no log")] {
            let host = Host::new();
            let harness = host.open().await;
            let id = harness.create().await;
            let execution = harness.detach(&id, request("echo something")).await;
            harness.read(&id, &execution, BEGINNING).await;
            spoil(&host.dir.path().join(format!("executions/{id}/{execution}/log.0000000000"))).unwrap();
            let mut reader = harness.engine.sandbox("test", &id).follow(&execution, BEGINNING).await.unwrap();
            let position = OutputPosition { stdout: 10, stderr: 0 };
            assert_eq!(reader.next().await.unwrap(), OutputEvent::Dropped { position });
            assert!(
                matches!(reader.next().await, Ok(OutputEvent::Ended(status)) if status.output == position)
            );
            // A reader at the end misses nothing.
            let mut reader = harness.engine.sandbox("test", &id).follow(&execution, position).await.unwrap();
            assert!(matches!(reader.next().await, Ok(OutputEvent::Ended(_))));
            harness.assert_clean().await;
        }
    });
}

#[test]
fn finished_executions_are_kept_up_to_a_number() {
    runtime().block_on(async {
        let host = Host::new();
        let few = DetachedSettings { max_ended: 3, ..with_dir(&host.dir).detached };
        let settings = EngineSettings { detached: few, ..settings() };
        let harness = Harness::over(host.driver.clone(), host.store.clone(), settings, START).await;
        let id = harness.create().await;
        let mut all = Vec::new();
        for n in 0..8 {
            let execution = harness.detach(&id, request(&format!("echo {n}"))).await;
            harness.read(&id, &execution, BEGINNING).await;
            all.push(execution);
            pass(1000).await;
        }
        let listed = harness.engine.sandbox("test", &id).executions().await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|status| status.id).collect();
        all.reverse();
        assert_eq!(listed, all[..4]);
        let on_disk =
            std::fs::read_dir(host.dir.path().join("executions").join(id.as_str())).unwrap().count();
        assert_eq!(on_disk, 4);
        harness.assert_clean().await;
    });
}

/// New executions must not take the output from a slow reader of an ended one.
#[test]
fn output_that_is_being_read_is_kept() {
    runtime().block_on(async {
        let host = Host::new();
        let few = DetachedSettings { max_ended: 1, ..with_dir(&host.dir).detached };
        let harness = host.open_with(few).await;
        let id = harness.create().await;
        let read = harness.detach(&id, request("echo slowly read")).await;
        let mut reader = harness.engine.sandbox("test", &id).follow(&read, BEGINNING).await.unwrap();
        let start = async || {
            pass(20_000).await;
            let execution = harness.detach(&id, request("echo other")).await;
            harness.read(&id, &execution, BEGINNING).await;
        };
        for _ in 0..3 {
            start().await;
        }
        assert_eq!(harness.status(&id, &read).await.state, ExecutionState::Exited);
        assert!(matches!(reader.next().await, Ok(OutputEvent::Output { .. })));
        assert!(matches!(reader.next().await, Ok(OutputEvent::Ended(_))));
        start().await;
        let gone = harness.engine.sandbox("test", &id).execution(&read).await;
        assert!(matches!(gone, Err(EngineError::Execution(ExecutionError::NotFound { .. }))));
        harness.assert_clean().await;
    });
}

/// The size includes the command, which may be long.
#[test]
fn finished_executions_are_kept_up_to_a_size() {
    runtime().block_on(async {
        let host = Host::new();
        let small = DetachedSettings { total_bytes: 130_000, ..with_dir(&host.dir).detached };
        let settings = EngineSettings { detached: small, ..settings() };
        let harness = Harness::over(host.driver.clone(), host.store.clone(), settings, START).await;
        let id = harness.create().await;
        for _ in 0..6 {
            let execution = harness.detach(&id, request(&format!("echo {}", "x".repeat(40_000)))).await;
            harness.read(&id, &execution, BEGINNING).await;
            pass(1000).await;
        }
        // The last one within the limit, and the one after it.
        assert_eq!(harness.engine.sandbox("test", &id).executions().await.unwrap().len(), 2);
        harness.assert_clean().await;
    });
}

#[test]
fn a_long_stdin_arrives_complete_over_broken_links() {
    runtime().block_on(async {
        let host = Host::new();
        let harness = host.open().await;
        let id = harness.create().await;
        let text: String = (0..150_000).map(|n| format!("{n:06}\n")).collect();
        let execution =
            harness.detach(&id, DetachedRequest { stdin: Some(text.clone()), ..request("cat") }).await;
        for _ in 0..5 {
            settle().await;
            host.driver.hang_up(&id);
            pass(3000).await;
        }
        let (bytes, status) = harness.read(&id, &execution, BEGINNING).await;
        assert!(bytes[0] == text.as_bytes(), "{} bytes of {}", bytes[0].len(), text.len());
        assert_eq!(status.exit_code, Some(0));
        harness.assert_clean().await;
    });
}

#[test]
fn hostile_agents_harm_only_their_own_executions() {
    runtime().block_on(async {
        for mode in [
            AgentMode::Garbage { after: 3 },
            AgentMode::Huge { after: 3 },
            AgentMode::HangUp { after: 3 },
            AgentMode::Deaf,
            AgentMode::Silent,
            AgentMode::Stranger,
            AgentMode::Slow(Duration::from_millis(5)),
        ] {
            let host = Host::new();
            let harness = host.open().await;
            let (id, other) = (harness.create().await, harness.create().await);
            let execution = harness.detach(&id, request("sleep 3")).await;
            host.driver.set_agent_mode_of(&id, mode);
            host.driver.hang_up(&id);
            pass(60_000).await;
            assert_eq!(harness.output(&other, "echo served").await, "served\n", "{mode:?}");
            // Whatever the agent reports, the execution is running, ended or lost, and its log can be read.
            let status = harness.engine.sandbox("test", &id).execution(&execution).await.unwrap();
            assert_eq!(status.output, BEGINNING, "{mode:?}");
            harness.assert_clean().await;
        }
    });
}
