//! Input of an execution, and attachments to it.

use std::sync::Arc;
use std::time::Duration;

use guest_proto::TerminalSize;

use super::reader::OutputReader;
use crate::detached::execution::{DetachedExecution, WriterCommand};
use crate::detached::status::ExecutionState;
use crate::error::{EngineError, ExecutionError};
use crate::link::{DetachedInput, LinkError};
use crate::registry::mailbox::Permit;

/// How long a request waits for a link, and for the end of a killed command.
pub const INPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// The byte that ends the input of a terminal.
const END_KEY: &[u8] = b"\x04";

/// The input of an execution. The sandbox counts as active while it exists. Clones are equivalent.
#[derive(Clone)]
pub struct Input {
    execution: Arc<DetachedExecution>,
    _active: Arc<Permit>,
}

/// Output and input of an execution together. The sandbox counts as active while it exists.
pub struct Attachment {
    pub output: OutputReader,
    input: Input,
}

impl Attachment {
    pub(crate) fn new(output: OutputReader, input: Input) -> Self {
        Self { output, input }
    }

    pub fn input(&self) -> Input {
        self.input.clone()
    }
}

impl Input {
    pub(crate) fn new(execution: Arc<DetachedExecution>, active: Permit) -> Self {
        Self { execution, _active: Arc::new(active) }
    }

    /// Whether it is that of a terminal.
    pub fn is_terminal(&self) -> bool {
        self.execution.record.terminal.is_some()
    }

    /// Writes bytes as fast as the command reads them.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), EngineError> {
        let _guard = self.execution.stdin_lock.lock().await;
        self.check_open()?;
        let input = self.linked().await?;
        match input.write_all(bytes).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.write_error(&input, error).await),
        }
    }

    /// Closes the input; on a terminal by `^D`.
    pub async fn close(&self) -> Result<(), EngineError> {
        if self.is_terminal() {
            return self.write(END_KEY).await;
        }
        let _guard = self.execution.stdin_lock.lock().await;
        self.check_open()?;
        self.execution.command(WriterCommand::CloseStdin).await
    }

    pub async fn resize(&self, size: TerminalSize) -> Result<(), EngineError> {
        if !self.is_terminal() {
            return Err(ExecutionError::NoTerminal { id: self.execution.record.id.clone() }.into());
        }
        self.execution.command(|done| WriterCommand::Resize(size, done)).await
    }

    pub async fn signal(&self, signal: i32) -> Result<(), EngineError> {
        let input = self.linked().await?;
        match input.signal(signal) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.write_error(&input, error).await),
        }
    }

    /// Kills the execution's process tree and waits for its end.
    pub async fn kill(&self) -> Result<(), EngineError> {
        match self.linked().await {
            Ok(input) => {
                // Not without a link: the command would go on, and its output would not wait for readers any more.
                self.execution.is_killed.send_replace(true);
                input.killer().kill();
            }
            Err(EngineError::Execution(ExecutionError::Ended { .. })) => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut progress = self.execution.progress.subscribe();
        let ended = progress.wait_for(|progress| progress.log.end.is_some());
        match tokio::time::timeout(INPUT_TIMEOUT, ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(LinkError::Silent(INPUT_TIMEOUT).into()),
        }
    }

    fn check_open(&self) -> Result<(), EngineError> {
        // Read once: a command that ends between two reads would seem to have had no stdin.
        let status = self.execution.status();
        match status.state {
            ExecutionState::Running if status.open_stdin => Ok(()),
            ExecutionState::Running => Err(ExecutionError::NoStdin { id: status.id }.into()),
            ExecutionState::Exited | ExecutionState::Lost => Err(self.execution.ended_error()),
        }
    }

    /// The input over the current link. Waits for a link.
    async fn linked(&self) -> Result<DetachedInput, EngineError> {
        let mut progress = self.execution.progress.subscribe();
        let mut input = self.execution.input.subscribe();
        tokio::select! {
            biased;
            _ = progress.wait_for(|progress| progress.log.end.is_some()) => Err(self.execution.ended_error()),
            found = input.wait_for(Option::is_some) => {
                let found = found.ok().and_then(|input| input.clone());
                found.ok_or_else(|| self.execution.ended_error())
            }
            () = tokio::time::sleep(INPUT_TIMEOUT) => Err(LinkError::Silent(INPUT_TIMEOUT).into()),
        }
    }

    /// The error of a failed write over `failed`: the execution ended, or the link was lost. The link knows of the end before
    /// it is in the log, so this waits until the log writer has handled one or the other.
    async fn write_error(&self, failed: &DetachedInput, error: LinkError) -> EngineError {
        let mut progress = self.execution.progress.subscribe();
        let mut input = self.execution.input.subscribe();
        let is_other = |input: &Option<DetachedInput>| input.as_ref().is_none_or(|now| !now.is_same(failed));
        tokio::select! {
            biased;
            _ = progress.wait_for(|progress| progress.log.end.is_some()) => {}
            _ = input.wait_for(is_other) => {}
            () = tokio::time::sleep(INPUT_TIMEOUT) => {}
        }
        if self.execution.is_running() { error.into() } else { self.execution.ended_error() }
    }
}
