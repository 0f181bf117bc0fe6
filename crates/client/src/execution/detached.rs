//! Detached executions: starting, inspecting, writing to, and ending them.

use std::io;
use std::mem::take;
use std::time::Duration;

use api::{DetachedBody, ExecutionId, ExecutionOutput, ExecutionView, SignalBody, StdinWritten};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hyper::Method;

use crate::execution::execute::Execute;
use crate::execution::stream::{Output, OutputBytes};
use crate::millis::ms;
use crate::pager::{LARGEST_PAGE, Page, PageRange, PagedQuery, Pager};
use crate::sandbox::Sandbox;
use crate::transport::payload::Payload;
use crate::transport::retry::Safety;
use crate::transport::{ApiCall, encoded};
use crate::{Error, Result};

/// The longest lifetime of a command.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Execute {
    /// Keeps standard input open for [`Detached::write`]. Applies to [`detached`](Self::detached) commands only.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let cat = sandbox.execute("cat").open_stdin().detached().await?;
    /// cat.write("hello\n").await?;
    /// cat.close_stdin().await?;
    /// assert_eq!(cat.wait().await?.exit_code, Some(0));
    /// # Ok(()) });
    /// ```
    pub fn open_stdin(mut self) -> Self {
        self.open_stdin = true;
        self
    }

    /// Sets how long a [`detached`](Self::detached) command waits for a reader while its stored output is full and unread; 2 minutes by
    /// default. After that, the oldest output is dropped. While a reader is connected, the command waits without limit.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use std::time::Duration;
    /// // A server whose log nobody may ever read.
    /// let server = sandbox.execute("sleep 1000").reader_timeout(Duration::ZERO).detached().await?;
    /// server.cancel().await?;
    /// # Ok(()) });
    /// ```
    pub fn reader_timeout(mut self, reader_timeout: Duration) -> Self {
        self.reader_timeout = Some(reader_timeout);
        self
    }

    /// Starts the command detached: it runs without a connection, and has no time limit unless [`timeout`](Self::timeout) sets one, of
    /// at most 24 hours.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let build = sandbox.execute("echo built").detached().await?;
    /// assert_eq!(build.wait().await?.exit_code, Some(0));
    /// assert_eq!(build.output().await?.stdout, "built\n");
    /// # Ok(()) });
    /// ```
    pub async fn detached(self) -> Result<Detached> {
        let open_stdin = self.open_stdin.then_some(true);
        let reader_timeout_ms = self.reader_timeout.map(|timeout| ms(timeout).into());
        let (sandbox, body, key) = self.into_parts();
        let body = DetachedBody {
            command: body.command,
            detached: true,
            cwd: body.cwd,
            env: body.env,
            user: body.user,
            timeout_ms: body.timeout_ms,
            reader_timeout_ms,
            stdin: body.stdin,
            open_stdin,
            auto_resume: body.auto_resume,
        };
        let path = format!("/v1/sandboxes/{}/execute", sandbox.id());
        let call = ApiCall::new(Method::POST, path, Safety::Command).json(&body)?.key(&key)?;
        let view: ExecutionView = sandbox.send(call).await?;
        Ok(Detached { sandbox, id: view.execution_id })
    }
}

impl Sandbox {
    /// Starts a detached command; the same as `execute(command).detached()`.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let server = sandbox.start("sleep 1000").await?;
    /// server.cancel().await?;
    /// # Ok(()) });
    /// ```
    pub async fn start(&self, command: impl Into<String>) -> Result<Detached> {
        self.execute(command).detached().await
    }

    /// Lists detached commands and terminals, newest first: the running ones and those that ended recently.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let started = sandbox.start("echo hi").await?;
    /// assert_eq!(sandbox.executions().await?[0].execution_id, *started.id());
    /// # Ok(()) });
    /// ```
    pub async fn executions(&self) -> Result<Vec<ExecutionView>> {
        Pager::new(AllExecutions { sandbox: self.clone() }).all().await
    }

