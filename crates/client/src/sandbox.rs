//! A handle for one sandbox.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::{EventKind, PauseResult, ResumeResult, SandboxId, SandboxView, TerminateResult};
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde_json::{Map, Value};

use crate::client::Client;
use crate::happenings::{Failed, Handlers, Happening, Paused, Resumed, Terminated};
use crate::retry::Safety;
use crate::run::Run;
use crate::transport::Call;
use crate::{Error, Result};

const DELETED: &str = "deleted";

impl Client {
    /// A sandbox that is there, with what the service says of it.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let id = client.create("ubuntu:24.04").await?.id().to_string();
    /// let sandbox = client.get(&id).await?;
    /// assert_eq!(sandbox.known().unwrap().image, "ubuntu:24.04");
    /// # Ok(()) });
    /// ```
    pub async fn get(&self, id: &str) -> Result<Sandbox> {
        let sandbox = self.sandbox(id)?;
        sandbox.refresh().await?;
        Ok(sandbox)
    }

    /// A handle for a sandbox, without asking whether there is one.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let id = client.create("ubuntu:24.04").await?.id().to_string();
    /// let result = client.sandbox(&id)?.execute("echo hi").await?;
    /// assert!(client.sandbox("../etc").is_err());
    /// # Ok(()) });
    /// ```
    pub fn sandbox(&self, id: &str) -> Result<Sandbox> {
        let id: SandboxId =
            id.parse().map_err(|why| Error::configuration(format!("{id:?} is no sandbox: {why}")))?;
        Ok(Sandbox::new(self.clone(), id, None))
    }
}

