//! Lifecycle events of a sandbox, for handlers registered with [`Sandbox::on`](crate::Sandbox::on). Calls of a handle report what they
//! did and observed; handlers run in the task of the call, before it returns.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use api::Timestamp;

use crate::Error;

/// A lifecycle event of a sandbox: [`Started`], [`Paused`], [`Resumed`], [`Terminated`] or [`Failed`].
///
/// ```
/// use sandboxd_client::{LifecycleEvent, Paused};
/// fn name<E: LifecycleEvent>(_: &E) -> &'static str { E::NAME }
/// assert_eq!(name(&Paused { runtime_duration_ms: 1 }), "paused");
/// ```
pub trait LifecycleEvent: Any + Send + Sync + sealed::Sealed {
    /// The name of the event.
    const NAME: &'static str;
}

/// The sandbox was created and runs.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// let sandbox = client.create("ubuntu:24.04").on(|_: &sandboxd_client::Started| println!("it runs")).await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started;

/// The sandbox was paused.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// sandbox.on(|paused: &sandboxd_client::Paused| println!("after {} ms", paused.runtime_duration_ms));
/// sandbox.pause().await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    /// The total running time so far.
    pub runtime_duration_ms: u64,
}

/// The sandbox was resumed.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// sandbox.on(|resumed: &sandboxd_client::Resumed| println!("after {} ms", resumed.paused_duration_ms));
/// sandbox.pause().await?;
/// sandbox.resume().await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// The duration of the pause.
    pub paused_duration_ms: u64,
}

/// The sandbox is terminated. Reported once, by the call that terminated it or the first that found it terminated.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// sandbox.on(|end: &sandboxd_client::Terminated| assert_eq!(end.reason, "deleted"));
/// sandbox.terminate().await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminated {
    /// `deleted` on request, `timeout` when its running time was used up, `expired` when it was paused for too long.
    pub reason: String,
    /// The total running time; `None` if the call found the sandbox terminated.
    pub total_runtime_ms: Option<u64>,
    /// The time of termination, if the service reported it.
    pub terminated_at: Option<Timestamp>,
}

/// A call failed.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// sandbox.on(|failed: &sandboxd_client::Failed| eprintln!("{}", failed.error));
/// assert!(sandbox.resume().await.is_err());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Failed {
    /// The error that the call returns.
    pub error: Error,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Started {}
    impl Sealed for super::Paused {}
    impl Sealed for super::Resumed {}
    impl Sealed for super::Terminated {}
    impl Sealed for super::Failed {}
}

impl LifecycleEvent for Started {
    const NAME: &'static str = "started";
}

impl LifecycleEvent for Paused {
    const NAME: &'static str = "paused";
}

impl LifecycleEvent for Resumed {
    const NAME: &'static str = "resumed";
}

impl LifecycleEvent for Terminated {
    const NAME: &'static str = "terminated";
}

impl LifecycleEvent for Failed {
    const NAME: &'static str = "error";
}

type Handler = Arc<dyn Fn(&dyn Any) + Send + Sync>;

/// The registered handlers. Clones share them.
#[derive(Clone, Default)]
pub struct Handlers {
    all: Arc<Mutex<Vec<Handler>>>,
}

impl Handlers {
    pub fn add<E: LifecycleEvent>(&self, handler: impl Fn(&E) + Send + Sync + 'static) {
        let handler: Handler = Arc::new(move |event: &dyn Any| {
            if let Some(event) = event.downcast_ref::<E>() {
                handler(event);
            }
        });
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(handler);
    }

    pub fn notify<E: LifecycleEvent>(&self, event: &E) {
        // Calls handlers without the lock, because a handler may add another.
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().for_each(|handler| handler(event));
    }
}
