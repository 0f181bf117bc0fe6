//! Interactive terminals: opening, attaching, and reattaching after a lost connection.
//!
//! One task owns the websocket. It ends when the [`Terminal`] is dropped, when the terminal ends, or when reconnecting fails. Both
//! queues are bounded.

mod conversation;

use std::time::Duration;

use api::{ExecutionView, TerminalBody, TerminalSize};
use bytes::Bytes;
use hyper::Method;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::execution::detached::Detached;
use crate::ids::random_id;
use crate::millis::ms;
use crate::sandbox::Sandbox;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Error, Result};
use conversation::{Conversation, TerminalInput};

/// Capacity of each queue.
const QUEUE: usize = 16;

impl Sandbox {
    /// Opens a terminal with a shell, unless a command is set. `.await` opens it and attaches to it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use sandboxd_client::TerminalEvent;
    /// let mut terminal = sandbox.terminal().size(120, 40).await?;
    /// terminal.write("exit 3\r").await?;
    /// while let Some(event) = terminal.next().await? {
    ///     match event {
    ///         TerminalEvent::Bytes(bytes) => print!("{}", String::from_utf8_lossy(&bytes)),
    ///         TerminalEvent::Ended(ended) => assert_eq!(ended.exit_code, Some(3)),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    pub fn terminal(&self) -> OpenTerminal {
        OpenTerminal { sandbox: self.clone(), body: TerminalBody::default() }
    }
}

/// A terminal to open.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let terminal = sandbox.terminal().command("top").cwd("/").env("LANG", "C").open().await?;
/// assert!(terminal.status().await?.terminal.is_some());
/// # Ok(()) });
/// ```
#[must_use = "a terminal does nothing unless awaited, or opened with .open()"]
pub struct OpenTerminal {
    sandbox: Sandbox,
    body: TerminalBody,
}

impl OpenTerminal {
    /// Sets columns and rows: by default 80 and 24, at most 1000.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().size(132, 50).open().await?;
    /// assert_eq!(terminal.status().await?.terminal.unwrap().cols, 132);
    /// # Ok(()) });
    /// ```
    pub fn size(mut self, cols: u16, rows: u16) -> Self {
        (self.body.cols, self.body.rows) = (Some(cols.into()), Some(rows.into()));
        self
    }

    /// Runs this bash command line instead of a shell.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().command("vim notes").open().await?;
    /// assert_eq!(terminal.status().await?.command, "vim notes");
    /// # Ok(()) });
    /// ```
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.body.command = Some(command.into());
        self
    }

    /// Sets the working directory, by default that of the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().cwd("/tmp").open().await?;
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
    /// let terminal = sandbox.terminal().user("root").open().await?;
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
    /// let terminal = sandbox.terminal().env("EDITOR", "vim").open().await?;
    /// # Ok(()) });
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.env.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Sets the time limit of the terminal, at most 24 hours. Without it the terminal may run as long as its sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let hour = std::time::Duration::from_secs(3600);
    /// let terminal = sandbox.terminal().timeout(hour).open().await?;
    /// assert_eq!(terminal.status().await?.timeout_ms, Some(3_600_000));
    /// # Ok(()) });
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.body.timeout_ms = Some(ms(timeout).into());
        self
    }

    /// Fails with [`Code::InvalidState`](crate::Code) if the sandbox is paused, instead of resuming it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.pause().await?;
    /// let error = sandbox.terminal().without_resume().open().await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::InvalidState);
    /// # Ok(()) });
    /// ```
    pub fn without_resume(mut self) -> Self {
        self.body.auto_resume = Some(false);
        self
    }

    /// Opens the terminal without attaching to it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let opened = sandbox.terminal().open().await?;
    /// let terminal = opened.attach().await?;
    /// # Ok(()) });
    /// ```
    pub async fn open(self) -> Result<Detached> {
        let path = format!("/v1/sandboxes/{}/terminals", self.sandbox.id());
        let call =
            ApiCall::new(Method::POST, path, Safety::Command).json(&self.body)?.key(&random_id("key_"))?;
        let view: Result<ExecutionView> = self.sandbox.client().transport().json(call).await;
        let view = view.map_err(|error| self.sandbox.failed(error))?;
        Ok(Detached::new(self.sandbox, view.execution_id))
    }

    async fn send(self) -> Result<Terminal> {
        self.open().await?.attach().await
    }
}

awaited! { OpenTerminal -> Terminal; }

