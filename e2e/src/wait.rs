//! Waits of tests for something that happens soon.

use std::time::{Duration, Instant};

/// How long a test waits before it fails. Long, because other programs may keep the machine busy; a condition that holds costs nothing.
pub const PATIENCE: Duration = Duration::from_secs(90);

const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until a condition is true.
///
/// # Panics
///
/// If that takes longer than [`PATIENCE`].
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}
