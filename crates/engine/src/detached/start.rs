//! Starts executions and their log writers: admission, record on disk, start by the agent, registration. The start
//! completes even if the caller stops waiting.
//!
//! A failure before the request to the agent leaves nothing. A command that the agent refuses to start becomes an
//! execution that ended at once. If it is unknown whether the command started, it is killed inside, and its record is
//! removed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::SandboxState;
use api::bounds::READER_TIMEOUT_MS;
use base::blocking;
use guest_proto::{Channel, ExecSpec, StdinMode};
use rules::{AutoResume, Operation};
use store::SandboxRecord;
use tokio::sync::watch;

use super::events;
use super::execution::DetachedExecution;
use super::log::Log;
use super::log::entry::Entry;
use super::log_writer::LogWriter;
use super::record::{End, ProcessRecord, Record};
use super::registry::{ExecutionRegistry, RecoveredExecution, SandboxExecutions, remove_tree};
use crate::detached::status::{DetachedRequest, ExecutionStatus};
use crate::error::{EngineError, ProcessError, SandboxError};
use crate::link::{DetachedCommand, LinkError};
use crate::record::ids::new_execution_id;
use crate::record::status::Status;
use crate::registry::mailbox::{ActorHandle, ActorRequest, Admission, Permit, WorkKind};
use crate::work::agent_timeout::{AGENT_TIMEOUT, AgentTimeout};
use crate::work::execution::is_start_failure;
use crate::work::run_as::{environment, run_as};

/// How long an execution may wait for a slot, if the operator allows a queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(300);
const TERM: (&str, &str) = ("TERM", "xterm-256color");

/// An execution with a record and an empty log on disk.
struct NewExecution {
    record: Record,
    dir: PathBuf,
    log: Log,
}

impl ExecutionRegistry {
    /// Waits for admission and starts the command.
    pub async fn start(
        &self,
        actor: ActorHandle,
        request: DetachedRequest,
    ) -> Result<ExecutionStatus, EngineError> {
        let auto_resume = AutoResume::from(request.auto_resume);
        let is_terminal = request.terminal.is_some();
        let entering = actor.request(|reply| ActorRequest::Detach { auto_resume, is_terminal, reply });
        let timed_out = || rules::NeverStarted { timeout_ms: QUEUE_TIMEOUT.as_millis() as u64 };
        let admission = tokio::time::timeout(QUEUE_TIMEOUT, entering).await.map_err(|_| timed_out())??;
        // A terminal does not keep the sandbox active. This admission keeps it from being paused during the start, which would
        // then not complete.
        let operation = Operation::Attach { auto_resume };
        let _active = match is_terminal {
            true => Some(actor.request(|reply| ActorRequest::Enter { operation, reply }).await?),
            false => None,
        };
        let executions = self.of(&admission.record.id);
        let _one_at_a_time = executions.lock_start().await;
        let dropped = executions.prune();
        let new = write_record(&executions, &admission, &request, dropped).await?;
        let Admission { permit, agent, record: sandbox, status } = admission;
        let op = new.record.op;
        let env = all_variables(&sandbox, &request);
        let spec = ExecSpec {
            argv: argv(&request),
            env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            // The default of a process is the home of its user.
            cwd: match (&request.cwd, &request.process) {
                (Some(cwd), _) => cwd,
                (None, Some(_)) => "",
                (None, None) => &sandbox.config.workdir,
            },
            stdin: if new.record.has_stdin { StdinMode::Pipe } else { StdinMode::Null },
        };
        let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, status.clone());
        let run_as = run_as(&sandbox.config, request.user.as_deref());
        match timeout.answer(agent.start_detached(op, spec, run_as, request.terminal)).await {
            Ok(command) => {
                executions.context.stamped_store.append(events::started(&sandbox, &new.record));
                Ok(executions.register(new, status, permit, Some(command)))
            }
            Err(LinkError::Refused { kind, message })
                if request.process.is_some() && is_start_failure(kind) =>
            {
                remove_in_background(new.dir).await;
                Err(EngineError::Process(ProcessError::Refused { refusal: kind.into(), message }))
            }
            Err(LinkError::Refused { kind, message }) if is_start_failure(kind) => {
                let new = write_refusal(&executions, new, message).await?;
                // Its log writer only records the end event.
                Ok(executions.register(new, status, permit, None))
            }
            Err(error) => {
                agent.abandon(op);
                let is_terminated = status.borrow().state() == SandboxState::Terminated;
                // If the sandbox was terminated, its executions were removed before this directory was created.
                let dir = if is_terminated { executions.dir.clone() } else { new.dir };
                remove_in_background(dir).await;
                Err(if is_terminated {
                    EngineError::Sandbox(SandboxError::NotFound { terminated: None })
                } else {
                    error.into()
                })
            }
        }
    }
}

impl SandboxExecutions {
    /// Starts the log writers of executions that an earlier daemon left unfinished. Running ones get a permit each.
    pub fn adopt_recovered(
        self: &Arc<Self>,
        status: &watch::Sender<Status>,
        mut permit: impl FnMut(WorkKind) -> Permit,
    ) {
        for RecoveredExecution { execution, log, inbox } in self.take_recovered() {
            let work = WorkKind::of_detached(execution.record.terminal.is_some());
            let permit = execution.is_running().then(|| permit(work));
            let writer = LogWriter::new(Arc::clone(self), execution, log, inbox, status.subscribe(), permit);
            self.context.tasks.spawn(writer.run(None));
        }
    }

