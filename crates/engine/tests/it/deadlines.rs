use api::{OnTimeout, ProcessesAtTimeout, SandboxConfig, SandboxState};
use driver::Presence;
use engine::TimeoutChange;
use rules::AutoResume;

use crate::harness::{DAY, HOUR, Harness, MINUTE, SECOND, START, command, config, pass, settings, settle};

#[tokio::test(start_paused = true)]
async fn an_idle_sandbox_is_paused() {
    let harness = Harness::new(settings()).await;
    let id =
        harness.create_with(api::SandboxConfig { idle_timeout_ms: 2 * MINUTE, ..config() }).await.unwrap();
    harness.output(&id, "sleep 1000 >/dev/null 2>&1 &").await;
    pass(119 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    // Neither reading the status nor background processes count as activity.
    pass(2 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    assert_eq!(harness.events(&id).await.pop().unwrap().data["reason"], "idle");

    // A running command does.
    assert_eq!(harness.run(&id, "sleep 299").await.unwrap().exit_code, Some(0));
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    pass(119 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    pass(2 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    // A resume counts as activity.
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    pass(119 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    pass(2 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    assert_eq!(harness.output(&id, "pgrep -c sleep").await, "1\n");
    harness.assert_clean().await;
}

/// Each request that names the sandbox counts as activity, except reading its status, whatever its outcome.
#[tokio::test(start_paused = true)]
async fn a_refused_request_counts_as_activity() {
    let one_at_once = engine::EngineSettings { concurrent_executions: 1, ..settings() };
    let harness = Harness::new(one_at_once).await;
    let idle = api::SandboxConfig { idle_timeout_ms: 2 * MINUTE, ..config() };
    let id = harness.create_with(idle).await.unwrap();
    let awake_after = async |what: &str| {
        pass(119 * SECOND).await;
        assert_eq!(harness.state(&id).await, Some(SandboxState::Running), "after {what}");
    };
    awake_after("create").await;
    let error = harness.engine.sandbox("test", &id).resume().await.unwrap_err();
    assert!(matches!(error, engine::EngineError::Sandbox(engine::SandboxError::Refused(_))), "{error:?}");
    awake_after("a refused resume").await;
    harness.driver.fail_next(driver::fake::DriverOp::Pause, driver::fake::Fault::Before);
    harness.engine.sandbox("test", &id).pause().await.unwrap_err();
    awake_after("a failed pause").await;
    let running = harness.engine.sandbox("test", &id).execute(command("sleep 299")).await.unwrap();
    let error = harness.run(&id, "true").await.unwrap_err();
    assert!(matches!(error, engine::EngineError::Execution(engine::ExecutionError::TooMany(_))), "{error:?}");
    drop(running);
    awake_after("a refused command").await;
    let missing = api::ExecuteRequest { cwd: Some("/nowhere".to_owned()), ..command("true") };
    assert_eq!(harness.request(&id, missing).await.unwrap().exit_code, None);
    awake_after("a command that did not start").await;
    // The server reports requests that it refuses itself.
    harness.engine.sandbox("test", &id).touch();
    awake_after("a touch").await;
    harness.engine.sandbox("other", &id).touch();
    harness.engine.sandbox("test", &"sb_aaaaaaaaaa".parse().unwrap()).touch();
    harness.engine.sandbox("test", &id).status().await.unwrap();
    pass(2 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    // A touch does not resume it.
    harness.engine.sandbox("test", &id).touch();
    settle().await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_counts_running_time_and_ends_the_command() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(api::SandboxConfig { timeout_ms: HOUR, ..config() }).await.unwrap();
    pass(40 * MINUTE).await;
    assert_eq!(harness.engine.sandbox("test", &id).pause().await.unwrap().runtime_duration_ms / MINUTE, 40);
    pass(5 * DAY).await;
    assert_eq!(harness.engine.sandbox("test", &id).resume().await.unwrap().paused_duration_ms / DAY, 5);
    pass(18 * MINUTE).await;
    let running = harness.run(&id, "sleep 280").await.unwrap();
    assert_eq!((running.exit_code, running.signal.as_deref()), (None, Some("SIGKILL")));
    let (at, reason) = harness.ended(&id).await;
    assert_eq!(reason, "timeout");
    assert!(at.since(START.after(HOUR + 5 * DAY)) < SECOND, "{at:?}");
    let last = harness.life(&id).await.pop().unwrap();
    assert_eq!((last.kind.as_str(), &last.data["totalRuntimeMs"]), ("sandbox.terminated", &HOUR.into()));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn paused_and_stopped_sandboxes_are_terminated_after_their_retention() {
    let harness = Harness::new(engine::EngineSettings { paused_retention_ms: 30 * DAY, ..settings() }).await;
    let (frozen, stopped) = (harness.create().await, harness.create().await);
    harness.engine.sandbox("test", &frozen).pause().await.unwrap();
    harness.driver.crash(&stopped);
    settle().await;
    assert_eq!(harness.state(&stopped).await, Some(SandboxState::Paused));
    pass(30 * DAY - MINUTE).await;
    for id in [&frozen, &stopped] {
        assert_eq!(harness.state(id).await, Some(SandboxState::Paused));
    }
    pass(2 * MINUTE).await;
    for id in [&frozen, &stopped] {
        assert_eq!(harness.ended(id).await.1, "expired");
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_timeout_is_retried() {
    let harness = Harness::new(settings()).await;
    let idle = api::SandboxConfig { idle_timeout_ms: MINUTE, timeout_ms: HOUR, ..config() };
    let id = harness.create_with(idle).await.unwrap();
    harness.fail_next_commit();
    pass(61 * SECOND).await;
    // The commit failed, so the pause is undone.
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    assert_eq!(harness.output(&id, "echo awake").await, "awake\n");
    pass(66 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    harness.driver.fail_next(driver::fake::DriverOp::Pause, driver::fake::Fault::Before);
    pass(61 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    pass(6 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_of_a_command_stands_still_during_a_pause() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let request = api::ExecuteRequest { timeout_ms: 10 * SECOND, ..command("sleep 300") };
    let execution = harness.engine.sandbox("test", &id).execute(request).await.unwrap();
    let collecting = tokio::spawn(execution.collect(1024));
    pass(4 * SECOND).await;
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(3 * DAY).await;
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    pass(5 * SECOND).await;
    assert!(!collecting.is_finished());
    pass(2 * SECOND).await;
    let result = collecting.await.unwrap().unwrap();
    assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn timeouts_continue_after_a_restart() {
    let harness = Harness::new(engine::EngineSettings { paused_retention_ms: 30 * DAY, ..settings() }).await;
    let running = harness.create_with(api::SandboxConfig { timeout_ms: HOUR, ..config() }).await.unwrap();
    let paused = harness.create().await;
    harness.engine.sandbox("test", &paused).pause().await.unwrap();
    pass(20 * MINUTE).await;
    // The daemon was down for ten days, during which the sandbox ran, and then the host rebooted.
    let (driver, store, now) = (harness.driver.clone(), reopened(&harness).await, harness.clock.now());
    let kept = engine::EngineSettings { paused_retention_ms: 30 * DAY, ..settings() };
    let harness = Harness::over(driver, store, kept, now.after(10 * DAY)).await;
    settle().await;
    assert_eq!(harness.ended(&running).await.1, "timeout");
    pass(20 * DAY - HOUR).await;
    assert_eq!(harness.state(&paused).await, Some(SandboxState::Paused));
    pass(HOUR).await;
    assert_eq!(harness.ended(&paused).await.1, "expired");
    harness.assert_clean().await;
}

/// The content of the store, in a store that is open.
async fn reopened(harness: &Harness) -> store::MemoryStore {
    use store::Store;
    let copy = store::MemoryStore::new();
    for record in harness.store.living().await.unwrap() {
        copy.put(record).await.unwrap();
    }
    harness.engine.shutdown().await;
    copy
}

#[tokio::test(start_paused = true)]
async fn a_changed_timeout_counts_from_the_change() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(api::SandboxConfig { timeout_ms: HOUR, ..config() }).await.unwrap();
    let sandbox = || harness.engine.sandbox("test", &id);
    pass(50 * MINUTE).await;
    let longer = sandbox().change_timeout(TimeoutChange::Set(2 * HOUR)).await.unwrap();
    assert_eq!((longer.record.lifetime_ms / MINUTE, longer.record.config.timeout_ms), (170, 2 * HOUR));
    let event = harness.life(&id).await.pop().unwrap();
    assert_eq!(
        (event.kind.as_str(), &event.data["timeoutMs"]),
        ("sandbox.timeout_changed", &(2 * HOUR).into())
    );
    assert!(event.data["expiresAt"].is_string());
    pass(HOUR).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    // An extension never shortens.
    let same = sandbox().change_timeout(TimeoutChange::Extend(MINUTE)).await.unwrap();
    assert_eq!((same.number(), same.record.lifetime_ms), (longer.number(), longer.record.lifetime_ms));
    let extended = sandbox().change_timeout(TimeoutChange::Extend(90 * MINUTE)).await.unwrap();
    assert_eq!(extended.record.lifetime_ms / MINUTE, 200);
    // A paused sandbox does not run, so its timeout counts from the resume.
    sandbox().pause().await.unwrap();
    let paused = sandbox().change_timeout(TimeoutChange::Set(10 * MINUTE)).await.unwrap();
    assert_eq!((paused.state(), paused.record.expires_at()), (SandboxState::Paused, None));
    pass(HOUR).await;
    sandbox().resume().await.unwrap();
    pass(10 * MINUTE - SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    pass(2 * SECOND).await;
    assert_eq!(harness.ended(&id).await.1, "timeout");
    let late = sandbox().change_timeout(TimeoutChange::Set(HOUR)).await.unwrap_err();
    assert!(
        matches!(late, engine::EngineError::Sandbox(engine::SandboxError::NotFound { terminated: Some(_) })),
        "{late:?}"
    );
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_ends_a_sandbox_now() {
    let harness = Harness::new(settings()).await;
    let pausing = api::SandboxConfig { on_timeout: api::OnTimeout::Pause, timeout_ms: HOUR, ..config() };
    let (ending, pausing) = (harness.create().await, harness.create_with(pausing).await.unwrap());
    for id in [&ending, &pausing] {
        harness.engine.sandbox("test", id).change_timeout(TimeoutChange::Set(0)).await.unwrap();
    }
    settle().await;
    assert_eq!(harness.ended(&ending).await.1, "timeout");
    assert_eq!(harness.state(&pausing).await, Some(SandboxState::Paused));
    assert_eq!(harness.events(&pausing).await.pop().unwrap().data["reason"], "timeout");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_pauses_is_renewed_by_each_resume() {
    let harness = Harness::new(settings()).await;
    let on_timeout = api::OnTimeout::Pause;
    let config = api::SandboxConfig { on_timeout, timeout_ms: 10 * MINUTE, ..config() };
    let id = harness.create_with(config).await.unwrap();
    for round in 1..=3 {
        // A running command does not postpone it.
        harness.output(&id, "sleep 1000 >/dev/null 2>&1 &").await;
        pass(10 * MINUTE - SECOND).await;
        assert_eq!(harness.state(&id).await, Some(SandboxState::Running), "round {round}");
        pass(2 * SECOND).await;
        assert_eq!(harness.state(&id).await, Some(SandboxState::Paused), "round {round}");
        let event = harness.events(&id).await.pop().unwrap();
        assert_eq!((event.kind.as_str(), &event.data["reason"]), ("sandbox.paused", &"timeout".into()));
        pass(DAY).await;
        harness.engine.sandbox("test", &id).resume().await.unwrap();
    }
    assert_eq!(harness.engine.metrics().counts.paused_timeout, 3);
    // What is left of a timeout is kept.
    pass(9 * MINUTE).await;
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    pass(2 * MINUTE).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn without_auto_resume_only_a_resume_resumes() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(api::SandboxConfig { auto_resume: false, ..config() }).await.unwrap();
    let sandbox = || harness.engine.sandbox("test", &id);
    sandbox().pause().await.unwrap();
    let is_refused = |error: &engine::EngineError| {
        matches!(error, engine::EngineError::Sandbox(engine::SandboxError::Refused(_)))
            && error.to_string().contains("'autoResume' false")
    };
    let command = harness.run(&id, "true").await.unwrap_err();
    assert!(is_refused(&command), "{command:?}");
    let stat = engine::FileOp::Stat { path: b"/".to_vec(), follow: true };
    let Err(file) = sandbox().file_op(AutoResume::Allowed, &stat).await else {
        panic!("a file operation resumed it")
    };
    assert!(is_refused(&file), "{file:?}");
    let Err(port) = sandbox().dial(80).await else { panic!("a connection resumed it") };
    assert!(is_refused(&port), "{port:?}");
    harness.engine.wake_if_paused(&id);
    settle().await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    sandbox().resume().await.unwrap();
    assert_eq!(harness.output(&id, "echo ran").await, "ran\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_at_the_timeout_ends_the_processes_if_the_owner_wants_that() {
    let harness = Harness::new(settings()).await;
    for (processes_at_timeout, expected) in
        [(ProcessesAtTimeout::Kept, Presence::Paused), (ProcessesAtTimeout::Ended, Presence::Stopped)]
    {
        let pauses = SandboxConfig { timeout_ms: MINUTE, on_timeout: OnTimeout::Pause, ..config() };
        let config = SandboxConfig { processes_at_timeout, ..pauses };
        let id = harness.create_with(config).await.unwrap();
        pass(MINUTE + SECOND).await;
        assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
        assert_eq!(harness.driver.traces()[&id], expected);
        harness.engine.sandbox("test", &id).resume().await.unwrap();
    }
    harness.assert_clean().await;
}
