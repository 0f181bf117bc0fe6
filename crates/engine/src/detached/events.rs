//! The events of detached executions. Each event has a key under which it is recorded once: a daemon that repeats the event of a
//! crashed daemon does not duplicate it.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use api::{EndReason, EventKind, RunId};
use rules::{EndCause, Ended, TimeMs};
use serde_json::{Value, json};
use store::{MAX_WRITES, NewEvent, SandboxRecord};

use super::execution::DetachedExecution;
use super::log::LogState;
use super::record::{End, Record};
use crate::work::execution::termination;

/// The message of an execution that was not reattached before its sandbox was terminated.
pub const PROCESSES_GONE: &str = "its processes ended with those of its sandbox; the outcome is unknown";
const NOT_REATTACHED: &str =
    "its sandbox was terminated before the service reattached to it; the outcome is unknown";
/// Writes of a commit that are reserved for everything other than end events.
const RESERVED_WRITES: usize = 16;

pub fn started(sandbox: &SandboxRecord, record: &Record) -> NewEvent {
    event(sandbox, record, EventKind::ExecStarted, TimeMs(record.started_at_ms), command(record))
}

/// The end event of executions that end with their sandbox, as many as fit into one commit.
pub fn ended_with_sandbox<'a>(
    sandbox: &SandboxRecord,
    executions: impl Iterator<Item = &'a DetachedExecution>,
    now: TimeMs,
) -> Vec<NewEvent> {
    let ends = executions.take(MAX_WRITES - RESERVED_WRITES).map(|execution| {
        let log = execution.progress.borrow().log.clone();
        let has_started = execution.has_started.load(Ordering::Relaxed);
        let new = || match termination(sandbox) {
            Some(cause) if has_started => killed(&execution.record, &cause, now),
            _ => lost(NOT_REATTACHED, now),
        };
        let end = log.end.clone().unwrap_or_else(new);
        ended(sandbox, &execution.record, &log, &end)
    });
    ends.collect()
}

/// The outcome of an execution that was killed with all processes of its sandbox.
pub fn killed(record: &Record, cause: &EndCause, now: TimeMs) -> End {
    let duration_ms = now.0.saturating_sub(record.started_at_ms);
    end(Ended::Signalled { signal: 9 }, cause, duration_ms, now)
}

/// An unknown outcome.
pub fn lost(message: &str, now: TimeMs) -> End {
    let message = Some(message.to_owned());
    End {
        is_lost: true,
        is_timed_out: false,
        exit_code: None,
        signal: None,
        reason: None,
        message,
        duration_ms: 0,
        at_ms: now.0,
    }
}

/// The outcome that the agent reported.
pub fn exited(ended: Ended, cause: &EndCause, duration_us: u64, now: TimeMs) -> End {
    end(ended, cause, duration_us.div_ceil(1000), now)
}

fn end(ended: Ended, cause: &EndCause, duration_ms: u64, now: TimeMs) -> End {
    let outcome = rules::ended_outcome(ended, cause);
    End {
        is_lost: false,
        is_timed_out: outcome.reason == Some(EndReason::Timeout),
        exit_code: outcome.exit_code,
        signal: outcome.signal.map(Cow::into_owned),
        reason: outcome.reason,
        message: outcome.message,
        duration_ms,
        at_ms: now.0,
    }
}

pub fn ended(sandbox: &SandboxRecord, record: &Record, log: &LogState, end: &End) -> NewEvent {
    let mut data = command(record);
    let at = TimeMs(end.at_ms);
    let was_not_started = end.exit_code.is_none() && end.signal.is_none();
    if end.is_lost || was_not_started {
        data["message"] = json!(end.message.as_deref().unwrap_or_default());
        return event(sandbox, record, EventKind::ExecError, at, data);
    }
    data["durationMs"] = json!(end.duration_ms);
    data["exitCode"] = json!(end.exit_code);
    data["signal"] = json!(end.signal);
    if let Some(reason) = end.reason {
        data["reason"] = json!(reason);
    }
    data["stdoutBytes"] = json!(log.printed.stdout);
    data["stderrBytes"] = json!(log.printed.stderr);
    event(sandbox, record, EventKind::ExecCompleted, at, data)
}

fn command(record: &Record) -> Value {
    let (command, is_cut) = rules::shown_command(&record.command);
    let mut data = json!({ "executionId": record.id, "command": command });
    if is_cut {
        data["commandTruncated"] = json!(true);
    }
    data
}

fn event(sandbox: &SandboxRecord, record: &Record, kind: EventKind, at: TimeMs, data: Value) -> NewEvent {
    // An execution has one start event and one end event, whatever the kind of the end.
    let part = if kind == EventKind::ExecStarted { "started" } else { "ended" };
    NewEvent {
        sandbox: sandbox.id.clone(),
        account: sandbox.account.clone(),
        run: record.run_id.as_ref().map(RunId::as_str).unwrap_or_default().to_owned(),
        at,
        kind,
        data,
        once: Some(format!("{} {part}", record.id)),
    }
}
