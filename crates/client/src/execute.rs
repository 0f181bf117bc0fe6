//! Asking for a command: its answer in one piece, or its output as it comes.

use std::future::IntoFuture;
use std::time::Duration;

use api::{EventKind, ExecuteBody, ExecutionResult};
use futures_util::future::BoxFuture;
use hyper::Method;

use crate::Result;
use crate::ids;
use crate::millis::ms;
use crate::notes::{completed, failed, shown};
use crate::retry::Safety;
use crate::sandbox::Sandbox;
use crate::stream::OutputStream;
use crate::transport::Call;

/// The service's own default.
const TIMEOUT_MS: u64 = 60_000;

impl Sandbox {
    /// A command, a line for bash. `.await` waits for its end, [`Execute::stream`] gives its output as it comes.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// let result = sandbox.execute("echo out; echo err >&2; exit 3").await?;
    /// assert_eq!((result.stdout.as_str(), result.exit_code), ("out\n", Some(3)));
    /// # Ok(()) });
    /// ```
    pub fn execute(&self, command: impl Into<String>) -> Execute {
        Execute::new(self.clone(), command.into())
    }
}

/// A command that is being asked for. `.await` waits for its end; [`stream`](Self::stream) gives its output as it comes.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// let result = sandbox.execute("cat; echo $NAME >&2; exit 3").stdin("in").env("NAME", "x").await?;
/// assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("in", "x\n"));
/// assert_eq!(result.exit_code, Some(3));
/// # Ok(()) });
/// ```
///
/// It is sent with an `Idempotency-Key`, and again when its answer was lost: the service then gives the answer of the one
/// command. With that a dropped future leaves the command running; [`killed_on_drop`](Self::killed_on_drop) has it the other
/// way round.
#[must_use = "it is sent by .await or .stream()"]
pub struct Execute {
    sandbox: Sandbox,
    body: ExecuteBody,
    pub(crate) open_stdin: bool,
    line_ends: bool,
    key: Key,
}

enum Key {
    Made,
    Given(String),
    None,
}

impl Execute {
    fn new(sandbox: Sandbox, command: String) -> Self {
        let body = ExecuteBody { command, ..ExecuteBody::default() };
        Self { sandbox, body, open_stdin: false, line_ends: false, key: Key::Made }
    }

    /// What was asked for, for whoever asks for it in another way; and the key to send it under.
    pub(crate) fn into_parts(self) -> (Sandbox, ExecuteBody, String) {
        let key = match self.key {
            Key::Given(key) => key,
            Key::Made | Key::None => ids::made("key_"),
        };
        (self.sandbox, self.body, key)
    }

    /// Where it runs, if not in the sandbox's working directory.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// assert_eq!(sandbox.execute("pwd").cwd("/tmp").await?.stdout, "/tmp\n");
    /// # Ok(()) });
    /// ```
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.body.cwd = Some(cwd.into());
        self
    }

    /// A variable of its environment, over the sandbox's.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// assert_eq!(sandbox.execute("echo $A").env("A", "1").await?.stdout, "1\n");
    /// # Ok(()) });
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.env.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Text for its standard input.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// assert_eq!(sandbox.execute("cat").stdin("hello").await?.stdout, "hello");
    /// # Ok(()) });
    /// ```
    pub fn stdin(mut self, stdin: impl Into<String>) -> Self {
        self.body.stdin = Some(stdin.into());
        self
    }

    /// After how long it is killed with all that it started; 60 s if nothing is said, 5 minutes at most.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// let result = sandbox.execute("sleep 60").timeout(std::time::Duration::from_millis(10)).await?;
    /// assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")));
    /// # Ok(()) });
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.body.timeout_ms = Some(ms(timeout));
        self
    }

    /// Fails with [`InvalidState`](crate::Code::InvalidState) in a paused sandbox instead of resuming it.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.pause().await?;
    /// let error = sandbox.execute("true").without_resume().await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::InvalidState);
    /// # Ok(()) });
    /// ```
    pub fn without_resume(mut self) -> Self {
        self.body.auto_resume = Some(false);
        self
    }

    /// Under a key of the caller's: the same command, sent again within a day by whatever process, answers what the first did.
    /// A stream does not take one.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// let result = sandbox.execute("echo once").idempotency_key("step-1").await?;
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Key::Given(key.into());
        self
    }

    /// Sent without a key: the service kills the command when this future is dropped, and a lost answer is an error.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use std::time::Duration;
    /// let long = sandbox.execute("sleep 1000").killed_on_drop();
    /// assert!(tokio::time::timeout(Duration::from_millis(20), long).await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn killed_on_drop(mut self) -> Self {
        self.key = Key::None;
        self
    }

    /// Its [stream](Self::stream) has lines with the ends that the command wrote: `\n`, `\r\n`, or none where a long line goes on in
    /// what comes next, and where the output ended without one. Put together they are what it wrote, with U+FFFD for what is no UTF-8.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use sandboxd_client::Output;
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.execute("cat").stdin("one\ntwo").with_line_ends().stream().await?;
    /// assert_eq!(output.try_next().await?, Some(Output::Stdout("one\n".into())));
    /// assert_eq!(output.try_next().await?, Some(Output::Stdout("two".into())));
    /// # Ok(()) });
    /// ```
    pub fn with_line_ends(mut self) -> Self {
        self.line_ends = true;
        self
    }

    /// Starts it, and answers once the service has. Dropping the stream kills the command.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
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
    pub async fn stream(self) -> Result<OutputStream> {
        let what = if self.line_ends { "/execute?lineEnds=true" } else { "/execute" };
        let call = self.call(what, Safety::OnlyUnstarted)?.accept("text/event-stream");
        let (sandbox, command, line_ends) = (self.sandbox, shown(&self.body.command), self.line_ends);
        sandbox.note(EventKind::ExecStarted, &[("command", command.clone())]);
        match sandbox.stream(call).await {
            Ok(response) => Ok(OutputStream::new(response, line_ends, sandbox, command)),
            Err(error) => Err(failed(&sandbox, command, error)),
        }
    }

    async fn whole(self) -> Result<ExecutionResult> {
        let limit = Duration::from_millis(self.body.timeout_ms.unwrap_or(TIMEOUT_MS));
        let transport = self.sandbox.client().transport();
        let call = match &self.key {
            Key::Made => self.call("/execute", Safety::Command)?.key(&ids::made("key_"))?,
            Key::Given(key) => self.call("/execute", Safety::Command)?.key(key)?,
            Key::None => self.call("/execute", Safety::OnlyUnstarted)?,
        };
        let call = call.timeout(limit.saturating_add(transport.timeout()));
        let (sandbox, command) = (&self.sandbox, shown(&self.body.command));
        sandbox.note(EventKind::ExecStarted, &[("command", command.clone())]);
        let result: ExecutionResult = match sandbox.json(call).await {
            Ok(result) => result,
            Err(error) => return Err(failed(sandbox, command, error)),
        };
        let (exit, signal) = (result.exit_code, result.signal.clone());
        completed(sandbox, command, result.duration_ms, exit, signal);
        Ok(result)
    }

    fn call(&self, what: &str, safety: Safety) -> Result<Call> {
        Call::new(Method::POST, self.sandbox.path(what), safety).json(&self.body)
    }
}

impl IntoFuture for Execute {
    type Output = Result<ExecutionResult>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.whole())
    }
}
