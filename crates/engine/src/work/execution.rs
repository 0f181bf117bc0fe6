//! A command from its request to its end: admission, time limit, output, outcome.
//!
//! The caller pulls events. Output that it does not pull waits inside the sandbox. Dropping an execution kills the command's
//! process tree and frees its slot.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{ExecuteRequest, ExecutionResult, OutputEncoding, SandboxState};
use base::millis;
use bytes::Bytes;
use guest_proto::{Channel, ExecSpec, Exit, RefusalKind, StdinMode};
use rules::{AutoResume, CappedOutput, CommandOutcome, EndCause, Ended, Operation};
use store::SandboxRecord;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{EngineError, SandboxError};
use crate::host::Host;
use crate::link::{Command, CommandEvent, LinkError, Stdin};
use crate::record::events::ExecEvents;
use crate::record::stamped_store::StampedStore;
use crate::record::status::Status;
use crate::registry::mailbox::{ActorHandle, ActorRequest, Admission};
use crate::work::agent_timeout::{AGENT_TIMEOUT, AgentTimeout};
use crate::work::deadline::Deadline;
use crate::work::memory_watch::MemoryWatch;
use crate::work::run_as::{environment, run_as};

/// How long the actor may take to find out why all processes of its sandbox are gone.
const LOSS_TIMEOUT: Duration = Duration::from_secs(5);
const SIGKILL: i32 = 9;

/// An event of an execution.
#[derive(Debug)]
pub enum ExecutionEvent {
    Stdout(Bytes),
    Stderr(Bytes),
    Done(Finished),
    /// The outcome is unknown.
    Failed(EngineError),
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub outcome: CommandOutcome,
    pub duration_ms: u64,
}

/// An admitted command.
pub struct Execution {
    body: Body,
    events: ExecEvents,
}

enum Body {
    Running(Box<Running>),
    /// The sandbox refused to start it.
    NotStarted(CommandOutcome),
}

struct Running {
    command: Command,
    stdin_writer: Option<StdinWriter>,
    deadline: Deadline,
    timeout_ms: u64,
    memory: MemoryWatch,
    started: Instant,
    status: watch::Receiver<Status>,
    /// What the link reported as the end.
    end: Option<LinkEnd>,
}

#[derive(Debug, Clone, Copy)]
enum LinkEnd {
    Exited { exit: Exit, duration_ms: u64 },
    Lost { duration_ms: u64 },
}

/// The message of an error event. The details go to the log.
const FAULT: &str =
    "the sandbox failed while the command was executed; whether it ran, and how far, is not known";
const TERMINATED: &str = "the sandbox was terminated before the command started";

type StdinWriter = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Waits for admission and starts the command.
pub async fn start(
    handle: &ActorHandle,
    host: &Arc<Host>,
    stamped_store: &StampedStore,
    request: ExecuteRequest,
) -> Result<Execution, EngineError> {
    let begun = Instant::now();
    let timeout = Duration::from_millis(request.timeout_ms);
    let operation = Operation::Execute { auto_resume: AutoResume::from(request.auto_resume) };
    let entering = handle.request(|reply| ActorRequest::Enter { operation, reply });
    let never = || rules::NeverStarted { timeout_ms: request.timeout_ms };
    let admission = tokio::time::timeout(timeout, entering).await.map_err(|_| never())??;
    let left = timeout.saturating_sub(begun.elapsed());
    if left.is_zero() {
        return Err(never().into());
    }
    run(admission, host, stamped_store, &request, left).await
}

