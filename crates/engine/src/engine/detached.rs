//! What the engine does with detached executions.

use std::sync::Arc;

use api::SandboxId;
use guest_proto::TerminalSize;
use rules::{AutoResume, Operation, OutputPosition};

use super::Engine;
use crate::detached::{self, Attachment, Input, OutputReader};
use crate::error::EngineError;
use crate::executions::{DetachedRequest, ExecutionId, ExecutionStatus};
use crate::handle::Request;
use crate::kept::execution::Execution;

impl Engine {
    /// Starts a command that runs on by itself. It is on record when this answers; it goes on to its start when the caller stops
    /// waiting.
    pub async fn start_detached(
        &self,
        account: &str,
        id: &SandboxId,
        request: DetachedRequest,
    ) -> Result<ExecutionStatus, EngineError> {
        let handle = self.find(account, id).await?;
        let shared = Arc::clone(&self.shared);
        let starting = async move { detached::start(&shared, handle, request).await };
        let started = self.shared.tasks.spawn(starting).await.map_err(|_| EngineError::TaskLost)?;
        self.or_why_it_ended(account, id, started).await
    }

    /// Newest first.
    pub async fn executions(
        &self,
        account: &str,
        id: &SandboxId,
    ) -> Result<Vec<ExecutionStatus>, EngineError> {
        self.get(account, id).await?;
        Ok(self.shared.detached.of(id).statuses())
    }

    pub async fn execution(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
    ) -> Result<ExecutionStatus, EngineError> {
        Ok(self.found(account, id, execution).await?.status())
    }

    /// Its output from a position on. Neither wakes the sandbox nor holds it awake.
    pub async fn follow(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
        from: OutputPosition,
    ) -> Result<OutputReader, EngineError> {
        let found = self.found(account, id, execution).await?;
        Ok(OutputReader::new(found, from, self.shared.stopping.clone()))
    }

    /// Output and input together; the sandbox is woken, and held awake.
    pub async fn attach(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
        from: OutputPosition,
        auto_resume: bool,
    ) -> Result<Attachment, EngineError> {
        let found = self.found(account, id, execution).await?;
        let output = OutputReader::new(Arc::clone(&found), from, self.shared.stopping.clone());
        Ok(Attachment::new(output, self.reach(account, id, found, auto_resume).await?))
    }

    /// The way to its input. Of one that is over there is none.
    pub async fn write_stdin(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
        auto_resume: bool,
    ) -> Result<Input, EngineError> {
        let found = self.found(account, id, execution).await?;
        if !found.is_running() {
            return Err(found.over());
        }
        self.reach(account, id, found, auto_resume).await
    }

    pub async fn resize(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
        size: TerminalSize,
        auto_resume: bool,
    ) -> Result<(), EngineError> {
        self.write_stdin(account, id, execution, auto_resume).await?.resize(size).await
    }

    /// Sends a signal to its process group, and to that in front on its terminal.
    pub async fn signal(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
        signal: i32,
        auto_resume: bool,
    ) -> Result<(), EngineError> {
        self.write_stdin(account, id, execution, auto_resume).await?.signal(signal).await
    }

    /// Kills it with all that it started, and answers when it has ended. One that has ended stays as it is.
    pub async fn cancel(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
        auto_resume: bool,
    ) -> Result<ExecutionStatus, EngineError> {
        let found = self.found(account, id, execution).await?;
        if found.is_running() {
            self.reach(account, id, Arc::clone(&found), auto_resume).await?.kill().await?;
        }
        Ok(found.status())
    }

    async fn found(
        &self,
        account: &str,
        id: &SandboxId,
        execution: &ExecutionId,
    ) -> Result<Arc<Execution>, EngineError> {
        self.get(account, id).await?;
        self.shared.detached.of(id).find(execution)
    }

    async fn reach(
        &self,
        account: &str,
        id: &SandboxId,
        execution: Arc<Execution>,
        auto_resume: bool,
    ) -> Result<Input, EngineError> {
        let operation = Operation::Attach { auto_resume: AutoResume::from(auto_resume) };
        let asked = self.find(account, id).await?.ask(|reply| Request::Enter { operation, reply }).await;
        let entry = self.or_why_it_ended(account, id, asked).await?;
        Ok(Input::new(execution, entry.permit))
    }
}
