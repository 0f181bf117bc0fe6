use api::{OnTimeout, SandboxConfig, SandboxState};
use engine::TimeoutChange;

use crate::harness::{HOUR, Harness, MINUTE, SECOND, START, config, pass, settings};

#[tokio::test(start_paused = true)]
async fn each_end_of_a_timeout_is_announced_a_minute_before() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(SandboxConfig { timeout_ms: HOUR, ..config() }).await.unwrap();
    let sandbox = || harness.engine.sandbox("test", &id);
    let (mut one, mut other) =
        (sandbox().expiry_warnings().await.unwrap(), sandbox().expiry_warnings().await.unwrap());
    let warning = one.next().await;
    let minutes = || harness.clock.now().since(START) / MINUTE;
    assert_eq!((minutes(), warning.expires_at.since(harness.clock.now()).div_ceil(SECOND)), (59, 60));
    assert!(warning.message.contains(&format!("sandbox '{id}' will be terminated in 60 s")), "{warning:?}");
    assert_eq!(other.next().await, warning);

    // The clock stands still while it is paused, and a longer timeout is announced anew.
    sandbox().change_timeout(TimeoutChange::Set(10 * MINUTE)).await.unwrap();
    pass(5 * MINUTE).await;
    sandbox().pause().await.unwrap();
    let late = tokio::time::timeout(std::time::Duration::from_secs(24 * 60 * 60), one.next()).await;
    assert!(late.is_err(), "a paused sandbox does not expire: {late:?}");
    sandbox().resume().await.unwrap();
    let resumed = minutes();
    let warning = one.next().await;
    assert_eq!(
        (minutes() - resumed, warning.expires_at.since(harness.clock.now()).div_ceil(SECOND)),
        (4, 60)
    );
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));

    // The end brings no other one.
    let last = tokio::time::timeout(std::time::Duration::from_secs(60 * 60), one.next()).await;
    assert!(last.is_err() && harness.ended(&id).await.1 == "timeout", "{last:?}");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_with_less_than_a_minute_is_announced_at_once() {
    let harness = Harness::new(settings()).await;
    let config = SandboxConfig { timeout_ms: 30 * SECOND, on_timeout: OnTimeout::Pause, ..config() };
    let id = harness.create_with(config).await.unwrap();
    let mut warnings = harness.engine.sandbox("test", &id).expiry_warnings().await.unwrap();
    let warning = warnings.next().await;
    assert!(warning.message.contains("will be paused in 30 s"), "{warning:?}");
    harness.assert_clean().await;
}
