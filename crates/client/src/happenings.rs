//! What happens to a sandbox, told to whoever asked for it (section 6.2 of the specification). The calls of a handle tell what they
//! did and what they learnt; a handler is called in the task of the call, before the call answers.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use api::Timestamp;

use crate::Error;

/// Something that can happen to a sandbox: [`Started`], [`Paused`], [`Resumed`], [`Terminated`] or [`Failed`].
///
/// ```
/// use sandboxd_client::{Happening, Paused};
/// fn name<H: Happening>(_: &H) -> &'static str { H::NAME }
/// assert_eq!(name(&Paused { runtime_duration_ms: 1 }), "paused");
/// ```
pub trait Happening: Any + Send + Sync + sealed::Sealed {
    /// As the specification calls it.
    const NAME: &'static str;
}

/// It was made and runs.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// let sandbox = client.create("ubuntu:24.04").on(|_: &sandboxd_client::Started| println!("it runs")).await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started;

/// It was paused.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// sandbox.on(|paused: &sandboxd_client::Paused| println!("after {} ms", paused.runtime_duration_ms));
/// sandbox.pause().await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    /// All its running time so far.
    pub runtime_duration_ms: u64,
}

/// It was resumed.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// sandbox.on(|resumed: &sandboxd_client::Resumed| println!("after {} ms", resumed.paused_duration_ms));
/// sandbox.pause().await?;
/// sandbox.resume().await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// How long this pause was.
    pub paused_duration_ms: u64,
}

/// It is gone. Told once, by the call that ended it or the first one that found it gone.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// sandbox.on(|end: &sandboxd_client::Terminated| assert_eq!(end.reason, "deleted"));
/// sandbox.terminate().await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminated {
    /// `deleted` when somebody asked for it, `timeout` when its lifetime was over, `expired` when it was paused for too long.
    pub reason: String,
    /// All its running time; not known to a call that found it gone.
    pub total_runtime_ms: Option<u64>,
    /// When that was; known where the service answered to it.
    pub terminated_at: Option<Timestamp>,
}

/// A call failed.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// sandbox.on(|failed: &sandboxd_client::Failed| eprintln!("{}", failed.error));
/// assert!(sandbox.resume().await.is_err());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Failed {
    /// The error that the call answers.
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

impl Happening for Started {
    const NAME: &'static str = "started";
}

impl Happening for Paused {
    const NAME: &'static str = "paused";
}

impl Happening for Resumed {
    const NAME: &'static str = "resumed";
}

impl Happening for Terminated {
    const NAME: &'static str = "terminated";
}

impl Happening for Failed {
    const NAME: &'static str = "error";
}

type Handler = Arc<dyn Fn(&dyn Any) + Send + Sync>;

/// Those who asked. Clones share them.
#[derive(Clone, Default)]
pub struct Handlers {
    all: Arc<Mutex<Vec<Handler>>>,
}

impl Handlers {
    pub fn add<H: Happening>(&self, handler: impl Fn(&H) + Send + Sync + 'static) {
        let handler: Handler = Arc::new(move |happening: &dyn Any| {
            if let Some(happening) = happening.downcast_ref::<H>() {
                handler(happening);
            }
        });
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(handler);
    }

    pub fn tell<H: Happening>(&self, happening: &H) {
        // Not under the lock: a handler may add another one.
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().for_each(|handler| handler(happening));
    }
}
