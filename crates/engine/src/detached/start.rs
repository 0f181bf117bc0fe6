//! Starting an execution: let in, written down, started, on record. Goes on to its end when the caller stops waiting.
//!
//! What fails before the agent was asked leaves nothing. What the agent refuses for a reason of the command's own is an execution that
//! ended at once. Where it is not known whether it started, it is given up inside, and its record goes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::SandboxState;
use guest_proto::{Channel, ExecSpec, StdinMode};
use rules::{AutoResume, Operation};
use tokio::sync::watch;

use super::events;
use super::log_writer::LogWriter;
use crate::agent_timeout::AgentTimeout;
use crate::deadline::AGENT_TIMEOUT;
use crate::detached::execution::DetachedExecution;
use crate::detached::log::Log;
use crate::detached::log::entry::Entry;
use crate::detached::record::{End, Record};
use crate::detached::registry::{SandboxExecutions, remove_tree};
use crate::detached::status::{DetachedRequest, ExecutionStatus, fresh_id};
use crate::error::EngineError;
use crate::execution::is_start_failure;
use crate::link::LinkError;
use crate::mailbox::{ActorHandle, ActorRequest, Admission, Permit};
use crate::shared::Shared;
use crate::status::Status;

/// How long it may wait for a place, where there is a queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(300);
const TERM: (&str, &str) = ("TERM", "xterm-256color");

/// What is about to be an execution.
struct NewExecution {
    record: Record,
    dir: PathBuf,
    log: Log,
}

/// Lets a command in and starts it.
pub async fn start(
    shared: &Arc<Shared>,
    handle: ActorHandle,
    request: DetachedRequest,
) -> Result<ExecutionStatus, EngineError> {
    let auto_resume = AutoResume::from(request.auto_resume);
    let is_terminal = request.terminal.is_some();
    let entering = handle.request(|reply| ActorRequest::Detach { auto_resume, is_terminal, reply });
    let never = || rules::NeverStarted { timeout_ms: QUEUE_TIMEOUT.as_millis() as u64 };
    let entry = tokio::time::timeout(QUEUE_TIMEOUT, entering).await.map_err(|_| never())??;
    // A terminal keeps nobody awake by itself. While it starts its sandbox must not fall asleep: whoever waits would wait for ever.
    let operation = Operation::Attach { auto_resume };
    let _awake = match is_terminal {
        true => Some(handle.request(|reply| ActorRequest::Enter { operation, reply }).await?),
        false => None,
    };
    let executions = shared.detached.of(&entry.record.id);
    let _one_at_a_time = executions.starting.lock().await;
    let gone = executions.prune(&shared.detached.settings);
    let draft = draft(shared, &executions, &entry, &request, gone).await?;
    let Admission { permit, agent, record: sandbox, status } = entry;

    let own: Vec<(String, String)> =
        rules::environment(&sandbox.image_env, &sandbox.config.env, &request.env).into_iter().collect();
    let mut env: Vec<(&str, &str)> =
        own.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if is_terminal && !request.env.contains_key(TERM.0) {
        env.retain(|(name, _)| *name != TERM.0);
        env.push(TERM);
    }
    let argv =
        if request.command.is_empty() { vec!["bash"] } else { vec!["bash", "-c", "--", &request.command] };
    let spec = ExecSpec {
        argv,
        env,
        cwd: request.cwd.as_deref().unwrap_or(&sandbox.config.workdir),
        stdin: if draft.record.has_stdin { StdinMode::Pipe } else { StdinMode::Null },
    };
    let op = draft.record.op;
    let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, status.clone());
    match agent.start_detached(op, spec, request.terminal, &mut timeout).await {
        Ok(kept) => {
            events::started(shared, &sandbox, &draft.record);
            Ok(keep(shared, &executions, draft, status, permit, Some(kept)))
        }
        Err(LinkError::Refused { kind, message }) if is_start_failure(kind) => {
            let draft = not_started(shared, draft, message).await?;
            // Its keeper has nothing to do but to tell.
            Ok(keep(shared, &executions, draft, status, permit, None))
        }
        Err(error) => {
            agent.abandon(op);
            let is_terminated = status.borrow().state() == SandboxState::Terminated;
            // With the sandbox all of its executions went, and this one's directory came behind.
            let dir = if is_terminated { executions.dir.clone() } else { draft.dir };
            let removed = tokio::task::spawn_blocking(move || remove_tree(&dir)).await;
            if let Ok(Err(error)) = removed {
                tracing::error!(%error, "could not remove what is left of an execution that did not start");
            }
            Err(if is_terminated { EngineError::NotFound { terminated: None } } else { error.into() })
        }
    }
}

