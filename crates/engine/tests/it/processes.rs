//! Processes, operations on behalf of users, and watches on a fake host.

use std::time::Duration;

use api::{SandboxConfig, SandboxId};
use driver::fake::FakeDriver;
use engine::{
    Channel, DetachedSettings, EngineError, EngineSettings, FileErrorKind, Process, ProcessEnd, ProcessError,
    ProcessEvent, ProcessRefusal, ProcessRequest, ProcessSelector, UserFileOp,
};
use rules::AutoResume;
use store::MemoryStore;
use tempfile::TempDir;

use crate::harness::{Harness, START, command, config, pass, runtime, settings, settle};

fn with_dir(dir: &TempDir) -> EngineSettings {
    EngineSettings { detached: DetachedSettings::in_dir(dir.path().join("executions")), ..settings() }
}

fn request(text: &str) -> ProcessRequest {
    ProcessRequest {
        argv: ["/bin/bash", "-l", "-c", text].map(str::to_owned).to_vec(),
        user: "user".to_owned(),
        auto_resume: true,
        ..ProcessRequest::default()
    }
}

impl Harness {
    async fn process(&self, id: &SandboxId, request: ProcessRequest) -> Result<Process, EngineError> {
        self.engine.sandbox("test", id).start_process(request).await
    }

    async fn find(&self, id: &SandboxId, selector: ProcessSelector<'_>) -> Result<Process, EngineError> {
        self.engine.sandbox("test", id).connect_process(selector).await
    }
}

/// The output and the end.
async fn rest(process: &mut Process) -> (Vec<u8>, ProcessEnd) {
    let mut output = Vec::new();
    loop {
        match process.next().await.unwrap() {
            ProcessEvent::Output(channel, bytes) => {
                assert!(channel == Channel::Stdout && (1..=32 * 1024).contains(&bytes.len()));
                output.extend_from_slice(&bytes);
            }
            ProcessEvent::Dropped => panic!("dropped"),
            ProcessEvent::Ended(end) => return (output, end),
        }
    }
}

#[test]
fn a_process_is_found_by_pid_and_tag_until_it_has_been_over_for_30_s() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let id = harness.create().await;
        let tagged = ProcessRequest { tag: Some("job".to_owned()), stdin: true, ..request("cat") };
        let mut process = harness.process(&id, tagged.clone()).await.unwrap();
        let status = process.status();
        assert_eq!(
            (&status.argv, status.tag.as_deref(), status.end.clone()),
            (&tagged.argv, Some("job"), None)
        );
        assert!(status.pid > 1);
        let by_pid = ProcessSelector::Pid(status.pid);
        let listed = harness.engine.sandbox("test", &id).processes().await.unwrap();
        assert_eq!(listed, std::slice::from_ref(&status));

        // All readers get the output, and a later one begins there.
        let mut other = harness.find(&id, by_pid).await.unwrap();
        let input =
            harness.engine.sandbox("test", &id).process_input(by_pid, AutoResume::Allowed).await.unwrap();
        assert!(!input.is_terminal());
        input.write(b"one\xff").await.unwrap();
        assert_eq!(
            process.next().await.unwrap(),
            ProcessEvent::Output(Channel::Stdout, (&b"one\xff"[..]).into())
        );
        let mut late = harness.find(&id, ProcessSelector::Tag("job")).await.unwrap();
        input.write(b"two").await.unwrap();
        input.close().await.unwrap();
        assert_eq!(rest(&mut process).await, (b"two".to_vec(), ProcessEnd::Exited(0)));
        assert_eq!(rest(&mut other).await, (b"one\xfftwo".to_vec(), ProcessEnd::Exited(0)));
        assert_eq!(rest(&mut late).await, (b"two".to_vec(), ProcessEnd::Exited(0)));

        assert!(harness.engine.sandbox("test", &id).processes().await.unwrap().is_empty());
        pass(29_000).await;
        let mut ended = harness.find(&id, by_pid).await.unwrap();
        assert_eq!(rest(&mut ended).await, (Vec::new(), ProcessEnd::Exited(0)));
        pass(2000).await;
        for selector in
            [by_pid, ProcessSelector::Tag("job"), ProcessSelector::Pid(0), ProcessSelector::Pid(999_999)]
        {
            assert!(matches!(
                harness.find(&id, selector).await,
                Err(EngineError::Process(ProcessError::NotFound { .. }))
            ));
        }
        harness.assert_clean().await;
    });
}

#[test]
fn a_process_that_cannot_start_is_an_error_and_leaves_nothing() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let id = harness.create().await;
        let stranger = ProcessRequest { user: "stranger".to_owned(), ..request("true") };
        let nowhere = ProcessRequest { cwd: Some("/missing".to_owned()), ..request("true") };
        for (wrong, expected) in
            [(stranger, ProcessRefusal::UnknownUser), (nowhere, ProcessRefusal::CwdMissing)]
        {
            match harness.process(&id, wrong).await.map(drop) {
                Err(EngineError::Process(ProcessError::Refused { refusal, .. })) => {
                    assert_eq!(refusal, expected);
                }
                other => panic!("{other:?}"),
            }
        }
        let long = ProcessRequest { argv: vec!["a".to_owned(), "x".repeat(128 * 1024)], ..request("") };
        let many = ProcessRequest { argv: vec!["x".repeat(100_000); 6], ..request("") };
        let empty = ProcessRequest { argv: Vec::new(), ..request("") };
        for invalid in [long, many, empty] {
            assert!(matches!(
                harness.process(&id, invalid).await,
                Err(EngineError::Process(ProcessError::Invalid(_)))
            ));
        }
        assert!(harness.engine.sandbox("test", &id).executions().await.unwrap().is_empty());
        settle().await;
        assert_eq!(harness.kinds(&id).await, ["sandbox.created", "sandbox.started"]);
        assert_eq!(harness.output(&id, "echo free").await, "free\n");
        harness.assert_clean().await;
    });
}

