//! Executions that outlive their requests, on a fake host: what is said of them, what is read of them, and what becomes of them when
//! links, sandboxes and daemons end.

use std::path::Path;
use std::time::Duration;

use api::SandboxId;
use driver::fake::FakeDriver;
use engine::{
    Channel, DetachedRequest, DetachedSettings, EngineError, EngineSettings, ExecutionId, ExecutionState,
    Followed, TerminalSize,
};
use rules::OutputPosition;
use store::{MemoryStore, Store};
use tempfile::TempDir;

use crate::world::{START, World, config, pass, runtime, settings, settle};

const BEGINNING: OutputPosition = OutputPosition { stdout: 0, stderr: 0 };

fn request(command: &str) -> DetachedRequest {
    DetachedRequest { command: command.to_owned(), auto_resume: true, ..DetachedRequest::default() }
}

fn with_dir(dir: &TempDir) -> EngineSettings {
    EngineSettings { detached: DetachedSettings::in_dir(dir.path().join("executions")), ..settings() }
}

/// One daemon after the other on the same things.
struct Host {
    dir: TempDir,
    driver: FakeDriver,
    store: MemoryStore,
}

impl Host {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), driver: FakeDriver::new(), store: MemoryStore::new() }
    }

    async fn open(&self) -> World {
        self.store.open_again();
        World::over(self.driver.clone(), self.store.clone(), with_dir(&self.dir), START).await
    }
}

impl World {
    async fn detach(&self, id: &SandboxId, request: DetachedRequest) -> ExecutionId {
        let status = self.engine.start_detached("test", id, request).await.unwrap();
        assert_eq!((status.state, status.output), (ExecutionState::Running, BEGINNING));
        status.id
    }

    /// All there is from a position to the end, and the end.
    async fn read(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        from: OutputPosition,
    ) -> ([Vec<u8>; 2], engine::ExecutionStatus) {
        let mut reader = self.engine.follow("test", id, execution, from).await.unwrap();
        let mut bytes = [Vec::new(), Vec::new()];
        loop {
            match reader.next().await.unwrap() {
                Followed::Output { channel, bytes: piece, .. } => {
                    bytes[channel as usize].extend_from_slice(&piece);
                }
                Followed::Dropped { position } => panic!("dropped up to {position}"),
                Followed::Ended(status) => return (bytes, status),
            }
        }
    }
}

#[test]
fn one_runs_on_and_is_read_from_anywhere() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let execution = world.detach(&id, request("echo hello")).await;
        let ([stdout, stderr], status) = world.read(&id, &execution, BEGINNING).await;
        assert_eq!((stdout.as_slice(), stderr.as_slice()), (b"hello\n".as_slice(), b"".as_slice()));
        assert_eq!(
            (status.state, status.exit_code, status.signal.as_deref()),
            (ExecutionState::Exited, Some(0), None)
        );
        assert_eq!(status.output, OutputPosition { stdout: 6, stderr: 0 });
        assert!(status.ended_at.is_some() && status.duration_ms.is_some());
        let from = OutputPosition { stdout: 4, stderr: 0 };
        assert_eq!(world.read(&id, &execution, from).await.0[0], b"o\n");
        // From beyond its end there is nothing but the end.
        let from = OutputPosition { stdout: 400, stderr: 9 };
        assert_eq!(world.read(&id, &execution, from).await.0[0], b"");
        settle().await;
        assert_eq!(
            world.kinds(&id).await,
            ["sandbox.created", "sandbox.started", "exec.started", "exec.completed"]
        );
        let data = world.events(&id).await.pop().unwrap().data;
        assert_eq!(data["executionId"], execution.as_str());
        assert_eq!((&data["stdoutBytes"], &data["exitCode"]), (&6.into(), &0.into()));
        world.is_clean().await;
    });
}