/// Writes its record down, and removes what had to make room.
async fn draft(
    shared: &Shared,
    executions: &SandboxExecutions,
    entry: &Admission,
    request: &DetachedRequest,
    gone: Vec<PathBuf>,
) -> Result<NewExecution, EngineError> {
    let id = fresh_id();
    let now = shared.clock.now();
    let running_ms = entry.record.accounting.running_ms(now);
    let is_terminal = request.terminal.is_some();
    let record = Record {
        op: entry.agent.next_op(),
        command: request.command.clone(),
        cwd: request.cwd.clone(),
        run_id: request.run_id.clone(),
        terminal: request.terminal,
        timeout_ms: request.timeout_ms,
        ends_at_running_ms: request.timeout_ms.map(|ms| running_ms.saturating_add(ms)),
        open_stdin: request.open_stdin || is_terminal,
        has_stdin: request.open_stdin || is_terminal || request.stdin.is_some(),
        started_at_ms: now.0,
        id,
    };
    let dir = executions.dir.join(record.id.as_str());
    let stdin = request.stdin.clone();
    let log_bytes = shared.detached.settings.log_bytes;
    let writing = tokio::task::spawn_blocking(move || {
        for dir in gone {
            remove_tree(&dir)?;
        }
        let written = record.write(&dir, stdin.as_deref()).and_then(|()| Log::create(&dir, log_bytes));
        match written {
            Ok(log) => Ok(NewExecution { record, dir, log }),
            Err(error) => {
                // Half of it would be found by the next start of the daemon, and removed.
                let _ = remove_tree(&dir);
                Err(error)
            }
        }
    });
    Ok(writing.await.map_err(|_| EngineError::TaskLost)??)
}

/// Gives it into the inbox of a keeper.
fn keep(
    shared: &Arc<Shared>,
    executions: &Arc<SandboxExecutions>,
    draft: NewExecution,
    status: watch::Receiver<Status>,
    permit: Permit,
    kept: Option<crate::link::DetachedCommand>,
) -> ExecutionStatus {
    let NewExecution { record, dir, log } = draft;
    let (execution, inbox) = DetachedExecution::new(record, dir, &log);
    execution.has_started.store(kept.is_some(), Ordering::Relaxed);
    executions.add(&execution);
    let now = execution.status();
    let keeper = LogWriter {
        shared: Arc::clone(shared),
        executions: Arc::clone(executions),
        execution,
        log: Some(log),
        inbox,
        status,
        permit: Some(permit),
    };
    shared.tasks.spawn(keeper.run(kept));
    now
}

/// It ended before it began, and its log says why as any other does.
async fn not_started(
    shared: &Shared,
    mut draft: NewExecution,
    message: String,
) -> Result<NewExecution, EngineError> {
    let outcome = rules::outcome(rules::Command::NotStarted { reason: message.clone() })?;
    let at_ms = shared.clock.now().0;
    let end = End {
        is_lost: false,
        exit_code: outcome.exit_code,
        signal: None,
        message: Some(message),
        duration_ms: 0,
        at_ms,
    };
    let note = outcome.stderr_note.unwrap_or_default();
    let writing = tokio::task::spawn_blocking(move || {
        let entries = [Entry::Output(Channel::Stderr, note.as_bytes()), Entry::Ended(end)];
        match draft.log.append(&entries, at_ms).and_then(|()| draft.log.sync()) {
            Ok(()) => Ok(draft),
            Err(error) => {
                // Nobody hears of it; half of it would be found by the next start of the daemon, and removed.
                let _ = remove_tree(&draft.dir);
                Err(error)
            }
        }
    });
    Ok(writing.await.map_err(|_| EngineError::TaskLost)??)
}
