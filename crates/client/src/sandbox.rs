//! A handle for one sandbox.

pub mod create;
mod find;
pub mod guard;
pub mod lifecycle;
pub mod list;
pub mod network;
pub mod ports;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{
    EventKind, PauseBody, PauseResult, ResourceMetrics, ResourceSample, ResumeBody, ResumeResult, SandboxId,
    SandboxView, TerminateResult, TimeoutBody, Timestamp,
};
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Client;
use crate::millis::ms;
use crate::run::Run;
use crate::sandbox::lifecycle::{Failed, Handlers, LifecycleEvent, Paused, Resumed, Terminated};
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Error, Result};

const DELETED: &str = "deleted";

/// A handle for one sandbox. Dropping it does not affect the sandbox; see
/// [`terminate_on_drop`](Self::terminate_on_drop).
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// let sandbox = client.create("ubuntu:24.04").await?;
/// sandbox.execute("echo kept > note").await?;
/// sandbox.pause().await?;
/// sandbox.resume().await?;
/// sandbox.terminate().await?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<SharedSandbox>,
}

struct SharedSandbox {
    client: Client,
    id: SandboxId,
    known: Mutex<Option<SandboxView>>,
    handlers: Handlers,
    run: Mutex<Option<Run>>,
    terminated: AtomicBool,
}

impl Sandbox {
    pub(crate) fn new(client: Client, id: SandboxId, known: Option<SandboxView>) -> Self {
        Self::with(client, id, known, Handlers::default(), None)
    }

    pub(crate) fn with(
        client: Client,
        id: SandboxId,
        known: Option<SandboxView>,
        handlers: Handlers,
        run: Option<Run>,
    ) -> Self {
        let (known, run, terminated) = (Mutex::new(known), Mutex::new(run), AtomicBool::new(false));
        Self { inner: Arc::new(SharedSandbox { client, id, known, handlers, run, terminated }) }
    }

    /// The identifier.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").await?;
    /// assert!(sandbox.id().as_str().starts_with("sb_"));
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> &SandboxId {
        &self.inner.id
    }

    /// The state as of the last create, get or [`refresh`](Self::refresh). Sends no request.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").await?;
    /// assert_eq!(sandbox.known().unwrap().workdir, "/workspace");
    /// # Ok(()) });
    /// ```
    pub fn known(&self) -> Option<SandboxView> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the current state.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.pause().await?;
    /// assert_eq!(sandbox.refresh().await?.state, sandboxd_client::SandboxState::Paused);
    /// # Ok(()) });
    /// ```
    pub async fn refresh(&self) -> Result<SandboxView> {
        let view: SandboxView = self.report(ApiCall::get(self.path(""))).await?;
        self.set_known(view.clone());
        Ok(view)
    }

    pub(crate) fn set_known(&self, view: SandboxView) {
        *self.inner.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }

