use api::SandboxState;
use driver::Presence;
use driver::fake::{DriverOp, Fault};
use engine::{EngineError, HostError};

use crate::harness::{Harness, config, pass, settings, settle, with_pool};

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_at_any_phase_undoes_everything() {
    for verb in [DriverOp::Create, DriverOp::Start, DriverOp::Connect] {
        for fault in [Fault::Before, Fault::After] {
            let harness = Harness::new(settings()).await;
            harness.driver.fail_next(verb, fault);
            let error = harness.create_with(config()).await.unwrap_err();
            assert!(
                matches!(error, EngineError::Host(HostError::Backend(_))),
                "{verb:?} {fault:?}: {error:?}"
            );
            // Before the reply, not some time after it.
            assert_eq!(harness.driver.traces(), Default::default(), "{verb:?} {fault:?}");
            assert_eq!(harness.used(), (0, 0, 0));
            harness.create().await;
            harness.assert_clean().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_commit_fails_undoes_everything() {
    let harness = Harness::new(settings()).await;
    harness.fail_next_commit();
    let error = harness.create_with(config()).await.unwrap_err();
    assert!(matches!(error, EngineError::Host(HostError::Store(_))), "{error:?}");
    assert_eq!(harness.driver.traces(), Default::default());
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_warm_sandbox_that_cannot_be_configured_is_removed() {
    for fault in [Fault::Before, Fault::After] {
        let harness = Harness::new(with_pool(1)).await;
        pass(100).await;
        harness.driver.fail_next(DriverOp::Limit, fault);
        let larger = api::Resources { cpu: 4, ..config().resources };
        harness.create_with(api::SandboxConfig { resources: larger, ..config() }).await.unwrap_err();
        harness.engine.shutdown().await;
        assert_eq!((harness.driver.traces(), harness.used()), (Default::default(), (0, 0, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_start_removes_what_an_undo_could_not() {
    let harness = Harness::new(settings()).await;
    harness.driver.fail_next(DriverOp::Start, Fault::After);
    harness.driver.fail_next(DriverOp::Destroy, Fault::Before);
    harness.create_with(config()).await.unwrap_err();
    assert_eq!(harness.driver.traces().len(), 1);
    let store = store::MemoryStore::new();
    let harness = Harness::over(harness.driver.clone(), store, settings(), crate::harness::START).await;
    assert_eq!(harness.recovered.orphans, 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn operations_whose_commit_fails_are_undone() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.output(&id, "sleep 1000 >/dev/null 2>&1 &").await;
    let presence = || harness.driver.traces()[&id];

    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).pause().await.unwrap_err();
    assert_eq!((harness.state(&id).await, presence()), (Some(SandboxState::Running), Presence::Running));
    assert_eq!(harness.used(), (2, 2048, 5120));

    harness.engine.sandbox("test", &id).pause().await.unwrap();
    assert_eq!(harness.used(), (0, 0, 5120));
    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).resume().await.unwrap_err();
    assert_eq!((harness.state(&id).await, presence()), (Some(SandboxState::Paused), Presence::Paused));
    assert_eq!(harness.used(), (0, 0, 5120));
    harness.fail_next_commit();
    harness.run(&id, "true").await.unwrap_err();
    assert_eq!(presence(), Presence::Paused);
    assert_eq!(harness.output(&id, "pgrep -c sleep").await, "1\n");

    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).terminate("request").await.unwrap_err();
    assert_eq!((harness.state(&id).await, presence()), (Some(SandboxState::Running), Presence::Running));
    assert_eq!(harness.output(&id, "pgrep -c sleep").await, "1\n");
    harness.assert_clean().await;
}

/// The processes of a paused sandbox run if a failed resume cannot be undone, and their agent may be connected again.
#[tokio::test(start_paused = true)]
async fn a_resume_that_could_not_be_undone_reserves_nothing_and_is_undone_later() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    let presence = || harness.driver.traces()[&id];

    harness.driver.fail_next(DriverOp::Pause, Fault::Before);
    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).resume().await.unwrap_err();
    assert_eq!((presence(), harness.used()), (Presence::Running, (0, 0, 5120)));
    harness.driver.hang_up(&id);
    pass(100).await;

    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).resume().await.unwrap_err();
    assert_eq!((harness.state(&id).await, presence()), (Some(SandboxState::Paused), Presence::Paused));
    assert_eq!(harness.used(), (0, 0, 5120));
    assert_eq!(harness.output(&id, "echo runs").await, "runs\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_on_the_disk_is_undone() {
    for (verb, fault) in [
        (DriverOp::Start, Fault::Before),
        (DriverOp::Start, Fault::After),
        (DriverOp::Connect, Fault::Before),
        (DriverOp::Connect, Fault::After),
    ] {
        let harness = Harness::new(settings()).await;
        let id = harness.create().await;
        harness.driver.crash(&id);
        settle().await;
        harness.driver.fail_next(verb, fault);
        harness.engine.sandbox("test", &id).resume().await.unwrap_err();
        assert_eq!(harness.driver.traces()[&id], Presence::Stopped, "{verb:?} {fault:?}");
        assert_eq!((harness.state(&id).await, harness.used()), (Some(SandboxState::Paused), (0, 0, 5120)));
        harness.fail_next_commit();
        harness.engine.sandbox("test", &id).resume().await.unwrap_err();
        assert_eq!(harness.driver.traces()[&id], Presence::Stopped);
        harness.engine.sandbox("test", &id).resume().await.unwrap();
        harness.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_could_not_be_recorded_does_not_lose_the_sandbox() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.output(&id, "echo kept > file").await;
    harness.fail_next_commit();
    harness.driver.crash(&id);
    pass(10_000).await;
    // In any state, the second request at the latest succeeds.
    let _ = harness.run(&id, "true").await;
    assert_eq!(harness.output(&id, "cat file").await, "kept\n");
    assert_eq!(harness.used(), (2, 2048, 5120));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn operations_that_the_backend_fails_change_nothing() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.driver.fail_next(DriverOp::Pause, Fault::Before);
    harness.engine.sandbox("test", &id).pause().await.unwrap_err();
    assert_eq!(harness.output(&id, "echo runs").await, "runs\n");
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    for fault in [Fault::Before, Fault::After] {
        harness.driver.fail_next(DriverOp::Resume, fault);
        harness.engine.sandbox("test", &id).resume().await.unwrap_err();
        assert_eq!(harness.driver.traces()[&id], Presence::Paused, "{fault:?}");
    }
    assert_eq!(harness.output(&id, "echo runs").await, "runs\n");
    // The sandbox is frozen although the call failed.
    harness.driver.fail_next(DriverOp::Pause, Fault::After);
    harness.engine.sandbox("test", &id).pause().await.unwrap_err();
    assert_eq!(harness.output(&id, "echo runs").await, "runs\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_removal_of_a_terminated_sandbox_is_retried() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.driver.fail_next(DriverOp::Kill, Fault::Before);
    for _ in 0..3 {
        harness.driver.fail_next(DriverOp::Destroy, Fault::Before);
    }
    harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
    assert_eq!(harness.ended(&id).await.1, "request");
    pass(60_000).await;
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_cannot_be_inspected_keeps_the_records() {
    let harness = Harness::new(settings()).await;
    let (running, paused) = (harness.create().await, harness.create().await);
    harness.engine.sandbox("test", &paused).pause().await.unwrap();
    let records = store::Store::living(&harness.store).await.unwrap();
    harness.engine.shutdown().await;
    let store = store::MemoryStore::new();
    for record in records {
        store::Store::put(&store, record).await.unwrap();
    }
    for _ in 0..2 {
        harness.driver.fail_next(DriverOp::Inspect, Fault::Before);
    }
    let harness = Harness::over(harness.driver.clone(), store, settings(), harness.clock.now()).await;
    assert_eq!((harness.recovered.running, harness.recovered.paused), (1, 1));
    assert_eq!(harness.output(&running, "echo runs").await, "runs\n");
    assert_eq!(harness.output(&paused, "echo runs").await, "runs\n");
    harness.assert_clean().await;
}