async fn run(
    admission: Admission,
    host: &Arc<Host>,
    stamped_store: &StampedStore,
    request: &ExecuteRequest,
    left: Duration,
) -> Result<Execution, EngineError> {
    let Admission { permit, agent, record, status } = admission;
    let user = request.user.as_deref();
    let env = environment(&record, &request.env, user);
    let run_as = run_as(&record.config, user);
    let spec = ExecSpec {
        argv: vec!["bash", "-c", "--", &request.command],
        env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        cwd: request.cwd.as_deref().unwrap_or(&record.config.workdir),
        stdin: if request.stdin.is_some() { StdinMode::Pipe } else { StdinMode::Null },
    };
    let mut events = ExecEvents::new(stamped_store, &record, request);
    let started = Instant::now();
    let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, status.clone());
    let starting = timeout.answer(agent.exec(spec, run_as));
    let (started_command, memory) = tokio::join!(starting, MemoryWatch::begin(host, &record));
    let mut command = match started_command {
        Ok(command) => command,
        Err(LinkError::Refused { kind, message }) if is_start_failure(kind) => {
            events.failed(&message);
            let outcome = rules::outcome(rules::ObservedCommand::NotStarted { reason: message })?;
            return Ok(Execution { body: Body::NotStarted(outcome), events });
        }
        // The sandbox was terminated between the admission and the start.
        Err(_) if status.borrow().state() == SandboxState::Terminated => {
            events.failed(TERMINATED);
            return Err(SandboxError::NotFound { terminated: None }.into());
        }
        Err(error) => {
            events.failed(FAULT);
            return Err(error.into());
        }
    };
    // Recorded while bash starts, so that it costs no latency.
    events.started();
    let stdin_writer =
        command.take_stdin().zip(request.stdin.clone()).map(|(stdin, text)| write_stdin(stdin, text));
    let deadline = Deadline::start(&command, status.clone(), stamped_store.clock(), left);
    // The slot is freed when the command ends, even if its output has not been read yet.
    command.release_at_end((permit, deadline.guard()));
    let (timeout_ms, end) = (request.timeout_ms, None);
    let running = Running { command, stdin_writer, deadline, timeout_ms, memory, started, status, end };
    Ok(Execution { body: Body::Running(Box::new(running)), events })
}

/// Whether the reason for a refused start lies in the command or its sandbox (missing directory, arguments too long, process
/// limit reached). Everything else is a failure of the service.
pub fn is_start_failure(kind: RefusalKind) -> bool {
    match kind {
        RefusalKind::CwdMissing
        | RefusalKind::ProgramMissing
        | RefusalKind::NotAllowed
        | RefusalKind::TooMany
        | RefusalKind::UserMissing
        | RefusalKind::Failed => true,
        RefusalKind::Connect | RefusalKind::UnknownOp => false,
    }
}

fn write_stdin(mut stdin: Stdin, text: String) -> StdinWriter {
    Box::pin(async move {
        // A command need not read all of its input.
        let _ = stdin.write_all(text.as_bytes()).await;
    })
}

impl Execution {
    /// Waits for the next event. `Done` and `Failed` are the last. Cancel safe.
    pub async fn next(&mut self) -> ExecutionEvent {
        let event = match &mut self.body {
            Body::Running(running) => running.next().await,
            Body::NotStarted(outcome) => {
                ExecutionEvent::Done(Finished { outcome: outcome.clone(), duration_ms: 0 })
            }
        };
        match &event {
            ExecutionEvent::Stdout(bytes) => self.events.stdout_bytes += bytes.len() as u64,
            ExecutionEvent::Stderr(bytes) => self.events.stderr_bytes += bytes.len() as u64,
            ExecutionEvent::Done(finished) => self.events.completed(&finished.outcome, finished.duration_ms),
            ExecutionEvent::Failed(_) => self.events.failed(FAULT),
        }
        event
    }

    /// Marks the output as streamed to the client, which the events report.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.events.is_streamed = true;
        self
    }

    /// Runs to the end and collects at most `max_output_bytes` of each stream.
    pub async fn collect(mut self, max_output_bytes: usize) -> Result<ExecutionResult, EngineError> {
        let mut stdout = CappedOutput::new(max_output_bytes);
        let mut stderr = CappedOutput::new(max_output_bytes);
        let finished = loop {
            match self.next().await {
                ExecutionEvent::Stdout(bytes) => stdout.push(&bytes),
                ExecutionEvent::Stderr(bytes) => stderr.push(&bytes),
                ExecutionEvent::Done(finished) => break finished,
                ExecutionEvent::Failed(error) => return Err(error),
            }
        };
        if let Some(note) = &finished.outcome.stderr_note {
            stderr.push(note.as_bytes());
        }
        let (stdout, stderr) = (stdout.finish(), stderr.finish());
        let (stdout_truncated, stderr_truncated) = (stdout.truncated, stderr.truncated);
        Ok(ExecutionResult {
            stdout: stdout.into_text(),
            stderr: stderr.into_text(),
            exit_code: finished.outcome.exit_code,
            duration_ms: finished.duration_ms,
            signal: finished.outcome.signal.map(std::borrow::Cow::into_owned),
            reason: finished.outcome.reason,
            message: finished.outcome.message,
            stdout_truncated,
            stderr_truncated,
            encoding: OutputEncoding::Text,
        })
    }
}