    /// The URL path of the sandbox with a suffix, which is empty or starts with a slash.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.inner.id)
    }

    /// Sends a call about this sandbox, with the id of its run.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: ApiCall) -> Result<T> {
        self.inner.client.transport().json(self.in_run(call)?).await
    }

    /// As [`Self::json`], and reports a failure.
    pub(crate) async fn report<T: DeserializeOwned>(&self, call: ApiCall) -> Result<T> {
        self.json(call).await.map_err(|error| self.failed(error))
    }

    pub(crate) async fn send<T: DeserializeOwned>(&self, call: ApiCall) -> Result<T> {
        self.client().transport().json(call).await.map_err(|error| self.failed(error))
    }

    /// The same for a streamed response.
    pub(crate) async fn stream(&self, call: ApiCall) -> Result<Response<Incoming>> {
        self.inner.client.transport().stream(self.in_run(call)?).await
    }

    fn in_run(&self, call: ApiCall) -> Result<ApiCall> {
        match self.run() {
            Some(run) => run.with_run_id(call),
            None => Ok(call),
        }
    }

    fn run(&self) -> Option<Run> {
        self.inner.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Pauses the sandbox: freezes all its processes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let paused = sandbox.pause().await?;
    /// println!("it ran for {} ms", paused.runtime_duration_ms);
    /// # Ok(()) });
    /// ```
    pub async fn pause(&self) -> Result<PauseResult> {
        self.pause_with(&PauseBody::default()).await
    }

    /// Pauses the sandbox and stores its processes on the host's disk. They need no memory, survive a reboot, and continue at the
    /// next command, file operation or port request, or on [`Self::resume`]. Works on a paused sandbox, too. Fails with
    /// `IsolationMismatch` if the isolation of the sandbox cannot store processes.
    ///
    /// ```no_run
    /// # async fn example(sandbox: &sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// sandbox.hibernate().await?;
    /// assert!(sandbox.refresh().await?.hibernated_at.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn hibernate(&self) -> Result<PauseResult> {
        self.pause_with(&PauseBody { hibernate: Some(true) }).await
    }

    async fn pause_with(&self, body: &PauseBody) -> Result<PauseResult> {
        let paused: PauseResult = self.order("pause", body).await?;
        let runtime_duration_ms = paused.runtime_duration_ms;
        self.record_event(EventKind::SandboxPaused, &[("runtimeDurationMs", runtime_duration_ms.into())]);
        self.notify(&Paused { runtime_duration_ms });
        Ok(paused)
    }

    /// Resumes the sandbox. Commands resume it automatically. Fails at once while the disk of the host is almost full.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.pause().await?;
    /// let resumed = sandbox.resume().await?;
    /// println!("it was paused for {} ms", resumed.paused_duration_ms);
    /// # Ok(()) });
    /// ```
    pub async fn resume(&self) -> Result<ResumeResult> {
        self.resume_with(&ResumeBody::default()).await
    }

    /// Ends the processes of a paused sandbox, frozen or stored, and starts it again on its disk.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.pause().await?;
    /// sandbox.resume_cold().await?;
    /// # Ok(()) });
    /// ```
    pub async fn resume_cold(&self) -> Result<ResumeResult> {
        self.resume_with(&ResumeBody { cold: Some(true), ..ResumeBody::default() }).await
    }

    async fn resume_with(&self, body: &ResumeBody) -> Result<ResumeResult> {
        let resumed: ResumeResult = self.order("resume", body).await?;
        let paused_duration_ms = resumed.paused_duration_ms;
        self.record_event(EventKind::SandboxResumed, &[("pausedDurationMs", paused_duration_ms.into())]);
        self.notify(&Resumed { paused_duration_ms });
        Ok(resumed)
    }

    /// Changes the timeout, which then counts from now, or from the resume of a paused sandbox. Zero ends it now.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let view = sandbox.set_timeout(std::time::Duration::from_secs(3600)).await?;
    /// assert_eq!(view.timeout_ms, 3_600_000);
    /// # Ok(()) });
    /// ```
    pub async fn set_timeout(&self, timeout: Duration) -> Result<SandboxView> {
        let body = TimeoutBody { timeout_ms: ms(timeout).into() };
        let call = ApiCall::new(Method::PUT, self.path("/timeout"), Safety::Repeatable).json(&body)?;
        let view: SandboxView = self.report(call).await?;
        self.set_known(view.clone());
        Ok(view)
    }

    /// The samples of CPU, memory and disk from `start` to `end`, oldest first. A running sandbox is sampled about every 5 s.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// for sample in sandbox.metrics(None, None).await? {
    ///     println!("{} {:.1} %", sample.timestamp, sample.cpu_used_percent);
    /// }
    /// assert!(sandbox.metrics(Some("2100-01-01T00:00:00Z".parse()?), None).await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub async fn metrics(
        &self,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Result<Vec<ResourceSample>> {
        let times = [("start", start), ("end", end)];
        let given = times.into_iter().filter_map(|(name, time)| Some(format!("{name}={}", time?)));
        let query = given.collect::<Vec<_>>().join("&");
        let path = self.path(&format!("/metrics{}{query}", if query.is_empty() { "" } else { "?" }));
        Ok(self.report::<ResourceMetrics>(ApiCall::get(path)).await?.data)
    }

    async fn order<T: DeserializeOwned>(&self, verb: &str, body: &impl Serialize) -> Result<T> {
        let path = self.path(&format!("/{verb}"));
        let call = ApiCall::new(Method::POST, path, Safety::AfterAnswer).json(body)?;
        self.report(call.unless_disk_is_full()).await
    }

    /// Terminates the sandbox and deletes its files. If the response of the first attempt is lost and the retry finds the sandbox
    /// terminated, the call succeeds; its running time is then unknown.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let end = sandbox.terminate().await?;
    /// assert_eq!(end.reason, "deleted");
    /// assert_eq!(sandbox.refresh().await.unwrap_err().code(), sandboxd_client::Code::SandboxNotFound);
    /// # Ok(()) });
    /// ```
    pub async fn terminate(&self) -> Result<Terminated> {
        let call = ApiCall::new(Method::DELETE, self.path(""), Safety::Repeatable);
        let answer: Result<TerminateResult> = self.json(call).await;
        let (total_runtime_ms, terminated_at) = match answer {
            Ok(end) => (Some(end.total_runtime_ms), Some(end.terminated_at)),
            Err(error) if error.repeats() > 0 && error.terminated() == Some(DELETED) => (None, None),
            Err(error) => return Err(self.failed(error)),
        };
        let end = Terminated { reason: DELETED.to_owned(), total_runtime_ms, terminated_at };
        self.ended(&end);
        Ok(end)
    }

    /// Calls `handler` on each lifecycle event that this handle or a clone causes or observes. The type of the argument selects the
    /// event: [`Started`](crate::Started), [`Paused`], [`Resumed`], [`Terminated`] or [`Failed`].
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use sandboxd_client::{Failed, Terminated};
    /// sandbox.on(|end: &Terminated| println!("gone: {}", end.reason));
    /// sandbox.on(|failed: &Failed| eprintln!("{}", failed.error));
    /// sandbox.terminate().await?;
    /// # Ok(()) });
    /// ```
    pub fn on<H: LifecycleEvent>(&self, handler: impl Fn(&H) + Send + Sync + 'static) {
        self.inner.handlers.add(handler);
    }

    /// Records what this handle and its clones do in `run`.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let id = client.create("ubuntu:24.04").await?.id().to_string();
    /// let run = sandboxd_client::Run::new();
    /// let sandbox = client.sandbox(&id)?.with_run(&run);
    /// sandbox.execute("true").await?;
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn with_run(self, run: &Run) -> Self {
        *self.inner.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.inner.terminated.load(Ordering::Relaxed)
    }

    pub(crate) fn notify<E: LifecycleEvent>(&self, event: &E) {
        self.inner.handlers.notify(event);
    }

    pub(crate) fn record_event(&self, kind: EventKind, data: &[(&str, Value)]) {
        if let Some(run) = self.run() {
            let data = data.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            run.record(kind, Some(&self.inner.id), data);
        }
    }

    /// Reports a failed call, and the termination of the sandbox if the error reports it.
    pub(crate) fn failed(&self, error: Error) -> Error {
        if let Some(reason) = error.terminated() {
            let reason = reason.to_owned();
            self.ended(&Terminated { reason, total_runtime_ms: None, terminated_at: None });
        }
        let (code, message) = (error.code_name().into(), error.message().into());
        let data = [("code", code), ("message", message), ("requestId", error.request_id().into())];
        self.record_event(EventKind::SandboxError, &data);
        self.notify(&Failed { error: error.clone() });
        error
    }

    /// Reported once.
    fn ended(&self, end: &Terminated) {
        if !self.inner.terminated.swap(true, Ordering::Relaxed) {
            let data =
                [("reason", end.reason.as_str().into()), ("totalRuntimeMs", end.total_runtime_ms.into())];
            self.record_event(EventKind::SandboxTerminated, &data);
            self.notify(end);
        }
    }
}

impl Run {
    /// Uploads `agent.*` and `cost.llm` events to the events of a sandbox, where they are listed together with those that the service
    /// records for this run. Must be called within a Tokio runtime. Does not block: events of 2 s are sent in one batch, and
    /// [`delivered`](Self::delivered) waits until all are stored.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use sandboxd_client::{EventKind, Run};
    /// use futures_util::TryStreamExt;
    /// let run = Run::new();
    /// let sandbox = client.create("ubuntu:24.04").run(&run).await?;
    /// let run = run.to_service(&sandbox);
    /// run.tool_call("shell", serde_json::json!({"command": "true"}));
    /// sandbox.execute("true").await?;
    /// run.delivered().await?;
    /// let events: Vec<_> = client.events().run(run.id()).stream().try_collect().await?;
    /// assert!(events.iter().any(|event| event.kind == EventKind::AgentToolCall));
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn to_service(self, sandbox: &Sandbox) -> Self {
        self.uploading_to(sandbox.client().transport().clone(), sandbox.path("/events"))
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("id", &self.inner.id).finish_non_exhaustive()
    }
}
