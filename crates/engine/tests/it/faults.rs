use api::SandboxState;
use driver::Presence;
use driver::fake::{Fault, Verb};
use engine::EngineError;

use crate::world::{World, config, pass, settings, settle, with_pool};

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_at_any_phase_undoes_everything() {
    for verb in [Verb::Create, Verb::Start, Verb::Connect] {
        for fault in [Fault::Before, Fault::After] {
            let world = World::new(settings()).await;
            world.driver.fail_next(verb, fault);
            let error = world.create_with(config()).await.unwrap_err();
            assert!(matches!(error, EngineError::Driver(_)), "{verb:?} {fault:?}: {error:?}");
            // Before the answer, not some time after it.
            assert_eq!(world.driver.traces(), Default::default(), "{verb:?} {fault:?}");
            assert_eq!(world.used(), (0, 0, 0));
            world.create().await;
            world.is_clean().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_record_is_refused_undoes_everything() {
    let world = World::new(settings()).await;
    world.fail_next_commit();
    let error = world.create_with(config()).await.unwrap_err();
    assert!(matches!(error, EngineError::Store(_)), "{error:?}");
    assert_eq!(world.driver.traces(), Default::default());
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_settled_undoes_everything() {
    for fault in [Fault::Before, Fault::After] {
        let world = World::new(with_pool(1)).await;
        pass(100).await;
        world.driver.fail_next(Verb::Limit, fault);
        let larger = api::Resources { cpu: 4, ..config().resources };
        world.create_with(api::SandboxConfig { resources: larger, ..config() }).await.unwrap_err();
        world.engine.shutdown().await;
        assert_eq!((world.driver.traces(), world.used()), (Default::default(), (0, 0, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_undo_could_not_remove_the_next_start_does() {
    let world = World::new(settings()).await;
    world.driver.fail_next(Verb::Start, Fault::After);
    world.driver.fail_next(Verb::Destroy, Fault::Before);
    world.create_with(config()).await.unwrap_err();
    assert_eq!(world.driver.traces().len(), 1);
    let store = store::MemoryStore::new();
    let world = World::over(world.driver.clone(), store, settings(), crate::world::START).await;
    assert_eq!(world.recovered.orphans, 1);
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn verbs_whose_commit_fails_are_taken_back() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    world.output(&id, "sleep 1000 >/dev/null 2>&1 &").await;
    let presence = || world.driver.traces()[&id];

    world.fail_next_commit();
    world.engine.pause("test", &id).await.unwrap_err();
    assert_eq!((world.state(&id).await, presence()), (Some(SandboxState::Running), Presence::Running));
    assert_eq!(world.used(), (2, 2048, 5120));

    world.engine.pause("test", &id).await.unwrap();
    assert_eq!(world.used(), (0, 2048, 5120));
    world.fail_next_commit();
    world.engine.resume("test", &id).await.unwrap_err();
    assert_eq!((world.state(&id).await, presence()), (Some(SandboxState::Paused), Presence::Paused));
    assert_eq!(world.used(), (0, 2048, 5120));
    world.fail_next_commit();
    world.run(&id, "true").await.unwrap_err();
    assert_eq!(presence(), Presence::Paused);
    assert_eq!(world.output(&id, "pgrep -c sleep").await, "1\n");

    world.fail_next_commit();
    world.engine.terminate("test", &id, "request").await.unwrap_err();
    assert_eq!((world.state(&id).await, presence()), (Some(SandboxState::Running), Presence::Running));
    assert_eq!(world.output(&id, "pgrep -c sleep").await, "1\n");
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_on_the_disk_that_fails_at_any_point_is_taken_back() {
    for (verb, fault) in [
        (Verb::Start, Fault::Before),
        (Verb::Start, Fault::After),
        (Verb::Connect, Fault::Before),
        (Verb::Connect, Fault::After),
    ] {
        let world = World::new(settings()).await;
        let id = world.create().await;
        world.driver.crash(&id);
        settle().await;
        world.driver.fail_next(verb, fault);
        world.engine.resume("test", &id).await.unwrap_err();
        assert_eq!(world.driver.traces()[&id], Presence::Stopped, "{verb:?} {fault:?}");
        assert_eq!((world.state(&id).await, world.used()), (Some(SandboxState::Paused), (0, 0, 5120)));
        world.fail_next_commit();
        world.engine.resume("test", &id).await.unwrap_err();
        assert_eq!(world.driver.traces()[&id], Presence::Stopped);
        world.engine.resume("test", &id).await.unwrap();
        world.is_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_could_not_be_recorded_does_not_lose_the_sandbox() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    world.output(&id, "echo kept > file").await;
    world.fail_next_commit();
    world.driver.crash(&id);
    pass(10_000).await;
    // Whatever it is called now, it can be worked in again, at the latest by the second request.
    let _ = world.run(&id, "true").await;
    assert_eq!(world.output(&id, "cat file").await, "kept\n");
    assert_eq!(world.used(), (2, 2048, 5120));
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn verbs_that_the_wall_refuses_change_nothing() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    world.driver.fail_next(Verb::Pause, Fault::Before);
    world.engine.pause("test", &id).await.unwrap_err();
    assert_eq!(world.output(&id, "echo runs").await, "runs\n");
    world.engine.pause("test", &id).await.unwrap();
    for fault in [Fault::Before, Fault::After] {
        world.driver.fail_next(Verb::Resume, fault);
        world.engine.resume("test", &id).await.unwrap_err();
        assert_eq!(world.driver.traces()[&id], Presence::Paused, "{fault:?}");
    }
    assert_eq!(world.output(&id, "echo runs").await, "runs\n");
    // Half-done: frozen, and the engine was told that it is not.
    world.driver.fail_next(Verb::Pause, Fault::After);
    world.engine.pause("test", &id).await.unwrap_err();
    assert_eq!(world.output(&id, "echo runs").await, "runs\n");
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminated_sandbox_is_removed_however_often_that_fails() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    world.driver.fail_next(Verb::Kill, Fault::Before);
    for _ in 0..3 {
        world.driver.fail_next(Verb::Destroy, Fault::Before);
    }
    world.engine.terminate("test", &id, "request").await.unwrap();
    assert_eq!(world.ended(&id).await.1, "request");
    pass(60_000).await;
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_wall_that_cannot_be_looked_at_keeps_what_the_records_say() {
    let world = World::new(settings()).await;
    let (running, paused) = (world.create().await, world.create().await);
    world.engine.pause("test", &paused).await.unwrap();
    let records = store::Store::living(&world.store).await.unwrap();
    world.engine.shutdown().await;
    let store = store::MemoryStore::new();
    for record in records {
        store::Store::put(&store, record).await.unwrap();
    }
    for _ in 0..2 {
        world.driver.fail_next(Verb::Inspect, Fault::Before);
    }
    let world = World::over(world.driver.clone(), store, settings(), world.clock.now()).await;
    assert_eq!((world.recovered.running, world.recovered.paused), (1, 1));
    assert_eq!(world.output(&running, "echo runs").await, "runs\n");
    assert_eq!(world.output(&paused, "echo runs").await, "runs\n");
    world.is_clean().await;
}