#[test]
fn one_that_cannot_start_says_why_as_others_do() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let asked = DetachedRequest { cwd: Some("/missing".into()), ..request("true") };
        let status = world.engine.start_detached("test", &id, asked).await.unwrap();
        let ([_, stderr], status) = world.read(&id, &status.id, BEGINNING).await;
        assert_eq!(stderr, b"the working directory does not exist\n");
        assert_eq!((status.state, status.exit_code, status.signal), (ExecutionState::Exited, None, None));
        settle().await;
        assert_eq!(world.kinds(&id).await, ["sandbox.created", "sandbox.started", "exec.error"]);
        // Its place is free.
        world.output(&id, "true").await;
        world.is_clean().await;
    });
}

#[test]
fn input_is_written_and_closed() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let asked = DetachedRequest { stdin: Some("one ".into()), open_stdin: true, ..request("cat") };
        let execution = world.detach(&id, asked).await;
        let input = world.engine.write_stdin("test", &id, &execution, true).await.unwrap();
        input.write(b"two ").await.unwrap();
        input.clone().write(&vec![b'x'; 200_000]).await.unwrap();
        assert!(world.engine.execution("test", &id, &execution).await.unwrap().open_stdin);
        input.close().await.unwrap();
        let ([stdout, _], status) = world.read(&id, &execution, BEGINNING).await;
        assert!(stdout.starts_with(b"one two xxx") && stdout.len() == 200_008, "{}", stdout.len());
        assert!(!status.open_stdin);
        assert!(matches!(input.write(b"x").await, Err(EngineError::ExecutionEnded { .. })));
        let ended = world.engine.write_stdin("test", &id, &execution, true).await;
        assert!(matches!(ended, Err(EngineError::ExecutionEnded { .. })));

        // Without one there is nothing to write to, and what it began with is all.
        let none = world.detach(&id, request("sleep 1000")).await;
        let input = world.engine.write_stdin("test", &id, &none, true).await.unwrap();
        assert!(matches!(input.write(b"x").await, Err(EngineError::NoStdin { .. })));
        assert!(matches!(input.close().await, Err(EngineError::NoStdin { .. })));
        let size = TerminalSize::new(80, 24).unwrap();
        assert!(matches!(input.resize(size).await, Err(EngineError::NoTerminal { .. })));
        let asked = DetachedRequest { stdin: Some("all".into()), ..request("cat") };
        let execution = world.detach(&id, asked).await;
        assert_eq!(world.read(&id, &execution, BEGINNING).await.0[0], b"all");
        drop(input);
        world.is_clean().await;
    });
}

#[test]
fn it_has_a_place_among_the_commands_and_gives_it_back() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let mut executions = Vec::new();
        for _ in 0..3 {
            executions.push(world.detach(&id, request("sleep 1000")).await);
        }
        let refused = world.engine.start_detached("test", &id, request("true")).await;
        assert!(matches!(refused, Err(EngineError::TooManyExecutions(_))));
        assert!(matches!(world.run(&id, "true").await, Err(EngineError::TooManyExecutions(_))));
        let status = world.engine.cancel("test", &id, &executions[0], true).await.unwrap();
        assert_eq!((status.state, status.signal.as_deref()), (ExecutionState::Exited, Some("SIGKILL")));
        assert_eq!(world.engine.cancel("test", &id, &executions[0], true).await.unwrap(), status);
        world.output(&id, "true").await;
        let listed = world.engine.executions("test", &id).await.unwrap();
        assert_eq!(listed.len(), 3);
        let unknown = ExecutionId::from_random([7; 20]);
        let missing = world.engine.execution("test", &id, &unknown).await;
        assert!(matches!(missing, Err(EngineError::NoSuchExecution { .. })));
        let others = world.engine.executions("other", &id).await;
        assert!(matches!(others, Err(EngineError::NotFound { .. })));
        world.is_clean().await;
    });
}

#[test]
fn time_ends_it() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let asked = DetachedRequest { timeout_ms: Some(5000), ..request("sleep 1000") };
        let execution = world.detach(&id, asked).await;
        pass(3000).await;
        world.engine.pause("test", &id).await.unwrap();
        pass(60_000).await;
        world.engine.resume("test", &id).await.unwrap();
        pass(1500).await;
        assert_eq!(
            world.engine.execution("test", &id, &execution).await.unwrap().state,
            ExecutionState::Running
        );
        pass(1000).await;
        let status = world.engine.execution("test", &id, &execution).await.unwrap();
        assert_eq!((status.exit_code, status.signal.as_deref()), (None, Some("SIGKILL")));
        world.is_clean().await;
    });
}