    /// A handle for an execution. Sends no request, so the execution need not exist.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let id = sandbox.start("echo hi").await?.id().to_string();
    /// let found = sandbox.execution(&id)?;
    /// assert_eq!(found.status().await?.command, "echo hi");
    /// # Ok(()) });
    /// ```
    pub fn execution(&self, id: &str) -> Result<Detached> {
        let not_an_id = |why| {
            let message = format!("'{}' is not an execution id", id.escape_debug());
            Error::argument("executionId", message).caused_by(why)
        };
        let id = id.parse().map_err(not_an_id)?;
        Ok(Detached { sandbox: self.clone(), id })
    }
}

/// The query for all executions of a sandbox.
struct AllExecutions {
    sandbox: Sandbox,
}

impl PagedQuery for AllExecutions {
    type Item = ExecutionView;
    type Key = ExecutionId;

    fn page_size(&self) -> u32 {
        LARGEST_PAGE
    }

    fn key(execution: &ExecutionView) -> ExecutionId {
        execution.execution_id.clone()
    }

    async fn fetch(&self, range: PageRange) -> Result<Page<ExecutionView>> {
        let path = format!("/v1/sandboxes/{}/executions?{range}", self.sandbox.id());
        self.sandbox.send(ApiCall::get(path)).await
    }
}

/// A handle for a detached command or a terminal. Dropping it does not affect the command.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// use sandboxd_client::Output;
/// use futures_util::TryStreamExt;
/// let tests = sandbox.execute("echo one; echo two").detached().await?;
/// // Follow the output here, later or in another process. Lost connections are re-established; no line is missed or repeated.
/// let lines: Vec<Output> = tests.follow().try_collect().await?;
/// assert_eq!(lines[1], Output::Stdout("two".into()));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Detached {
    sandbox: Sandbox,
    id: ExecutionId,
}

impl Detached {
    pub(crate) fn new(sandbox: Sandbox, id: ExecutionId) -> Self {
        Self { sandbox, id }
    }

    /// The identifier.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert!(sandbox.start("true").await?.id().as_str().starts_with("ex_"));
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> &ExecutionId {
        &self.id
    }

    /// The sandbox in which it runs.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.start("true").await?.sandbox().id(), sandbox.id());
    /// # Ok(()) });
    /// ```
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub(crate) fn path(&self, what: &str) -> String {
        format!("/v1/sandboxes/{}/executions/{}{what}", self.sandbox.id(), self.id)
    }

    /// Returns the current state.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let sleeping = sandbox.start("sleep 1000").await?;
    /// assert_eq!(sleeping.status().await?.state, sandboxd_client::ExecutionState::Running);
    /// # Ok(()) });
    /// ```
    pub async fn status(&self) -> Result<ExecutionView> {
        self.sandbox.send(ApiCall::get(self.path(""))).await
    }

    /// Returns the output so far.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let command = sandbox.start("echo hi").await?;
    /// command.wait().await?;
    /// let output = command.output().await?;
    /// assert_eq!(output.stdout, "hi\n");
    /// assert_eq!(command.output_after(&output.next).await?.stdout, "");
    /// # Ok(()) });
    /// ```
    pub async fn output(&self) -> Result<ExecutionOutput> {
        self.sandbox.send(ApiCall::get(self.path("/output"))).await
    }

    /// Returns the output after an offset, as in [`ExecutionOutput::next`](crate::ExecutionOutput).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let command = sandbox.start("echo hi").await?;
    /// command.wait().await?;
    /// assert_eq!(command.output_after("1.0").await?.stdout, "i\n");
    /// # Ok(()) });
    /// ```
    pub async fn output_after(&self, offset: &str) -> Result<ExecutionOutput> {
        self.sandbox.send(ApiCall::get(self.path(&format!("/output?after={}", encoded(offset))))).await
    }

    /// Returns the exact bytes of the output so far, or of that after an offset, also if they are not UTF-8.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let command = sandbox.start("echo hi").await?;
    /// command.wait().await?;
    /// let output = command.output_bytes(None).await?;
    /// assert_eq!(&output.stdout[..], b"hi\n");
    /// assert!(command.output_bytes(Some(&output.result.next)).await?.stdout.is_empty());
    /// # Ok(()) });
    /// ```
    pub async fn output_bytes(&self, offset: Option<&str>) -> Result<OutputBytes<ExecutionOutput>> {
        let after = offset.map(|offset| format!("&after={}", encoded(offset))).unwrap_or_default();
        let path = self.path(&format!("/output?encoding=base64{after}"));
        let mut output: ExecutionOutput = self.sandbox.send(ApiCall::get(path)).await?;
        let texts = [take(&mut output.stdout), take(&mut output.stderr)];
        OutputBytes::new(texts, output.encoding, output)
    }

