//! The events of a detached execution: the same as of any command. They are state by whichever daemon is there, and each is there
//! once, however often it is state: so who died in the very moment of one leaves neither none nor two.

use std::sync::atomic::Ordering;

use api::{EventKind, RunId};
use guest_proto::Exit;
use rules::{Ended, TimeMs};
use serde_json::{Value, json};
use store::{MAX_WRITES, NewEvent, SandboxRecord};

use crate::detached::log::LogState;
use crate::detached::record::{End, Record};
use crate::detached::registry::SandboxExecutions;
use crate::shared::Shared;

/// Of one that the daemon before this one left.
const UNHEARD: &str = "its sandbox ended before it was heard of again; how it ended is not known";
/// Of the writes of one commit, left to the others.
const OTHERS: usize = 16;

pub fn started(shared: &Shared, sandbox: &SandboxRecord, record: &Record) {
    let (at, data) = (TimeMs(record.started_at_ms), command(record));
    shared.append_event(event(sandbox, record, EventKind::ExecStarted, at, data));
}

/// How it ended, or that nobody knows.
pub fn ended(shared: &Shared, sandbox: &SandboxRecord, record: &Record, state: &LogState, end: &End) {
    shared.append_event(end_of(sandbox, record, state, end));
}

/// The ends of those that end with their sandbox, and of those that are over and not state of, for the commit of its end: after it
/// nothing of them is left that a daemon could find.
pub fn ended_with(sandbox: &SandboxRecord, executions: &SandboxExecutions, now: TimeMs) -> Vec<NewEvent> {
    let without_end_event = executions.without_end_event();
    let ends = without_end_event.iter().take(MAX_WRITES - OTHERS).map(|execution| {
        let state = execution.progress.borrow().log.clone();
        let has_started = execution.has_started.load(Ordering::Relaxed);
        let new = || if has_started { killed(&execution.record, now) } else { lost(UNHEARD, now) };
        let end = state.end.clone().unwrap_or_else(new);
        end_of(sandbox, &execution.record, &state, &end)
    });
    ends.collect()
}

/// The end of what was killed with its sandbox.
pub fn killed(record: &Record, now: TimeMs) -> End {
    let (exit_code, signal) = outcome(rules::Command::Ended(Ended::Signalled { signal: 9 }));
    let duration_ms = now.0.saturating_sub(record.started_at_ms);
    End { is_lost: false, exit_code, signal, message: None, duration_ms, at_ms: now.0 }
}

/// The end of what nobody knows.
pub fn lost(why: &str, now: TimeMs) -> End {
    let message = Some(why.to_owned());
    End { is_lost: true, exit_code: None, signal: None, message, duration_ms: 0, at_ms: now.0 }
}

/// What an agent said of an end.
pub fn exited(exit: Exit, duration_us: u64, is_timed_out: bool, now: TimeMs) -> End {
    let (exit_code, signal) = outcome(match exit {
        Exit::Signal(9) if is_timed_out => rules::Command::TimedOut,
        Exit::Signal(signal) => rules::Command::Ended(Ended::Signalled { signal }),
        Exit::Code(code) => rules::Command::Ended(Ended::Exited { code }),
    });
    let duration_ms = duration_us.div_ceil(1000);
    End { is_lost: false, exit_code, signal, message: None, duration_ms, at_ms: now.0 }
}

fn outcome(seen: rules::Command) -> (Option<i32>, Option<String>) {
    match rules::outcome(seen) {
        Ok(outcome) => (outcome.exit_code, outcome.signal.map(std::borrow::Cow::into_owned)),
        // Only of what never started.
        Err(_) => (None, None),
    }
}

fn end_of(sandbox: &SandboxRecord, record: &Record, state: &LogState, end: &End) -> NewEvent {
    let mut data = command(record);
    let at = TimeMs(end.at_ms);
    let never_started = end.exit_code.is_none() && end.signal.is_none();
    if end.is_lost || never_started {
        data["message"] = json!(end.message.as_deref().unwrap_or_default());
        return event(sandbox, record, EventKind::ExecError, at, data);
    }
    data["durationMs"] = json!(end.duration_ms);
    data["exitCode"] = json!(end.exit_code);
    data["signal"] = json!(end.signal);
    data["stdoutBytes"] = json!(state.printed.stdout);
    data["stderrBytes"] = json!(state.printed.stderr);
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
    // One beginning and one end, of whatever kind.
    let part = if kind == EventKind::ExecStarted { "started" } else { "ended" };
    NewEvent {
        sandbox: sandbox.id.clone(),
        account: sandbox.account.clone(),
        run: record.run_id.as_ref().map(RunId::as_str).unwrap_or_default().to_owned(),
        at,
        kind: kind.to_string(),
        data,
        once: Some(format!("{} {part}", record.id)),
    }
}
