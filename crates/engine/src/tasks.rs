//! The tracked tasks of one engine, and the signal that stops them.
//!
//! Tracked are actors, creates, log writers and the background loops: `shutdown` waits for them. Three kinds of tasks are owned by a
//! handle instead and end with it: the timer (`Timer`), the I/O of a link (`Agent`), and the time limit of a command (`Deadline`).

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Clones refer to the same tasks.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stopping: CancellationToken,
}

impl Tasks {
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task)
    }

    /// Spawns a loop that is dropped when the engine stops.
    pub fn spawn_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tracker.spawn(async move { stopping.run_until_cancelled_owned(task).await });
    }

    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Runs `work` until it completes or the engine stops. `None` if the engine stops first.
    pub async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stopping.run_until_cancelled(work).await
    }

    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Waits until all tracked tasks have ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