#[test]
fn a_command_keeps_its_sandbox_awake_and_a_terminal_only_for_who_is_at_it() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let awake = api::SandboxConfig { idle_timeout_ms: 10_000, ..config() };
        let id = world.create_with(awake.clone()).await.unwrap();
        let execution = world.detach(&id, request("sleep 50")).await;
        pass(45_000).await;
        assert_eq!(world.state(&id).await, Some(api::SandboxState::Running));
        pass(20_000).await;
        assert_eq!(world.state(&id).await, Some(api::SandboxState::Paused));
        // To look at it wakes nobody.
        assert_eq!(world.read(&id, &execution, BEGINNING).await.1.state, ExecutionState::Exited);
        assert_eq!(world.state(&id).await, Some(api::SandboxState::Paused));

        let id = world.create_with(awake).await.unwrap();
        let terminal = TerminalSize::new(80, 24);
        let execution = world.detach(&id, DetachedRequest { terminal, ..request("cat") }).await;
        let attached = world.engine.attach("test", &id, &execution, BEGINNING, true).await.unwrap();
        pass(60_000).await;
        assert_eq!(world.state(&id).await, Some(api::SandboxState::Running));
        drop(attached);
        pass(11_000).await;
        assert_eq!(world.state(&id).await, Some(api::SandboxState::Paused));
        let refused = world.engine.attach("test", &id, &execution, BEGINNING, false).await;
        assert!(matches!(refused, Err(EngineError::Refused(_))));
        // It froze, and goes on.
        let mut attached = world.engine.attach("test", &id, &execution, BEGINNING, true).await.unwrap();
        attached.input().write(b"typed").await.unwrap();
        let said = attached.output.next().await.unwrap();
        assert!(matches!(&said, Followed::Output { bytes, .. } if &**bytes == b"typed"), "{said:?}");
        attached.input().resize(TerminalSize::new(100, 50).unwrap()).await.unwrap();
        let status = world.engine.execution("test", &id, &execution).await.unwrap();
        assert_eq!((status.terminal, status.open_stdin), (TerminalSize::new(100, 50), true));
        drop(attached);
        world.is_clean().await;
    });
}

#[test]
fn a_link_that_breaks_loses_nothing() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let execution = world.detach(&id, DetachedRequest { open_stdin: true, ..request("cat") }).await;
        let mut expected = Vec::new();
        let input = world.engine.write_stdin("test", &id, &execution, true).await.unwrap();
        for n in 0..20 {
            let line = format!("line {n}\n");
            input.write(line.as_bytes()).await.unwrap();
            expected.extend_from_slice(line.as_bytes());
            settle().await;
            host.driver.hang_up(&id);
            pass(3000).await;
        }
        input.close().await.unwrap();
        let ([stdout, _], status) = world.read(&id, &execution, BEGINNING).await;
        assert_eq!(String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&expected));
        assert_eq!(status.exit_code, Some(0));
        drop(input);
        world.is_clean().await;
    });
}

#[test]
fn another_daemon_goes_on_with_it() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let running = world.detach(&id, request("sleep 100")).await;
        let printing = world.detach(&id, DetachedRequest { open_stdin: true, ..request("cat") }).await;
        let over = world.detach(&id, request("echo over")).await;
        world
            .engine
            .write_stdin("test", &id, &printing, true)
            .await
            .unwrap()
            .write(b"before ")
            .await
            .unwrap();
        let mut reader = world.engine.follow("test", &id, &printing, BEGINNING).await.unwrap();
        assert!(matches!(reader.next().await, Ok(Followed::Output { .. })));
        assert_eq!(world.read(&id, &over, BEGINNING).await.0[0], b"over\n");
        world.engine.shutdown().await;
        assert!(matches!(reader.next().await, Err(EngineError::Stopping)));
        drop((world, reader));

        let world = host.open().await;
        // Two hold their places.
        let third = world.detach(&id, request("sleep 1000")).await;
        assert!(matches!(world.run(&id, "true").await, Err(EngineError::TooManyExecutions(_))));
        let input = world.engine.write_stdin("test", &id, &printing, true).await.unwrap();
        input.write(b"after").await.unwrap();
        input.close().await.unwrap();
        let (bytes, status) = world.read(&id, &printing, BEGINNING).await;
        assert_eq!((bytes[0].as_slice(), status.exit_code), (b"before after".as_slice(), Some(0)));
        assert_eq!(world.read(&id, &over, BEGINNING).await.0[0], b"over\n");
        pass(101_000).await;
        let status = world.engine.execution("test", &id, &running).await.unwrap();
        assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(0)));
        world.engine.cancel("test", &id, &third, true).await.unwrap();
        settle().await;
        // Each has one beginning and one end among the events.
        let kinds = world.kinds(&id).await;
        for (kind, n) in [("exec.started", 4), ("exec.completed", 4), ("exec.error", 0)] {
            assert_eq!(kinds.iter().filter(|found| *found == kind).count(), n, "{kind}: {kinds:?}");
        }
        drop(input);
        world.is_clean().await;
    });
}