impl Running {
    /// Cancel safe: what the link reported is kept until its event is returned.
    async fn next(&mut self) -> ExecutionEvent {
        loop {
            if let Some(end) = self.end {
                return self.finish(end).await;
            }
            tokio::select! {
                biased;
                event = self.command.next() => match event {
                    CommandEvent::Output(Channel::Stdout, bytes) => return ExecutionEvent::Stdout(bytes),
                    CommandEvent::Output(Channel::Stderr, bytes) => return ExecutionEvent::Stderr(bytes),
                    CommandEvent::Exited { exit, duration_us } => {
                        self.end = Some(LinkEnd::Exited { exit, duration_ms: duration_us.div_ceil(1000) });
                    }
                    CommandEvent::Lost => {
                        self.end = Some(LinkEnd::Lost { duration_ms: millis(self.started.elapsed()) });
                    }
                },
                () = input_written(&mut self.stdin_writer) => self.stdin_writer = None,
                () = self.deadline.agent_is_late() => {
                    return ExecutionEvent::Failed(LinkError::Silent(AGENT_TIMEOUT).into());
                }
            }
        }
    }

    async fn finish(&mut self, end: LinkEnd) -> ExecutionEvent {
        match end {
            LinkEnd::Exited { exit, duration_ms } => {
                let ended = ended(exit);
                done(ended, &self.cause_of_end(ended).await, duration_ms)
            }
            LinkEnd::Lost { duration_ms } => match self.cause_of_loss().await {
                // All processes of the sandbox were killed.
                Some(cause) => done(Ended::Signalled { signal: SIGKILL }, &cause, duration_ms),
                None => ExecutionEvent::Failed(LinkError::Closed.into()),
            },
        }
    }

    async fn cause_of_end(&mut self, ended: Ended) -> EndCause {
        if self.deadline.is_over() {
            return EndCause::Timeout { timeout_ms: self.timeout_ms };
        }
        // The agent may report the end of a killed command before it is killed itself.
        let terminated = termination(&self.status.borrow().record);
        if let Some(cause) = terminated {
            return cause;
        }
        let out_of_memory = if ended.is_killed() { self.memory.out_of_memory().await } else { None };
        out_of_memory.map_or(EndCause::Unknown, EndCause::OutOfMemory)
    }

    /// Why all processes of the sandbox ended, if the reason is one that kills them.
    async fn cause_of_loss(&mut self) -> Option<EndCause> {
        let memory = &self.memory;
        let is_over = |status: &Status| {
            // A loss also pauses the sandbox, but another request may have resumed it.
            let is_lost = status.process_loss.is_some_and(|loss| memory.is_over_at(loss));
            is_lost || status.state() != SandboxState::Running
        };
        // The actor learns of the end of the link at the same time.
        let _ = tokio::time::timeout(LOSS_TIMEOUT, self.status.wait_for(is_over)).await;
        let status = self.status.borrow();
        termination(&status.record)
            .or_else(|| self.memory.out_of_memory_at(status.process_loss?).map(EndCause::OutOfMemory))
    }
}

/// The termination of a sandbox, which kills all its processes.
pub fn termination(record: &SandboxRecord) -> Option<EndCause> {
    let (_, reason) = record.lifecycle.end()?;
    Some(EndCause::Termination { sandbox: record.id.clone(), reason: reason.to_owned() })
}

/// How bash ended.
pub fn ended(exit: Exit) -> Ended {
    match exit {
        Exit::Code(code) => Ended::Exited { code },
        Exit::Signal(signal) => Ended::Signalled { signal },
    }
}

fn done(ended: Ended, cause: &EndCause, duration_ms: u64) -> ExecutionEvent {
    ExecutionEvent::Done(Finished { outcome: rules::ended_outcome(ended, cause), duration_ms })
}

async fn input_written(stdin_writer: &mut Option<StdinWriter>) {
    match stdin_writer {
        Some(stdin_writer) => stdin_writer.await,
        None => std::future::pending().await,
    }
}