#[test]
fn signals_timeouts_and_kills_are_distinct_ends() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let id = harness.create().await;
        let timed = ProcessRequest { timeout_ms: Some(5000), ..request("sleep 1000") };
        let mut timed = harness.process(&id, timed).await.unwrap();
        assert_eq!(rest(&mut timed).await.1, ProcessEnd::TimedOut);
        for (signal, expected) in [(Some(15), "SIGTERM"), (None, "SIGKILL")] {
            let mut process = harness.process(&id, request("sleep 1000")).await.unwrap();
            let selector = ProcessSelector::Pid(process.status().pid);
            let input = harness
                .engine
                .sandbox("test", &id)
                .process_input(selector, AutoResume::Allowed)
                .await
                .unwrap();
            match signal {
                Some(signal) => input.signal(signal).await.unwrap(),
                None => input.kill().await.unwrap(),
            }
            assert_eq!(rest(&mut process).await.1, ProcessEnd::Signalled(expected.to_owned()));
        }
        harness.assert_clean().await;
    });
}

#[test]
fn a_process_and_its_pid_survive_a_restart_of_the_daemon() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (driver, store) = (FakeDriver::new(), MemoryStore::new());
        let open = async || Harness::over(driver.clone(), store.clone(), with_dir(&dir), START).await;
        let harness = open().await;
        let id = harness.create().await;
        let tagged = ProcessRequest { tag: Some("job".to_owned()), stdin: true, ..request("cat") };
        let process = harness.process(&id, tagged).await.unwrap();
        settle().await;
        let before = process.status();
        drop(process);
        harness.engine.shutdown().await;
        drop(harness);

        store.open_again();
        let harness = open().await;
        settle().await;
        let mut process = harness.find(&id, ProcessSelector::Pid(before.pid)).await.unwrap();
        assert_eq!(process.status(), before);
        let by_tag = ProcessSelector::Tag("job");
        let input =
            harness.engine.sandbox("test", &id).process_input(by_tag, AutoResume::Allowed).await.unwrap();
        input.write(b"more").await.unwrap();
        input.close().await.unwrap();
        assert_eq!(rest(&mut process).await, (b"more".to_vec(), ProcessEnd::Exited(0)));
        drop(input);
        harness.assert_clean().await;
    });
}

#[test]
fn commands_and_files_have_users() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let id = harness.create_with(SandboxConfig { default_user: true, ..config() }).await.unwrap();
        let as_user = |user: &str| api::ExecuteRequest { user: Some(user.to_owned()), ..command("echo hi") };
        assert_eq!(harness.request(&id, as_user("user")).await.unwrap().stdout, "hi\n");
        // As for a missing directory, the result says why.
        let result = harness.request(&id, as_user("stranger")).await.unwrap();
        assert_eq!((result.exit_code, result.stderr.contains("no such user")), (None, true));

        let sandbox = harness.engine.sandbox("test", &id);
        let op = UserFileOp::WriteInPlace { path: b"/workspace/f".to_vec(), attributes: None };
        let mut writing = sandbox.user_file_op(AutoResume::Allowed, "user", &op).await.unwrap();
        assert!(writing.send_upload(["text".into()].into()).await.unwrap());
        writing.finish().await.unwrap();
        assert_eq!(writing.details().await.unwrap().name(), b"f");
        let list = UserFileOp::ListTree { path: b"/workspace".to_vec(), depth: 1, prefix: None };
        let mut listed = sandbox.user_file_op(AutoResume::Allowed, "user", &list).await.unwrap().into_tree();
        assert_eq!(listed.next().await.unwrap().unwrap().name(), b"f");
        assert!(listed.next().await.unwrap().is_none());
        let invalid = UserFileOp::Describe { path: b"a\0".to_vec(), prefix: None };
        match sandbox.user_file_op(AutoResume::Allowed, "user", &invalid).await.map(drop) {
            Err(EngineError::File(error)) => assert_eq!(error.kind, FileErrorKind::Invalid),
            other => panic!("{other:?}"),
        }
        harness.assert_clean().await;
    });
}

#[test]
fn the_working_directory_of_a_snapshot_stays_as_it_is() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let with_user = || SandboxConfig { default_user: true, ..config() };
        let id = harness.create_with(with_user()).await.unwrap();
        assert_eq!(harness.output(&id, "echo kept > file; cat file").await, "kept\n");
        let taken =
            harness.engine.sandbox("test", &id).take_snapshot(Default::default(), None).await.unwrap();
        let (template, _) = harness.engine.snapshot_template("test", &taken.id).await.unwrap();
        let created = harness.engine.create("test", with_user(), template, None).await.unwrap();
        assert_eq!(harness.output(&created.record.id, "cat file").await, "kept\n");
    });
}

#[test]
fn a_watch_answers_polls_and_ends_with_its_sandbox() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let id = harness.create().await;
        let sandbox = harness.engine.sandbox("test", &id);
        let mut watch = sandbox.watch(AutoResume::Allowed, "user", b"/workspace", true).await.unwrap();
        for _ in 0..3 {
            assert_eq!(watch.poll().await.unwrap(), (Vec::new(), true));
        }
        // A poll whose caller stops waiting does not confuse the next one.
        let cancelled = tokio::time::timeout(Duration::ZERO, watch.poll()).await;
        drop(cancelled);
        assert_eq!(watch.poll().await.unwrap(), (Vec::new(), true));
        sandbox.terminate("test").await.unwrap();
        assert!(watch.next().await.is_err());
        harness.assert_clean().await;
    });
}
