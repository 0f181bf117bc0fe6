//! Names of sandboxes: one holder at a time, freed by the end of the sandbox, kept by a restart.

use std::sync::Arc;

use api::{NAME_KEY, SandboxConfig, SandboxId};
use driver::fake::{DriverOp, Fault};
use engine::{DaemonError, EngineError, SandboxError};
use rules::ForkRequest;
use store::SandboxRecord;

use crate::harness::{HOUR, Harness, START, config, settings, settle, template, two_daemons, with_pool};

fn named(name: &str) -> SandboxConfig {
    SandboxConfig { metadata: [(NAME_KEY.to_owned(), name.to_owned())].into(), ..config() }
}

async fn create(harness: &Harness, account: &str, name: &str) -> Result<SandboxId, EngineError> {
    Ok(harness.engine.create(account, named(name), template(), None).await?.record.id.clone())
}

async fn fork(
    harness: &Harness,
    id: &SandboxId,
    name: Option<&str>,
) -> Result<Arc<SandboxRecord>, EngineError> {
    let request = ForkRequest {
        count: 1,
        name: name.map(|name| name.parse().unwrap()),
        env: Default::default(),
        metadata: None,
        memory: false,
        isolation: Default::default(),
    };
    Ok(Arc::clone(&harness.engine.sandbox("test", id).fork(request, None).await?[0].record))
}

#[track_caller]
fn assert_taken<T>(result: Result<T, EngineError>, by: Option<&SandboxId>) {
    match result {
        Err(EngineError::Sandbox(SandboxError::NameTaken { holder, .. })) => assert_eq!(holder.as_ref(), by),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the name was free"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_belongs_to_one_sandbox_of_the_account_until_it_ends() {
    let harness = Harness::new(settings()).await;
    let id = create(&harness, "test", "web").await.unwrap();
    let other = create(&harness, "other", "web").await.unwrap();
    assert_eq!(harness.engine.named("test", "web"), Some(id.clone()));
    assert_eq!(harness.engine.named("other", "web"), Some(other));
    assert_eq!(harness.engine.named("third", "web"), None);
    assert_taken(create(&harness, "test", "web").await, Some(&id));
    // A refusal is no failed start.
    assert_eq!(harness.kinds(&id).await, ["sandbox.created", "sandbox.started"]);
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    assert_taken(create(&harness, "test", "web").await, Some(&id));
    harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
    assert_eq!(harness.engine.named("test", "web"), None);
    let next = create(&harness, "test", "web").await.unwrap();
    assert_eq!(harness.engine.named("test", "web"), Some(next));
    harness.assert_clean().await;
    assert_eq!(harness.engine.named("test", "web"), None);
}

#[tokio::test(start_paused = true)]
async fn of_concurrent_creates_one_gets_the_name() {
    for harness in [Harness::new(settings()).await, Harness::new(with_pool(2)).await] {
        settle().await;
        let creates = (0..8).map(|_| create(&harness, "test", "web"));
        let results = futures_util::future::join_all(creates).await;
        let ids: Vec<&SandboxId> = results.iter().flatten().collect();
        assert_eq!(ids.len(), 1, "{results:?}");
        assert!(
            results.iter().filter_map(|result| result.as_ref().err()).all(|error| matches!(
                error,
                EngineError::Sandbox(SandboxError::NameTaken { holder, .. }) if holder.as_ref().is_none_or(|id| id == ids[0])
            )),
            "{results:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_create_frees_the_name() {
    let harness = Harness::new(settings()).await;
    harness.driver.fail_next(DriverOp::Start, Fault::Before);
    assert!(create(&harness, "test", "web").await.is_err());
    harness.fail_next_commit();
    assert!(create(&harness, "test", "web").await.is_err());
    assert_eq!(harness.engine.named("test", "web"), None);
    create(&harness, "test", "web").await.unwrap();
}

#[test]
fn a_name_survives_a_restart() {
    two_daemons(
        (settings(), async |harness: &Harness| create(harness, "test", "web").await.unwrap()),
        (settings(), async |harness: &Harness, id: SandboxId| {
            assert_eq!(harness.engine.named("test", "web"), Some(id.clone()));
            assert_taken(create(harness, "test", "web").await, Some(&id));
            harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
            create(harness, "test", "web").await.unwrap();
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_still_resolves_names() {
    let harness = Harness::new(settings()).await;
    let id = create(&harness, "test", "web").await.unwrap();
    harness.engine.shutdown().await;
    assert_eq!(harness.engine.named("test", "web"), Some(id.clone()));
    let status = harness.engine.sandbox("test", &id).status().await;
    assert!(matches!(status, Err(EngineError::Daemon(DaemonError::Stopping))));
    harness.store.open_again();
    let (driver, store) = (harness.driver.clone(), harness.store.clone());
    let next = Harness::over(driver, store, settings(), START.after(HOUR)).await;
    assert_eq!(next.engine.named("test", "web"), Some(id));
}

#[tokio::test(start_paused = true)]
async fn a_fork_has_a_name_of_its_own_or_none() {
    let harness = Harness::new(settings()).await;
    let id = create(&harness, "test", "web").await.unwrap();
    assert_eq!(fork(&harness, &id, None).await.unwrap().config.name(), None);
    assert_eq!(harness.engine.named("test", "web"), Some(id.clone()));
    assert_taken(fork(&harness, &id, Some("web")).await, Some(&id));
    let copy = fork(&harness, &id, Some("copy")).await.unwrap();
    assert_eq!(harness.engine.named("test", "copy"), Some(copy.id.clone()));
    assert_taken(create(&harness, "test", "copy").await, Some(&copy.id));
    harness.assert_clean().await;
}
