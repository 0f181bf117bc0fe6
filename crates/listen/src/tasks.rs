//! The tasks of connections and of the streams of HTTP/2 connections. `serve` owns, counts and ends them.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// A set of tasks. Each ends by itself or when the set is killed. Clones share the set.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    kill: CancellationToken,
}

impl Tasks {
    pub fn new() -> Self {
        Self { tracker: TaskTracker::new(), kill: CancellationToken::new() }
    }

    /// Starts a task that is awaited when the server stops.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tracker.spawn(async move {
            kill.run_until_cancelled_owned(task).await;
        });
    }

    /// Kills all tasks when the returned guard is dropped.
    pub fn kill_on_drop(&self) -> DropGuard {
        self.kill.clone().drop_guard()
    }

    /// Waits at most `grace` for all tasks to end, kills the rest and returns their number. The caller must not spawn tasks
    /// afterwards.
    pub async fn finish(&self, grace: Duration) -> usize {
        self.tracker.close();
        let in_time = tokio::time::timeout(grace, self.tracker.wait()).await;
        let left = if in_time.is_ok() { 0 } else { self.tracker.len() };
        self.kill.cancel();
        self.tracker.wait().await;
        left
    }
}
