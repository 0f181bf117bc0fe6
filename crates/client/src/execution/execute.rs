//! Running commands, with buffered or streamed output.

use std::mem::{replace, take};
use std::time::Duration;

use api::{EventKind, ExecuteBody, ExecutionResult};
use bytes::Bytes;
use hyper::Method;

use crate::Result;
use crate::execution::exec_events::{completed, failed, truncated};
use crate::execution::stream::{BYTES, LINES, LINES_WITH_ENDS, OutputBytes, OutputForm, OutputStream};
use crate::ids;
use crate::millis::ms;
use crate::sandbox::Sandbox;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;

/// The default of the service.
const TIMEOUT_MS: u64 = 60_000;

impl Sandbox {
    /// Runs a bash command line. `.await` waits for the end of the command; [`Execute::stream`] streams its output.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let result = sandbox.execute("echo out; echo err >&2; exit 3").await?;
    /// assert_eq!((result.stdout.as_str(), result.exit_code), ("out\n", Some(3)));
    /// # Ok(()) });
    /// ```
    pub fn execute(&self, command: impl Into<String>) -> Execute {
        Execute::new(self.clone(), command.into())
    }
}

/// A command to run. `.await` waits for its end; [`stream`](Self::stream) streams its output.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let result = sandbox.execute("cat; echo $NAME >&2; exit 3").stdin("in").env("NAME", "x").await?;
/// assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("in", "x\n"));
/// assert_eq!(result.exit_code, Some(3));
/// # Ok(()) });
/// ```
///
/// The request carries an `Idempotency-Key` and is retried if its response is lost; the service then returns the result of the first
/// attempt. Therefore the command keeps running if the future is dropped, unless [`killed_on_drop`](Self::killed_on_drop) is set.
#[must_use = "a command does nothing unless awaited, or started with .stream()"]
pub struct Execute {
    sandbox: Sandbox,
    body: ExecuteBody,
    pub(crate) open_stdin: bool,
    pub(crate) reader_timeout: Option<Duration>,
    form: OutputForm<String>,
    key: IdempotencyKey,
}

enum IdempotencyKey {
    Generated,
    Given(String),
    None,
}

impl Execute {
    fn new(sandbox: Sandbox, command: String) -> Self {
        let body = ExecuteBody { command, ..ExecuteBody::default() };
        let (open_stdin, reader_timeout, form) = (false, None, LINES);
        Self { sandbox, body, open_stdin, reader_timeout, form, key: IdempotencyKey::Generated }
    }

    /// The sandbox, the request body and the idempotency key, for the other ways to run it.
    pub(crate) fn into_parts(self) -> (Sandbox, ExecuteBody, String) {
        let key = match self.key {
            IdempotencyKey::Given(key) => key,
            IdempotencyKey::Generated | IdempotencyKey::None => ids::random_id("key_"),
        };
        (self.sandbox, self.body, key)
    }

