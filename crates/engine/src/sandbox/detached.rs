//! Operations on the detached executions of one sandbox.

use std::sync::Arc;

use rules::{AutoResume, Operation, OutputPosition};
use tokio::time::Instant;

use super::SandboxHandle;
use crate::detached::{
    Attachment, DetachedExecution, DetachedRequest, ExecutionId, ExecutionStatus, Input, OutputReader,
};
use crate::error::{DaemonError, EngineError};

impl SandboxHandle<'_> {
    /// Starts a command that outlives this request. It is recorded when this returns. If the caller stops waiting, the start
    /// completes.
    pub async fn start_detached(self, request: DetachedRequest) -> Result<ExecutionStatus, EngineError> {
        let actor = self.actor().await?;
        self.check_log_quota()?;
        let executions = Arc::clone(&self.services.detached);
        let (begun, isolation) = (Instant::now(), actor.status.borrow().record.config.isolation);
        let starting = async move { executions.start(actor, request).await };
        let started = self.services.tasks.spawn(starting).await.map_err(|_| DaemonError::TaskLost)?;
        if started.is_ok() {
            self.services.counters.latencies.of(isolation).execute.observe(begun.elapsed());
        }
        self.explain_not_found(started).await
    }

    /// Only an account with a quota pays for the sum of its logs.
    fn check_log_quota(self) -> Result<(), EngineError> {
        let quotas = self.services.ledger.quotas().of(self.account);
        if quotas.execution_log_bytes.is_some() {
            let used = self.services.detached.account_bytes(&self.services.registry, self.account);
            let checked = quotas.may_log(used).map_err(EngineError::from);
            checked.inspect_err(|error| error.count_refusal(&self.services.counters))?;
        }
        Ok(())
    }

    /// All executions, newest first.
    pub async fn executions(self) -> Result<Vec<ExecutionStatus>, EngineError> {
        self.status().await?;
        Ok(self.services.detached.of(self.id).statuses())
    }

    pub async fn execution(self, execution: &ExecutionId) -> Result<ExecutionStatus, EngineError> {
        Ok(self.find_execution(execution).await?.status())
    }

    /// Reads the output from a position on. Neither resumes the sandbox nor counts as activity.
    pub async fn follow(
        self,
        execution: &ExecutionId,
        from: OutputPosition,
    ) -> Result<OutputReader, EngineError> {
        let execution = self.find_execution(execution).await?;
        Ok(OutputReader::new(execution, from, self.services.tasks.stopping().clone()))
    }

    /// Opens output and input together. Resumes the sandbox and counts as activity while it is open.
    pub async fn attach(
        self,
        execution: &ExecutionId,
        from: OutputPosition,
        auto_resume: AutoResume,
    ) -> Result<Attachment, EngineError> {
        let execution = self.find_execution(execution).await?;
        let output = OutputReader::new(Arc::clone(&execution), from, self.services.tasks.stopping().clone());
        Ok(Attachment::new(output, self.open_input(execution, auto_resume).await?))
    }

    /// Opens the input of an execution. Fails if the execution has ended.
    pub async fn write_stdin(
        self,
        execution: &ExecutionId,
        auto_resume: AutoResume,
    ) -> Result<Input, EngineError> {
        let execution = self.find_execution(execution).await?;
        if !execution.is_running() {
            return Err(execution.ended_error());
        }
        self.open_input(execution, auto_resume).await
    }

    /// Sends a signal to the execution's process group, and to the foreground process group of its terminal.
    pub async fn signal(
        self,
        execution: &ExecutionId,
        signal: i32,
        auto_resume: AutoResume,
    ) -> Result<(), EngineError> {
        self.write_stdin(execution, auto_resume).await?.signal(signal).await
    }

    /// Kills the execution's process tree and waits for its end. An execution that has ended stays unchanged.
    pub async fn cancel(
        self,
        execution: &ExecutionId,
        auto_resume: AutoResume,
    ) -> Result<ExecutionStatus, EngineError> {
        let execution = self.find_execution(execution).await?;
        if execution.is_running() {
            self.open_input(Arc::clone(&execution), auto_resume).await?.kill().await?;
        }
        Ok(execution.status())
    }

    async fn find_execution(self, execution: &ExecutionId) -> Result<Arc<DetachedExecution>, EngineError> {
        self.status().await?;
        self.services.detached.of(self.id).find(execution)
    }

    pub(super) async fn open_input(
        self,
        execution: Arc<DetachedExecution>,
        auto_resume: AutoResume,
    ) -> Result<Input, EngineError> {
        let operation = Operation::Attach { auto_resume };
        let admission = self.enter(operation).await?;
        Ok(Input::new(execution, admission.permit))
    }
}
