//! A sandbox that is terminated at the end of a scope.

use std::ops::Deref;
use std::time::Duration;

use crate::Result;
use crate::sandbox::Sandbox;
use crate::sandbox::lifecycle::Terminated;

/// Limit for a drop, so that an unreachable service does not block it.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Terminates the sandbox when the returned guard is dropped, also on early return or panic.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let id = {
    /// let sandbox = client.create("ubuntu:24.04").await?.terminate_on_drop();
    /// sandbox.execute("true").await?;
    /// # sandbox.id().to_string() };
    /// # assert!(client.get(&id).await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn terminate_on_drop(self) -> Guard {
        Guard::new(self)
    }
}

/// Terminates its sandbox on drop, also on early return or panic. The drop blocks the thread until the request completes: some
/// milliseconds, at most 10 s. [`terminate`](Self::terminate) does not block, and returns errors.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// let sandbox = client.create("ubuntu:24.04").await?.terminate_on_drop();
/// sandbox.execute("true").await?;
/// sandbox.terminate().await?;
/// # Ok(()) });
/// ```
#[derive(Debug)]
#[must_use = "the sandbox is terminated when this is dropped"]
pub struct Guard {
    sandbox: Option<Sandbox>,
    handle: Sandbox,
}

impl Guard {
    fn new(sandbox: Sandbox) -> Self {
        Self { handle: sandbox.clone(), sandbox: Some(sandbox) }
    }

    /// Terminates the sandbox now.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let guard = client.create("ubuntu:24.04").await?.terminate_on_drop();
    /// assert_eq!(guard.terminate().await?.reason, "deleted");
    /// # Ok(()) });
    /// ```
    pub async fn terminate(mut self) -> Result<Terminated> {
        // The guard stays armed while the request runs, so dropping this future still terminates the sandbox.
        let end = self.handle.terminate().await;
        self.sandbox = None;
        end
    }

    /// Disarms the guard and returns the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let guard = client.create("ubuntu:24.04").await?.terminate_on_drop();
    /// let sandbox = guard.keep();
    /// sandbox.refresh().await?;
    /// # Ok(()) });
    /// ```
    pub fn keep(mut self) -> Sandbox {
        self.sandbox = None;
        self.handle.clone()
    }
}

impl Deref for Guard {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.handle
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(sandbox) = self.sandbox.take().filter(|sandbox| !sandbox.is_gone()) else { return };
        // A separate thread and runtime, because the current runtime may be blocked here or shutting down.
        let asking = std::thread::Builder::new().name("terminate".to_owned()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            let sandbox = Sandbox::new(sandbox.client().reconnected(), sandbox.id().clone(), None);
            // An error cannot be reported; the timeouts of the sandbox end it then.
            let _ = runtime
                .block_on(async { tokio::time::timeout(TERMINATE_TIMEOUT, sandbox.terminate()).await });
        });
        if let Ok(asking) = asking {
            let _ = asking.join();
        }
    }
}
