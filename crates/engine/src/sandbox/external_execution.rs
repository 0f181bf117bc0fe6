//! Executions that a client of the engine carries out itself, on connections to a program in the sandbox.
//!
//! ```text
//! admission (execution slot, resume) -> dial a port, or run a program that opens it -> the client's exchange
//! ```
//! The engine admits such an execution like a command, measures its time limit and records its events. Dropping the [`Admission`], or the
//! permit that is left of it, frees the slot.

use std::time::Duration;

use api::{ExecuteRequest, SandboxState};
use base::millis;
use guest_proto::{ExecSpec, Exit, StdinMode};
use rules::{AutoResume, CommandOutcome, Operation};
use tokio::sync::watch;
use tokio::time::Instant;

use super::SandboxHandle;
use crate::create::DEFAULT_USER;
use crate::error::{EngineError, ProcessError};
use crate::link::{CommandEvent, LinkError, Tunnel};
use crate::record::events::ExecEvents;
use crate::record::status::Status;
use crate::registry::mailbox::{Admission, Permit};
use crate::work::agent_timeout::{AGENT_TIMEOUT, AgentTimeout, DIAL_TIMEOUT};
use crate::work::run_as::{environment, run_as};

/// The home of the user of a command.
const HOME: &str = "~";

/// An execution that its client carries out: its events and its time limit. Dropped before its end, it is recorded as failed.
pub struct ExternalExecution {
    events: ExecEvents,
    begun: Instant,
    /// The rest of the time limit when the current stretch of running time began.
    left: Duration,
    /// `None` while the sandbox is paused.
    running_since: Option<Instant>,
    status: watch::Receiver<Status>,
}

impl SandboxHandle<'_> {
    /// Admits work of the caller that holds an execution slot.
    pub async fn admit_execution(self, auto_resume: AutoResume) -> Result<Admission, EngineError> {
        self.enter(Operation::Execute { auto_resume }).await
    }

    /// Admits an execution that the caller carries out, and that is recorded as this command.
    pub async fn begin_external(
        self,
        request: &ExecuteRequest,
    ) -> Result<(Admission, ExternalExecution), EngineError> {
        let begun = Instant::now();
        let left = Duration::from_millis(request.timeout_ms);
        let admitting = self.admit_execution(AutoResume::from(request.auto_resume));
        let never = || rules::NeverStarted { timeout_ms: request.timeout_ms };
        let admission = tokio::time::timeout(left, admitting).await.map_err(|_| never())??;
        let events = ExecEvents::new(&self.services.stamped_store, &admission.record, request);
        let status = admission.status.clone();
        Ok((admission, ExternalExecution { events, begun, left, running_since: None, status }))
    }
}

impl Admission {
    /// Connects to a TCP port inside. If no program listens there, the error is [`crate::AgentError::PortUnreachable`].
    pub async fn dial(&self, port: u16) -> Result<Tunnel, EngineError> {
        Ok(self.agent.dial(port, DIAL_TIMEOUT).await?)
    }

    /// Runs a program to its end, without its output: as the default user in their home, or as root in the working directory. `None`
    /// if it does not end in time; then it is killed. A program that the sandbox does not start is [`ProcessError::Refused`].
    pub async fn run_program(&self, argv: &[&str], limit: Duration) -> Result<Option<Exit>, EngineError> {
        let record = &self.record;
        let user = record.config.default_user.then_some(DEFAULT_USER);
        let env = environment(record, &Default::default(), user);
        let spec = ExecSpec {
            argv: argv.to_vec(),
            env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            cwd: if user.is_some() { HOME } else { &record.config.workdir },
            stdin: StdinMode::Null,
        };
        let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, self.status.clone());
        let started = timeout.answer(self.agent.exec(spec, run_as(&record.config, user))).await;
        let mut command = started.map_err(|error| match error {
            LinkError::Refused { kind, message } => {
                EngineError::Process(ProcessError::Refused { refusal: kind.into(), message })
            }
            error => error.into(),
        })?;
        let ended = async {
            loop {
                match command.next().await {
                    CommandEvent::Output(..) => {}
                    CommandEvent::Exited { exit, .. } => return Ok(exit),
                    CommandEvent::Lost => return Err(EngineError::from(LinkError::Closed)),
                }
            }
        };
        timeout.with_duration(limit).wait(ended).await.ok().transpose()
    }

    /// Keeps only the permit, for as long as a connection is used.
    pub fn into_permit(self) -> Permit {
        self.permit
    }
}

impl ExternalExecution {
    /// Records the start. The time since the admission was requested counts.
    pub fn started(&mut self) {
        self.events.started();
        self.left = self.left.saturating_sub(self.begun.elapsed());
    }

    /// Waits for `work`; `None` when the time limit is over. Time during which the sandbox is paused does not count.
    pub async fn within<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let is_paused = self.status.borrow_and_update().state() == SandboxState::Paused;
            match self.running_since {
                Some(since) if is_paused => {
                    self.left = self.left.saturating_sub(since.elapsed());
                    self.running_since = None;
                }
                None if !is_paused => self.running_since = Some(Instant::now()),
                _ => {}
            }
            let until = self.running_since.map_or_else(Instant::now, |since| since + self.left);
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                Ok(()) = self.status.changed() => {}
                () = tokio::time::sleep_until(until), if !is_paused => return None,
            }
        }
    }

    /// Counts output for the events.
    pub fn count(&mut self, stdout: usize, stderr: usize) {
        self.events.stdout_bytes += stdout as u64;
        self.events.stderr_bytes += stderr as u64;
    }

    /// Marks the output as streamed to the client, which the events report.
    pub fn streamed(&mut self) {
        self.events.is_streamed = true;
    }

    /// Records the end. Returns the duration in ms.
    pub fn completed(&mut self, exit_code: i32) -> u64 {
        let duration_ms = millis(self.begun.elapsed());
        let outcome = CommandOutcome { exit_code: Some(exit_code), ..CommandOutcome::default() };
        self.events.completed(&outcome, duration_ms);
        duration_ms
    }

    /// Records that it did not start, or that the outcome is unknown.
    pub fn failed(&mut self, message: &str) {
        self.events.failed(message);
    }
}
