//! Operations on the processes of one sandbox: detached executions by arguments, addressed by pid or tag.

use std::sync::Arc;

use rules::{AutoResume, OutputPosition};

use super::SandboxHandle;
use crate::detached::process::{self, Process, ProcessRequest, ProcessSelector, ProcessStatus};
use crate::detached::{DetachedExecution, Input, OutputReader};
use crate::error::{EngineError, ProcessError};

impl SandboxHandle<'_> {
    /// Starts a process that outlives this request, and returns it with a reader of all its output. It is recorded when this
    /// returns. If the caller stops waiting, the start completes. A process that the sandbox does not start is
    /// [`ProcessError::Refused`].
    pub async fn start_process(self, request: ProcessRequest) -> Result<Process, EngineError> {
        let started = self.start_detached(request.into_detached()?).await?;
        let execution = self.services.detached.of(self.id).find(&started.id)?;
        Ok(self.follow_process(execution, OutputPosition::default()))
    }

    /// A running process, or one that ended less than 30 s ago, with a reader of its output from now on. Any number of readers
    /// may exist. Does not resume the sandbox.
    pub async fn connect_process(self, selector: ProcessSelector<'_>) -> Result<Process, EngineError> {
        let execution = self.find_process(selector).await?;
        let now = execution.progress.borrow().log.printed;
        Ok(self.follow_process(execution, now))
    }

    /// The running processes, oldest first.
    pub async fn processes(self) -> Result<Vec<ProcessStatus>, EngineError> {
        self.status().await?;
        let running = self.services.detached.of(self.id).running_processes();
        Ok(running.iter().map(|execution| process::status(execution)).collect())
    }

    /// Opens the input of a running process: bytes, its end, signals to the process group, the size of the terminal, and
    /// [`Input::kill`], which kills the process tree and waits until it is gone. Counts as activity while it is open.
    pub async fn process_input(
        self,
        selector: ProcessSelector<'_>,
        auto_resume: AutoResume,
    ) -> Result<Input, EngineError> {
        let execution = self.find_process(selector).await?;
        if !execution.is_running() {
            return Err(execution.ended_error());
        }
        self.open_input(execution, auto_resume).await
    }

    async fn find_process(
        self,
        selector: ProcessSelector<'_>,
    ) -> Result<Arc<DetachedExecution>, EngineError> {
        self.status().await?;
        let now = self.services.stamped_store.now().0;
        let found = self.services.detached.of(self.id).find_newest(|execution| selector.fits(execution, now));
        found.ok_or_else(|| EngineError::Process(ProcessError::NotFound { selector: selector.to_string() }))
    }

    fn follow_process(self, execution: Arc<DetachedExecution>, from: OutputPosition) -> Process {
        let stopping = self.services.tasks.stopping().clone();
        Process::new(Arc::clone(&execution), OutputReader::new(execution, from, stopping))
    }
}