#[test]
fn what_ended_while_no_daemon_was_there_is_told_to_the_next() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let execution = world.detach(&id, request("sleep 5")).await;
        world.engine.shutdown().await;
        drop(world);
        pass(10_000).await;
        let world = host.open().await;
        let (_, status) = world.read(&id, &execution, BEGINNING).await;
        assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(0)));
        world.is_clean().await;
    });
}

/// Bytes of the last entry of a log, which says that the event of the end is noted.
const TOLD: u64 = 17;

#[test]
fn the_death_of_a_daemon_in_the_moment_of_an_event_neither_loses_nor_doubles_it() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let count = async |world: &World, kind: &str| {
            settle().await;
            world.kinds(&id).await.iter().filter(|found| *found == kind).count()
        };
        // As though the daemon had died before it told of the start.
        host.store.close().await;
        world.detach(&id, request("sleep 1000")).await;
        host.store.open_again();
        let over = world.detach(&id, request("echo over")).await;
        world.read(&id, &over, BEGINNING).await;
        assert_eq!((count(&world, "exec.started").await, count(&world, "exec.completed").await), (1, 1));
        world.engine.shutdown().await;
        drop(world);
        // As though it had died between the event of the end and the entry that says so.
        let log = host.dir.path().join(format!("executions/{id}/{over}/log.0000000000"));
        let whole = log.metadata().unwrap().len();
        std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(whole - TOLD).unwrap();
        for _ in 0..2 {
            let world = host.open().await;
            assert_eq!((count(&world, "exec.started").await, count(&world, "exec.completed").await), (2, 1));
            assert_eq!(log.metadata().unwrap().len(), whole, "it was not told again");
            world.engine.shutdown().await;
        }
        // What ends with its sandbox is told in the commit of that end, so that no death comes between.
        let world = host.open().await;
        settle().await;
        world.engine.terminate("test", &id, "test").await.unwrap();
        let kinds = world.kinds(&id).await;
        assert_eq!(kinds[kinds.len() - 2..], ["exec.completed", "sandbox.terminated"]);
        assert_eq!(count(&world, "exec.completed").await, 2);
        world.is_clean().await;
    });
}

/// A daemon that has not heard of it since the one before died does not make up an end.
#[test]
fn what_is_not_heard_of_again_before_its_sandbox_ends_has_an_unknown_end() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        host.store.close().await;
        world.detach(&id, request("sleep 1000")).await;
        host.store.open_again();
        world.engine.shutdown().await;
        drop(world);
        host.driver.set_manner_of(&id, driver::fake::Manner::Deaf);
        let world = host.open().await;
        world.engine.terminate("test", &id, "test").await.unwrap();
        pass(60_000).await;
        let kinds = world.kinds(&id).await;
        let of_it: Vec<_> = kinds.iter().filter(|kind| kind.starts_with("exec.")).collect();
        assert_eq!(of_it, ["exec.error"], "{kinds:?}");
        world.is_clean().await;
    });
}

