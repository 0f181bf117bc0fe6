//! What the engine does with detached executions.

use api::SandboxId;
use rules::OutputPosition;

use super::Engine;
use crate::detached::{
    Attachment, DetachedRequest, ExecutionId, ExecutionStatus, Input, OutputReader, TerminalSize,
};
use crate::error::EngineError;

impl Engine {
    /// Starts a command that runs on by itself. It is on record when this answers.
    pub async fn start_detached(
        &self,
        _account: &str,
        _id: &SandboxId,
        _request: DetachedRequest,
    ) -> Result<ExecutionStatus, EngineError> {
        Err(EngineError::Stopping)
    }

    /// Newest first.
    pub async fn executions(
        &self,
        _account: &str,
        _id: &SandboxId,
    ) -> Result<Vec<ExecutionStatus>, EngineError> {
        Err(EngineError::Stopping)
    }

    pub async fn execution(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
    ) -> Result<ExecutionStatus, EngineError> {
        Err(EngineError::Stopping)
    }

    /// Its output from a position on. Neither wakes the sandbox nor holds it awake.
    pub async fn follow(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
        _from: OutputPosition,
    ) -> Result<OutputReader, EngineError> {
        Err(EngineError::Stopping)
    }

    /// Output and input together; the sandbox is woken, and held awake.
    pub async fn attach(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
        _from: OutputPosition,
        _auto_resume: bool,
    ) -> Result<Attachment, EngineError> {
        Err(EngineError::Stopping)
    }

    /// The way to its input.
    pub async fn write_stdin(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
        _auto_resume: bool,
    ) -> Result<Input, EngineError> {
        Err(EngineError::Stopping)
    }

    pub async fn resize(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
        _size: TerminalSize,
        _auto_resume: bool,
    ) -> Result<(), EngineError> {
        Err(EngineError::Stopping)
    }

    /// Sends a signal to its process group.
    pub async fn signal(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
        _signal: i32,
        _auto_resume: bool,
    ) -> Result<(), EngineError> {
        Err(EngineError::Stopping)
    }

    /// Kills it with all that it started, and answers when it has ended.
    pub async fn cancel(
        &self,
        _account: &str,
        _id: &SandboxId,
        _execution: &ExecutionId,
        _auto_resume: bool,
    ) -> Result<ExecutionStatus, EngineError> {
        Err(EngineError::Stopping)
    }
}