    /// Sets the working directory, by default that of the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.execute("pwd").cwd("/tmp").await?.stdout, "/tmp\n");
    /// # Ok(()) });
    /// ```
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.body.cwd = Some(cwd.into());
        self
    }

    /// Sets the user, by default root: a name in the sandbox's `/etc/passwd`.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.execute("echo hello").user("root").await?.stdout, "hello\n");
    /// # Ok(()) });
    /// ```
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.body.user = Some(user.into());
        self
    }

    /// Adds an environment variable, which overrides that of the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.execute("echo $A").env("A", "1").await?.stdout, "1\n");
    /// # Ok(()) });
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.env.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Sets the text for standard input.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.execute("cat").stdin("hello").await?.stdout, "hello");
    /// # Ok(()) });
    /// ```
    pub fn stdin(mut self, stdin: impl Into<String>) -> Self {
        self.body.stdin = Some(stdin.into());
        self
    }

    /// Kills the command and all its processes after this time: by default 60 s, at most 5 minutes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let result = sandbox.execute("sleep 60").timeout(std::time::Duration::from_millis(10)).await?;
    /// assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")));
    /// # Ok(()) });
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.body.timeout_ms = Some(ms(timeout).into());
        self
    }

    /// Fails with [`InvalidState`](crate::Code::InvalidState) if the sandbox is paused, instead of resuming it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.pause().await?;
    /// let error = sandbox.execute("true").without_resume().await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::InvalidState);
    /// # Ok(()) });
    /// ```
    pub fn without_resume(mut self) -> Self {
        self.body.auto_resume = Some(false);
        self
    }

    /// Sets the `Idempotency-Key`: a request with the same key within 24 hours, from any process, returns the first result.
    /// Not available for streams.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let result = sandbox.execute("echo once").idempotency_key("step-1").await?;
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = IdempotencyKey::Given(key.into());
        self
    }

    /// Sends no idempotency key: the service kills the command when the future is dropped, and a lost response is an error.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use std::time::Duration;
    /// let long = sandbox.execute("sleep 1000").killed_on_drop();
    /// assert!(tokio::time::timeout(Duration::from_millis(20), long).await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn killed_on_drop(mut self) -> Self {
        self.key = IdempotencyKey::None;
        self
    }

    /// Keeps line ends in the [stream](Self::stream): `\n`, `\r\n`, or none for a part of a long line and for a last line without one.
    /// The concatenation is the output as written, with U+FFFD for bytes that are not UTF-8; [`stream_bytes`](Self::stream_bytes) has them.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use sandboxd_client::Output;
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.execute("cat").stdin("one\ntwo").with_line_ends().stream().await?;
    /// assert_eq!(output.try_next().await?, Some(Output::Stdout("one\n".into())));
    /// assert_eq!(output.try_next().await?, Some(Output::Stdout("two".into())));
    /// # Ok(()) });
    /// ```
    pub fn with_line_ends(mut self) -> Self {
        self.form = LINES_WITH_ENDS;
        self
    }

    /// Starts the command and returns once it runs. Dropping the stream kills the command.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use sandboxd_client::Output;
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.execute("echo one; echo two >&2").stream().await?;
    /// while let Some(event) = output.try_next().await? {
    ///     match event {
    ///         Output::Stdout(line) => println!("{line}"),
    ///         Output::Stderr(line) => eprintln!("{line}"),
    ///         Output::Dropped(_) => unreachable!("only detached commands have it"),
    ///         Output::Done(done) => assert_eq!(done.exit_code, Some(0)),
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    pub async fn stream(mut self) -> Result<OutputStream> {
        let form = replace(&mut self.form, LINES);
        self.started(form).await
    }

    /// Like [`stream`](Self::stream), with the exact bytes of the output as they come, also if they are not UTF-8.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use sandboxd_client::Output;
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.execute("cat").stdin("one\ntwo").stream_bytes().await?;
    /// let mut all = Vec::new();
    /// while let Some(event) = output.try_next().await? {
    ///     if let Output::Stdout(bytes) = event {
    ///         all.extend_from_slice(&bytes);
    ///     }
    /// }
    /// assert_eq!(all, b"one\ntwo");
    /// # Ok(()) });
    /// ```
    pub async fn stream_bytes(self) -> Result<OutputStream<Bytes>> {
        self.started(BYTES).await
    }

    async fn started<T: AsRef<[u8]> + Send + 'static>(self, form: OutputForm<T>) -> Result<OutputStream<T>> {
        let what = format!("/execute{}", form.query);
        let call = self.call(&what, Safety::OnlyUnstarted)?.accept("text/event-stream");
        let (sandbox, command) = (self.sandbox, truncated(&self.body.command));
        sandbox.record_event(EventKind::ExecStarted, &[("command", command.clone())]);
        match sandbox.stream(call).await {
            Ok(response) => Ok(OutputStream::new(response, form, sandbox, command)),
            Err(error) => Err(failed(&sandbox, command, error)),
        }
    }

    /// Runs the command like `.await`, and returns the exact bytes of its output, also if they are not UTF-8.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let output = sandbox.execute("cat").stdin("in").bytes().await?;
    /// assert_eq!((&output.stdout[..], output.result.exit_code), (&b"in"[..], Some(0)));
    /// # Ok(()) });
    /// ```
    pub async fn bytes(self) -> Result<OutputBytes<ExecutionResult>> {
        let mut result = self.run_buffered("/execute?encoding=base64").await?;
        let texts = [take(&mut result.stdout), take(&mut result.stderr)];
        OutputBytes::new(texts, result.encoding, result)
    }

    async fn send(self) -> Result<ExecutionResult> {
        self.run_buffered("/execute").await
    }

    async fn run_buffered(self, what: &str) -> Result<ExecutionResult> {
        let limit = Duration::from_millis(
            self.body.timeout_ms.map_or(TIMEOUT_MS, |ms| u64::try_from(ms).unwrap_or(TIMEOUT_MS)),
        );
        let transport = self.sandbox.client().transport();
        let call = match &self.key {
            IdempotencyKey::Generated => self.call(what, Safety::Command)?.key(&ids::random_id("key_"))?,
            IdempotencyKey::Given(key) => self.call(what, Safety::Command)?.key(key)?,
            IdempotencyKey::None => self.call(what, Safety::OnlyUnstarted)?,
        };
        let call = call.timeout(limit.saturating_add(transport.timeout()));
        let (sandbox, command) = (&self.sandbox, truncated(&self.body.command));
        sandbox.record_event(EventKind::ExecStarted, &[("command", command.clone())]);
        let result: ExecutionResult = match sandbox.json(call).await {
            Ok(result) => result,
            Err(error) => return Err(failed(sandbox, command, error)),
        };
        let (exit, signal) = (result.exit_code, result.signal.clone());
        completed(sandbox, command, result.duration_ms, exit, signal);
        Ok(result)
    }

    fn call(&self, what: &str, safety: Safety) -> Result<ApiCall> {
        ApiCall::new(Method::POST, self.sandbox.path(what), safety).json(&self.body)
    }
}

awaited! { Execute -> ExecutionResult; }