#[test]
fn with_the_processes_of_its_sandbox_it_is_lost() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let execution = world.detach(&id, request("sleep 1000")).await;
        host.driver.crash(&id);
        let (_, status) = world.read(&id, &execution, BEGINNING).await;
        assert_eq!((status.state, status.exit_code, status.duration_ms), (ExecutionState::Lost, None, None));
        assert!(status.message.is_some());
        let again = world.detach(&id, request("sleep 1000")).await;
        world.engine.shutdown().await;
        drop(world);
        host.driver.reboot();
        let world = host.open().await;
        assert_eq!(world.read(&id, &again, BEGINNING).await.1.state, ExecutionState::Lost);
        settle().await;
        assert_eq!(world.kinds(&id).await.iter().filter(|kind| *kind == "exec.error").count(), 2);
        world.is_clean().await;
    });
}

#[test]
fn it_goes_with_its_sandbox() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let execution = world.detach(&id, request("sleep 1000")).await;
        let mut reader = world.engine.follow("test", &id, &execution, BEGINNING).await.unwrap();
        world.engine.terminate("test", &id, "test").await.unwrap();
        let Followed::Ended(status) = reader.next().await.unwrap() else { panic!("no end") };
        assert_eq!((status.state, status.signal.as_deref()), (ExecutionState::Exited, Some("SIGKILL")));
        let gone = world.engine.execution("test", &id, &execution).await;
        assert!(matches!(gone, Err(EngineError::NotFound { terminated: Some(_) })));
        world.is_clean().await;
        assert_eq!(std::fs::read_dir(host.dir.path().join("executions")).unwrap().count(), 0);
        // Also where the daemon died before it could remove it.
        let stray = host.dir.path().join("executions/sb_01234567890123456789/ex_0");
        std::fs::create_dir_all(&stray).unwrap();
        world.engine.shutdown().await;
        drop(world);
        let world = host.open().await;
        assert_eq!(std::fs::read_dir(host.dir.path().join("executions")).unwrap().count(), 0);
        world.is_clean().await;
    });
}

#[test]
fn a_log_is_bounded_and_a_reader_is_told_where_it_goes_on() {
    runtime().block_on(async {
        let host = Host::new();
        let bounded = DetachedSettings { log_bytes: 1 << 20, ..with_dir(&host.dir).detached };
        let settings = EngineSettings { detached: bounded, ..settings() };
        let world = World::over(host.driver.clone(), host.store.clone(), settings, START).await;
        let id = world.create().await;
        let execution = world.detach(&id, request("head -c 8000000 /dev/zero")).await;
        let end = async |world: &World| loop {
            let status = world.engine.execution("test", &id, &execution).await.unwrap();
            if status.state == ExecutionState::Exited {
                return status;
            }
            pass(10).await;
        };
        let status = end(&world).await;
        assert_eq!(status.output.stdout, 8_000_000);
        assert!(status.oldest.stdout >= 7_000_000 && status.oldest.stdout < 8_000_000);
        let mut reader = world.engine.follow("test", &id, &execution, BEGINNING).await.unwrap();
        let Ok(Followed::Dropped { position }) = reader.next().await else { panic!("nothing was dropped") };
        assert_eq!(position, status.oldest);
        let mut at = position;
        while let Followed::Output { channel, bytes, position, .. } = reader.next().await.unwrap() {
            assert_eq!((channel, position.stdout), (Channel::Stdout, at.stdout + bytes.len() as u64));
            at = position;
        }
        assert_eq!(at.stdout, 8_000_000);
        world.is_clean().await;
    });
}

/// One that is over and whose log cannot be read does not look complete.
#[test]
fn output_that_is_lost_is_a_gap_before_the_end() {
    runtime().block_on(async {
        for spoil in [|log: &Path| std::fs::remove_file(log), |log: &Path| std::fs::write(log, "no log")] {
            let host = Host::new();
            let world = host.open().await;
            let id = world.create().await;
            let execution = world.detach(&id, request("echo something")).await;
            world.read(&id, &execution, BEGINNING).await;
            spoil(&host.dir.path().join(format!("executions/{id}/{execution}/log.0000000000"))).unwrap();
            let mut reader = world.engine.follow("test", &id, &execution, BEGINNING).await.unwrap();
            let position = OutputPosition { stdout: 10, stderr: 0 };
            assert_eq!(reader.next().await.unwrap(), Followed::Dropped { position });
            assert!(matches!(reader.next().await, Ok(Followed::Ended(status)) if status.output == position));
            // Who has seen all misses nothing.
            let mut reader = world.engine.follow("test", &id, &execution, position).await.unwrap();
            assert!(matches!(reader.next().await, Ok(Followed::Ended(_))));
            world.is_clean().await;
        }
    });
}

