//! A sandbox that does not outlive a scope.

use std::ops::Deref;
use std::time::Duration;

use crate::Result;
use crate::happenings::Terminated;
use crate::sandbox::Sandbox;

/// How long a drop may take; a service that is not there is no reason to hang.
const PATIENCE: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Terminates it when the guard is dropped, be it by an early return or a panic.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
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

/// Terminates its sandbox when it is dropped, be it by an early return or a panic. A drop cannot wait as async code does, so it
/// asks from a thread of its own and blocks for as long as that takes, some milliseconds, 10 s at most.
/// [`terminate`](Self::terminate) does the same without blocking, and tells of its errors.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
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

    /// Terminates it now, and tells how that went.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let guard = client.create("ubuntu:24.04").await?.terminate_on_drop();
    /// assert_eq!(guard.terminate().await?.reason, "deleted");
    /// # Ok(()) });
    /// ```
    pub async fn terminate(mut self) -> Result<Terminated> {
        // Still guarded while it waits: whoever drops this future finds the sandbox in its place.
        let end = self.handle.terminate().await;
        self.sandbox = None;
        end
    }

    /// Lets the sandbox live on.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
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
        // The runtime that this one is dropped in may be busy here, or about to end: neither may keep the sandbox alive.
        let asking = std::thread::Builder::new().name("terminate".to_owned()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            let apart = Sandbox::new(sandbox.client().apart(), sandbox.id().clone(), None);
            // What fails here nobody hears; the sandbox's own timeouts end it then.
            let _ = runtime.block_on(async { tokio::time::timeout(PATIENCE, apart.terminate()).await });
        });
        if let Ok(asking) = asking {
            let _ = asking.join();
        }
    }
}