impl Detached {
    /// Attaches to the terminal. The output so far is replayed first.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let opened = sandbox.terminal().open().await?;
    /// let (one, two) = (opened.attach().await?, opened.attach().await?);
    /// # Ok(()) });
    /// ```
    pub async fn attach(&self) -> Result<Terminal> {
        self.attach_from(0).await
    }

    /// Like [`attach`](Self::attach), but starts after an offset in bytes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let opened = sandbox.terminal().open().await?;
    /// let again = opened.attach_from(0).await?;
    /// # Ok(()) });
    /// ```
    pub async fn attach_from(&self, position: u64) -> Result<Terminal> {
        let (sender, input) = mpsc::channel(QUEUE);
        let (event_sender, events) = mpsc::channel(QUEUE);
        let conversation = Conversation::open(self.clone(), position, input, event_sender).await;
        let conversation = conversation.map_err(|error| self.sandbox().failed(error))?;
        let task = tokio::spawn(conversation.run());
        Ok(Terminal { execution: self.clone(), keyboard: Keyboard { sender }, events, task })
    }
}

/// An item of a terminal's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    Bytes(Bytes),
    /// Some output was dropped: the screen may be wrong until it is redrawn.
    Dropped,
    /// The connection is lost; the client reconnects.
    Disconnected,
    /// The connection is restored.
    Reconnected,
    /// The sandbox is about to end or to be paused, at its timeout: a sentence for people.
    Warning(String),
    /// The result; always the last item.
    Ended(Box<ExecutionView>),
}

/// An attached terminal. Dropping it detaches; the terminal keeps running.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let mut terminal = sandbox.terminal().await?;
/// terminal.resize(100, 30).await?;
/// terminal.write("echo hi\r").await?;
/// assert!(matches!(terminal.next().await?, Some(sandboxd_client::TerminalEvent::Bytes(_))));
/// # Ok(()) });
/// ```
pub struct Terminal {
    execution: Detached,
    keyboard: Keyboard,
    events: mpsc::Receiver<Result<TerminalEvent>>,
    task: JoinHandle<()>,
}

impl Terminal {
    /// The execution of the terminal, to attach to it again.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().await?;
    /// assert_eq!(sandbox.executions().await?[0].execution_id, *terminal.execution().id());
    /// # Ok(()) });
    /// ```
    pub fn execution(&self) -> &Detached {
        &self.execution
    }

    /// The input side, for use in another task.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().await?;
    /// let keyboard = terminal.keyboard();
    /// tokio::spawn(async move { keyboard.write("ls\r").await });
    /// # Ok(()) });
    /// ```
    pub fn keyboard(&self) -> Keyboard {
        self.keyboard.clone()
    }

    /// Returns the next output; `None` after the end.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let mut terminal = sandbox.terminal().await?;
    /// terminal.write("exit 0\r").await?;
    /// while terminal.next().await?.is_some() {}
    /// # Ok(()) });
    /// ```
    pub async fn next(&mut self) -> Result<Option<TerminalEvent>> {
        self.events.recv().await.transpose()
    }

    /// Sends input. See [`Keyboard::write`].
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.terminal().await?.write("ls\r").await?;
    /// # Ok(()) });
    /// ```
    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<()> {
        self.keyboard.write(bytes).await
    }

    /// Sets the window size. See [`Keyboard::resize`].
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.terminal().await?.resize(100, 30).await?;
    /// # Ok(()) });
    /// ```
    pub async fn resize(&self, cols: u16, rows: u16) -> Result<()> {
        self.keyboard.resize(cols, rows).await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The input side of a terminal. Clones share it.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let terminal = sandbox.terminal().await?;
/// terminal.keyboard().write("ls\r").await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Keyboard {
    sender: mpsc::Sender<TerminalInput>,
}

impl Keyboard {
    /// Sends input. Input in transit when a connection is lost may be lost; it never arrives twice.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().await?;
    /// terminal.keyboard().write("\x03").await?;
    /// # Ok(()) });
    /// ```
    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<()> {
        self.send(TerminalInput::Bytes(bytes.into())).await
    }

    /// Sets the window size; the foreground process receives `SIGWINCH`.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let terminal = sandbox.terminal().await?;
    /// terminal.keyboard().resize(100, 30).await?;
    /// # Ok(()) });
    /// ```
    pub async fn resize(&self, cols: u16, rows: u16) -> Result<()> {
        self.send(TerminalInput::Size(TerminalSize { cols, rows })).await
    }

    async fn send(&self, input: TerminalInput) -> Result<()> {
        self.sender.send(input).await.map_err(|_| Error::network("the terminal has ended"))
    }
}