#[test]
fn finished_ones_are_kept_up_to_a_number() {
    runtime().block_on(async {
        let host = Host::new();
        let few = DetachedSettings { kept: 3, ..with_dir(&host.dir).detached };
        let settings = EngineSettings { detached: few, ..settings() };
        let world = World::over(host.driver.clone(), host.store.clone(), settings, START).await;
        let id = world.create().await;
        let mut all = Vec::new();
        for n in 0..8 {
            let execution = world.detach(&id, request(&format!("echo {n}"))).await;
            world.read(&id, &execution, BEGINNING).await;
            all.push(execution);
            pass(1000).await;
        }
        let listed = world.engine.executions("test", &id).await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|status| status.id).collect();
        all.reverse();
        assert_eq!(listed, all[..4]);
        let on_disk =
            std::fs::read_dir(host.dir.path().join("executions").join(id.as_str())).unwrap().count();
        assert_eq!(on_disk, 4);
        world.is_clean().await;
    });
}

/// With what was asked for, as long as that may be.
#[test]
fn finished_ones_are_kept_up_to_a_size() {
    runtime().block_on(async {
        let host = Host::new();
        let small = DetachedSettings { total_bytes: 130_000, ..with_dir(&host.dir).detached };
        let settings = EngineSettings { detached: small, ..settings() };
        let world = World::over(host.driver.clone(), host.store.clone(), settings, START).await;
        let id = world.create().await;
        for _ in 0..6 {
            let execution = world.detach(&id, request(&format!("echo {}", "x".repeat(40_000)))).await;
            world.read(&id, &execution, BEGINNING).await;
            pass(1000).await;
        }
        // One that had room, and the one that came after it.
        assert_eq!(world.engine.executions("test", &id).await.unwrap().len(), 2);
        world.is_clean().await;
    });
}

#[test]
fn a_long_text_comes_whole_over_links_that_break() {
    runtime().block_on(async {
        let host = Host::new();
        let world = host.open().await;
        let id = world.create().await;
        let text: String = (0..150_000).map(|n| format!("{n:06}\n")).collect();
        let execution =
            world.detach(&id, DetachedRequest { stdin: Some(text.clone()), ..request("cat") }).await;
        for _ in 0..5 {
            settle().await;
            host.driver.hang_up(&id);
            pass(3000).await;
        }
        let (bytes, status) = world.read(&id, &execution, BEGINNING).await;
        assert!(bytes[0] == text.as_bytes(), "{} bytes of {}", bytes[0].len(), text.len());
        assert_eq!(status.exit_code, Some(0));
        world.is_clean().await;
    });
}

#[test]
fn hostile_agents_harm_nobody_but_their_own() {
    use driver::fake::Manner;
    runtime().block_on(async {
        for manner in [
            Manner::Garbage { after: 3 },
            Manner::Huge { after: 3 },
            Manner::HangUp { after: 3 },
            Manner::Deaf,
            Manner::Silent,
            Manner::Stranger,
            Manner::Slow(Duration::from_millis(5)),
        ] {
            let host = Host::new();
            let world = host.open().await;
            let (id, other) = (world.create().await, world.create().await);
            let execution = world.detach(&id, request("sleep 3")).await;
            host.driver.set_manner_of(&id, manner);
            host.driver.hang_up(&id);
            pass(60_000).await;
            assert_eq!(world.output(&other, "echo served").await, "served\n", "{manner:?}");
            // Whatever it says of it: it is running, over or lost, and its log can be read.
            let status = world.engine.execution("test", &id, &execution).await.unwrap();
            assert_eq!(status.output, BEGINNING, "{manner:?}");
            world.is_clean().await;
        }
    });
}