    /// Waits until the command ends, reconnecting when a connection is lost.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.start("exit 3").await?.wait().await?.exit_code, Some(3));
    /// # Ok(()) });
    /// ```
    pub async fn wait(&self) -> Result<ExecutionView> {
        use futures_util::TryStreamExt;
        let status = self.status().await?;
        if status.ended_at.is_some() {
            return Ok(status);
        }
        let mut rest = self.follow_from(status.output_end);
        while let Some(output) = rest.try_next().await? {
            if matches!(output, Output::Done(_)) {
                break;
            }
        }
        self.status().await
    }

    /// Writes to standard input and returns when the command has taken the bytes. A write whose response is lost is not retried.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let cat = sandbox.execute("cat").open_stdin().detached().await?;
    /// cat.write("hello\n").await?;
    /// # Ok(()) });
    /// ```
    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<()> {
        self.written("/stdin", Payload::Whole(bytes.into()), None).await
    }

    /// Writes chunks to standard input as they come, in one request, and returns when the command has taken all of them. Waits as long as
    /// the command does not read. The service refuses a request whose chunks come too slowly for long. `begin` gives the chunks, anew for each
    /// attempt: a refused request is sent again, and one whose response is lost is not.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let cat = sandbox.execute("cat").open_stdin().detached().await?;
    /// cat.write_stream(|| futures_util::stream::iter([Ok("one\n".into()), Ok("two\n".into())])).await?;
    /// # Ok(()) });
    /// ```
    pub async fn write_stream<S>(&self, begin: impl Fn() -> S + Send + Sync + 'static) -> Result<()>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        self.written("/stdin", Payload::repeatable(move || begin().boxed()), Some(LONGEST)).await
    }

    /// Closes standard input.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let cat = sandbox.execute("cat").open_stdin().detached().await?;
    /// cat.close_stdin().await?;
    /// cat.wait().await?;
    /// let error = cat.write("late").await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::ExecutionEnded);
    /// # Ok(()) });
    /// ```
    pub async fn close_stdin(&self) -> Result<()> {
        self.written("/stdin?close=true", Payload::Whole(Bytes::new()), None).await
    }

    async fn written(&self, what: &str, content: Payload, limit: Option<Duration>) -> Result<()> {
        let mut call = ApiCall::new(Method::POST, self.path(what), Safety::OnlyUnstarted)
            .payload(content, "application/octet-stream");
        if let Some(limit) = limit {
            call = call.timeout(limit);
        }
        self.sandbox.send::<StdinWritten>(call).await.map(drop)
    }

    /// Sends a signal, such as `SIGINT`.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let sleeping = sandbox.start("sleep 1000").await?;
    /// sleeping.signal("SIGTERM").await?;
    /// assert_eq!(sleeping.wait().await?.signal.as_deref(), Some("SIGTERM"));
    /// # Ok(()) });
    /// ```
    pub async fn signal(&self, name: &str) -> Result<()> {
        let body = SignalBody { signal: name.to_owned() };
        let call = ApiCall::new(Method::POST, self.path("/signal"), Safety::AfterAnswer).json(&body)?;
        // The command of a paused sandbox cannot get it. Whoever sends it wants the command to end now.
        let call = call.unless_disk_is_full();
        self.sandbox.send::<ExecutionView>(call).await.map(drop)
    }

    /// Kills the command and all its processes. Has no effect if it has ended.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let ended = sandbox.start("sleep 1000").await?.cancel().await?;
    /// assert_eq!(ended.signal.as_deref(), Some("SIGKILL"));
    /// # Ok(()) });
    /// ```
    pub async fn cancel(&self) -> Result<ExecutionView> {
        let call = ApiCall::new(Method::DELETE, self.path(""), Safety::Repeatable);
        self.sandbox.send(call.unless_disk_is_full()).await
    }
}