/// A handle for one sandbox. Clones are the same handle. Dropping it does nothing to the sandbox; see
/// [`terminate_on_drop`](Self::terminate_on_drop).
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// let sandbox = client.create("ubuntu:24.04").await?;
/// sandbox.execute("echo kept > note").await?;
/// sandbox.pause().await?;
/// sandbox.resume().await?;
/// sandbox.terminate().await?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    id: SandboxId,
    known: Mutex<Option<SandboxView>>,
    handlers: Handlers,
    run: Mutex<Option<Run>>,
    gone: AtomicBool,
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
        let (known, run, gone) = (Mutex::new(known), Mutex::new(run), AtomicBool::new(false));
        Self { inner: Arc::new(Inner { client, id, known, handlers, run, gone }) }
    }

    /// Its identifier.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// let sandbox = client.create("ubuntu:24.04").await?;
    /// assert!(sandbox.id().as_str().starts_with("sb_"));
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> &SandboxId {
        &self.inner.id
    }

    /// What the service said of it last, through create, get or [`refresh`](Self::refresh). Nothing is asked.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// let sandbox = client.create("ubuntu:24.04").await?;
    /// assert_eq!(sandbox.known().unwrap().workdir, "/workspace");
    /// # Ok(()) });
    /// ```
    pub fn known(&self) -> Option<SandboxView> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the service what it says now.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.pause().await?;
    /// assert_eq!(sandbox.refresh().await?.state, sandboxd_client::SandboxState::Paused);
    /// # Ok(()) });
    /// ```
    pub async fn refresh(&self) -> Result<SandboxView> {
        let view = self.view().await.map_err(|error| self.failed(error))?;
        *self.inner.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        Ok(view)
    }

    async fn view(&self) -> Result<SandboxView> {
        self.json(Call::get(self.path(""))).await
    }

    /// Below the sandbox; what follows begins with a slash, or there is nothing.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}{rest}", self.inner.id)
    }

    /// A call about this sandbox, as every one is sent: with the run that it belongs to.
    pub(crate) async fn json<T: serde::de::DeserializeOwned>(&self, call: Call) -> Result<T> {
        self.inner.client.transport().json(self.in_run(call)?).await
    }

    /// The same for an answer that is read as it comes.
    pub(crate) async fn stream(&self, call: Call) -> Result<Response<Incoming>> {
        self.inner.client.transport().stream(self.in_run(call)?).await
    }

    fn in_run(&self, call: Call) -> Result<Call> {
        match self.run() {
            Some(run) => run.named(call),
            None => Ok(call),
        }
    }

    fn run(&self) -> Option<Run> {
        self.inner.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops all its processes where they are.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// let paused = sandbox.pause().await?;
    /// println!("it ran for {} ms", paused.runtime_duration_ms);
    /// # Ok(()) });
    /// ```
    pub async fn pause(&self) -> Result<PauseResult> {
        let paused: PauseResult = self.order("pause").await?;
        let runtime_duration_ms = paused.runtime_duration_ms;
        self.note(EventKind::SandboxPaused, &[("runtimeDurationMs", runtime_duration_ms.into())]);
        self.tell(&Paused { runtime_duration_ms });
        Ok(paused)
    }

    /// Lets them go on. A command does this by itself.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.pause().await?;
    /// let resumed = sandbox.resume().await?;
    /// println!("it stood for {} ms", resumed.paused_duration_ms);
    /// # Ok(()) });
    /// ```
    pub async fn resume(&self) -> Result<ResumeResult> {
        let resumed: ResumeResult = self.order("resume").await?;
        let paused_duration_ms = resumed.paused_duration_ms;
        self.note(EventKind::SandboxResumed, &[("pausedDurationMs", paused_duration_ms.into())]);
        self.tell(&Resumed { paused_duration_ms });
        Ok(resumed)
    }

    async fn order<T: serde::de::DeserializeOwned>(&self, verb: &str) -> Result<T> {
        let call = Call::new(Method::POST, self.path(&format!("/{verb}")), Safety::AfterAnswer);
        self.json(call).await.map_err(|error| self.failed(error))
    }

    /// Ends it. Its processes, files and disk are gone. When the answer of a first try was lost and a second one finds that it
    /// worked, that is a success too; how long it ran is then not known.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// let end = sandbox.terminate().await?;
    /// assert_eq!(end.reason, "deleted");
    /// assert_eq!(sandbox.refresh().await.unwrap_err().code(), sandboxd_client::Code::SandboxNotFound);
    /// # Ok(()) });
    /// ```
    pub async fn terminate(&self) -> Result<Terminated> {
        let call = Call::new(Method::DELETE, self.path(""), Safety::Repeatable);
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

    /// Calls `handler` whenever something happens to the sandbox that this handle or a clone of it does or learns. The type of
    /// its argument says what: [`Started`](crate::Started), [`Paused`], [`Resumed`], [`Terminated`] or [`Failed`].
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use sandboxd_client::{Failed, Terminated};
    /// sandbox.on(|end: &Terminated| println!("gone: {}", end.reason));
    /// sandbox.on(|failed: &Failed| eprintln!("{}", failed.error));
    /// sandbox.terminate().await?;
    /// # Ok(()) });
    /// ```
    pub fn on<H: Happening>(&self, handler: impl Fn(&H) + Send + Sync + 'static) {
        self.inner.handlers.add(handler);
    }

    /// Notes in `run` what this handle and its clones do from now on.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
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
        self.inner.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn tell<H: Happening>(&self, happening: &H) {
        self.inner.handlers.tell(happening);
    }

    pub(crate) fn note(&self, kind: EventKind, data: &[(&str, Value)]) {
        if let Some(run) = self.run() {
            let data: Map<String, Value> =
                data.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            run.record(kind, Some(&self.inner.id), data);
        }
    }

    /// Tells of a failed call, and of the sandbox's end where the error says that.
    pub(crate) fn failed(&self, error: Error) -> Error {
        if let Some(reason) = error.terminated() {
            self.ended(&Terminated {
                reason: reason.to_owned(),
                total_runtime_ms: None,
                terminated_at: None,
            });
        }
        self.note(
            EventKind::SandboxError,
            &[
                ("code", error.code_name().into()),
                ("message", error.message().into()),
                ("requestId", error.request_id().into()),
            ],
        );
        self.tell(&Failed { error: error.clone() });
        error
    }

    /// Told once.
    fn ended(&self, end: &Terminated) {
        if !self.inner.gone.swap(true, Ordering::Relaxed) {
            let data =
                [("reason", end.reason.as_str().into()), ("totalRuntimeMs", end.total_runtime_ms.into())];
            self.note(EventKind::SandboxTerminated, &data);
            self.tell(end);
        }
    }
}

impl Run {
    /// Posts what the program says of itself from now on (`agent.*` and `cost.llm`) to the events of a sandbox, where it is listed
    /// and streamed with what the service itself tells of this run. Has to be called within a Tokio runtime, and holds up
    /// nobody: what is said within 2 s goes together, and [`delivered`](Self::delivered) waits until all is there.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
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
        self.posting(sandbox.client().transport().clone(), sandbox.path("/events"))
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("id", &self.inner.id).finish_non_exhaustive()
    }
}