    /// Registers an execution and starts its log writer.
    fn register(
        self: &Arc<Self>,
        new: NewExecution,
        status: watch::Receiver<Status>,
        permit: Permit,
        command: Option<DetachedCommand>,
    ) -> ExecutionStatus {
        let NewExecution { record, dir, log } = new;
        let (execution, inbox) = DetachedExecution::new(record, dir, &log);
        execution.has_started.store(command.is_some(), Ordering::Relaxed);
        let pid = command.as_ref().and_then(DetachedCommand::pid).unwrap_or(0);
        execution.pid.store(pid, Ordering::Relaxed);
        self.add(&execution);
        let now = execution.status();
        let writer = LogWriter::new(Arc::clone(self), execution, log, inbox, status, Some(permit));
        self.context.tasks.spawn(writer.run(command));
        now
    }
}

async fn remove_in_background(dir: PathBuf) {
    let removed = tokio::task::spawn_blocking(move || remove_tree(&dir)).await;
    if let Ok(Err(error)) = removed {
        tracing::error!(%error, "could not remove the record of an execution that did not start");
    }
}

fn argv(request: &DetachedRequest) -> Vec<&str> {
    match &request.process {
        Some(process) => process.argv.iter().map(String::as_str).collect(),
        None if request.command.is_empty() => vec!["bash"],
        None => vec!["bash", "-c", "--", &request.command],
    }
}

fn all_variables(sandbox: &SandboxRecord, request: &DetachedRequest) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> =
        environment(sandbox, &request.env, request.user.as_deref()).into_iter().collect();
    if request.terminal.is_some() && !request.env.contains_key(TERM.0) {
        env.retain(|(name, _)| name != TERM.0);
        env.push((TERM.0.to_owned(), TERM.1.to_owned()));
    }
    env
}

/// Writes the record and an empty log, and removes the directories of dropped executions.
async fn write_record(
    executions: &SandboxExecutions,
    admission: &Admission,
    request: &DetachedRequest,
    dropped: Vec<PathBuf>,
) -> Result<NewExecution, EngineError> {
    let id = new_execution_id();
    let now = executions.context.stamped_store.now();
    let running_ms = admission.record.lifecycle.running_ms(now);
    let is_terminal = request.terminal.is_some();
    let record = Record {
        op: admission.agent.next_op(),
        command: request.command.clone(),
        cwd: request.cwd.clone(),
        run_id: request.run_id.clone(),
        terminal: request.terminal,
        timeout_ms: request.timeout_ms,
        ends_at_running_ms: request.timeout_ms.map(|ms| running_ms.saturating_add(ms)),
        open_stdin: request.open_stdin || is_terminal,
        has_stdin: request.open_stdin || is_terminal || request.stdin.is_some(),
        started_at_ms: now.0,
        reader_timeout_ms: request.reader_timeout_ms.unwrap_or(READER_TIMEOUT_MS.default),
        user: request.user.clone(),
        process: request.process.as_ref().map(|process| ProcessRecord {
            argv: process.argv.clone(),
            env: request.env.clone(),
            tag: process.tag.clone(),
        }),
        id,
    };
    let dir = executions.dir.join(record.id.as_str());
    let stdin = request.stdin.clone();
    let log_bytes = executions.context.settings.log_bytes;
    blocking(move || {
        for dir in dropped {
            remove_tree(&dir)?;
        }
        let written = record.write(&dir, stdin.as_deref()).and_then(|()| Log::create(&dir, log_bytes));
        match written {
            Ok(log) => Ok(NewExecution { record, dir, log }),
            Err(error) => {
                // If this fails as well, the next start of the daemon removes the directory.
                let _ = remove_tree(&dir);
                Err(error.into())
            }
        }
    })
    .await
}

/// Writes the output and the end of a command that the agent refused to start.
async fn write_refusal(
    executions: &SandboxExecutions,
    mut new: NewExecution,
    message: String,
) -> Result<NewExecution, EngineError> {
    let outcome = rules::outcome(rules::ObservedCommand::NotStarted { reason: message.clone() })?;
    let at_ms = executions.context.stamped_store.now().0;
    let end = End {
        is_lost: false,
        is_timed_out: false,
        exit_code: outcome.exit_code,
        signal: None,
        reason: None,
        message: Some(message),
        duration_ms: 0,
        at_ms,
    };
    let stderr = outcome.stderr_note.unwrap_or_default();
    blocking(move || {
        let entries = [Entry::Output(Channel::Stderr, stderr.as_bytes()), Entry::Ended(end)];
        match new.log.append(&entries, at_ms).and_then(|()| new.log.sync()) {
            Ok(()) => Ok(new),
            Err(error) => {
                // If this fails as well, the next start of the daemon removes the directory.
                let _ = remove_tree(&new.dir);
                Err(error.into())
            }
        }
    })
    .await
}
