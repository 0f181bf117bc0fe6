//! The tasks of connections, and of the requests on HTTP/2 ones: counted, and ended together. `serve` owns them.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// They end by themselves or when they are killed. Clones share them.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    kill: CancellationToken,
}

impl Tasks {
    pub fn new() -> Self {
        Self { tracker: TaskTracker::new(), kill: CancellationToken::new() }
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tracker.spawn(async move {
            kill.run_until_cancelled_owned(task).await;
        });
    }

    /// Kills them all when what is returned is dropped.
    pub fn kill_on_drop(&self) -> DropGuard {
        self.kill.clone().drop_guard()
    }

    /// Waits for all to end, at most `grace`, kills the rest, and says how many that were. Nothing may be spawned from outside
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

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
