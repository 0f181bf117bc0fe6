//! The events of a detached execution: the same as of any command. They are noted by whichever daemon is there.

use std::sync::Arc;

use api::{EventKind, RunId};
use serde_json::{Value, json};
use store::{NewEvent, SandboxRecord};

use crate::kept::log::Told;
use crate::kept::record::{End, Record};
use crate::shared::Shared;

pub fn started(shared: &Shared, sandbox: &Arc<SandboxRecord>, record: &Record) {
    note(shared, sandbox, record, EventKind::ExecStarted, command(record));
}

/// How it ended, or that nobody knows.
pub fn ended(shared: &Shared, sandbox: &Arc<SandboxRecord>, record: &Record, told: &Told, end: &End) {
    let mut data = command(record);
    let never_started = end.exit_code.is_none() && end.signal.is_none();
    if end.is_lost || never_started {
        data["message"] = json!(end.message.as_deref().unwrap_or_default());
        return note(shared, sandbox, record, EventKind::ExecError, data);
    }
    data["durationMs"] = json!(end.duration_ms);
    data["exitCode"] = json!(end.exit_code);
    data["signal"] = json!(end.signal);
    data["stdoutBytes"] = json!(told.printed.stdout);
    data["stderrBytes"] = json!(told.printed.stderr);
    note(shared, sandbox, record, EventKind::ExecCompleted, data);
}

fn command(record: &Record) -> Value {
    let (command, is_cut) = rules::shown_command(&record.command);
    let mut data = json!({ "executionId": record.id, "command": command });
    if is_cut {
        data["commandTruncated"] = json!(true);
    }
    data
}

fn note(shared: &Shared, sandbox: &Arc<SandboxRecord>, record: &Record, kind: EventKind, data: Value) {
    shared.note(NewEvent {
        sandbox: sandbox.id.clone(),
        account: sandbox.account.clone(),
        run: record.run_id.as_ref().map(RunId::as_str).unwrap_or_default().to_owned(),
        at: shared.clock.now(),
        kind: kind.to_string(),
        data,
    });
}
