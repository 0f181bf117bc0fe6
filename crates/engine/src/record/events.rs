//! Events of sandboxes, of their commands and of costs. When the lifecycle has one is decided in `actor`.
//!
//! Events of commands are appended to the event journal: no command waits for the disk, and appended events survive a crash of
//! the daemon. Each admitted command has exactly one end event, unless the daemon crashes first.

use std::sync::Arc;

use api::{EventKind, ExecuteRequest, RunId};
use rules::{CommandOutcome, Prices, TimeMs};
use serde_json::{Value, json};
use store::{Batch, NewEvent, SandboxRecord, SnapshotRecord};

use crate::record::ids::new_execution_id;
use crate::record::stamped_store::StampedStore;

/// The message of an execution whose client did not wait for the outcome.
const OUTCOME_UNKNOWN: &str = "its client disconnected or the daemon stopped, so the command was killed";

/// The events of one command.
pub struct ExecEvents {
    stamped_store: StampedStore,
    record: Arc<SandboxRecord>,
    run: Option<RunId>,
    id: String,
    /// The command, shortened to what events contain.
    command: String,
    is_cut: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub is_streamed: bool,
    end_recorded: bool,
}

impl ExecEvents {
    pub fn new(stamped_store: &StampedStore, record: &Arc<SandboxRecord>, request: &ExecuteRequest) -> Self {
        let (command, is_cut) = rules::shown_command(&request.command);
        Self {
            stamped_store: stamped_store.clone(),
            record: Arc::clone(record),
            run: request.run_id.clone(),
            id: new_execution_id().to_string(),
            command: command.to_owned(),
            is_cut,
            stdout_bytes: 0,
            stderr_bytes: 0,
            is_streamed: false,
            end_recorded: false,
        }
    }

    pub fn started(&self) {
        self.append(EventKind::ExecStarted, self.command());
    }

    /// Records a known outcome. Only the first end event is recorded.
    pub fn completed(&mut self, outcome: &CommandOutcome, duration_ms: u64) {
        if std::mem::replace(&mut self.end_recorded, true) {
            return;
        }
        let (stdout, stderr) = (json!(self.stdout_bytes), json!(self.stderr_bytes));
        if self.is_streamed {
            let data = json!({ "executionId": self.id, "stdoutBytes": stdout, "stderrBytes": stderr });
            self.append(EventKind::ExecStreamed, data);
        }
        let mut data = self.command();
        data["durationMs"] = json!(duration_ms);
        data["exitCode"] = json!(outcome.exit_code);
        data["signal"] = json!(outcome.signal);
        if let Some(reason) = outcome.reason {
            data["reason"] = json!(reason);
        }
        data["stdoutBytes"] = stdout;
        data["stderrBytes"] = stderr;
        self.append(EventKind::ExecCompleted, data);
    }

    /// Records that the command did not start or that its outcome is unknown.
    pub fn failed(&mut self, message: &str) {
        if std::mem::replace(&mut self.end_recorded, true) {
            return;
        }
        let mut data = self.command();
        data["message"] = json!(message);
        self.append(EventKind::ExecError, data);
    }

    fn command(&self) -> Value {
        let mut data = json!({ "executionId": self.id, "command": self.command });
        if self.is_cut {
            data["commandTruncated"] = json!(true);
        }
        data
    }

    fn append(&self, kind: EventKind, data: Value) {
        self.stamped_store.append(NewEvent {
            sandbox: self.record.id.clone(),
            account: self.record.account.clone(),
            run: self.run.as_ref().map(RunId::as_str).unwrap_or_default().to_owned(),
            at: self.stamped_store.now(),
            kind,
            data,
            once: None,
        });
    }
}

impl Drop for ExecEvents {
    fn drop(&mut self) {
        self.failed(OUTCOME_UNKNOWN);
    }
}

/// An event of a sandbox. Its time is that of the event: the record has only those of its changes of state.
pub fn of_sandbox(record: &SandboxRecord, at: TimeMs, kind: EventKind, data: Value) -> NewEvent {
    NewEvent {
        sandbox: record.id.clone(),
        account: record.account.clone(),
        run: String::new(),
        at,
        kind,
        data,
        once: None,
    }
}

/// An event of a snapshot. It belongs to the sandbox that the snapshot was taken of.
pub fn of_snapshot(record: &SnapshotRecord, at: TimeMs, kind: EventKind, data: Value) -> NewEvent {
    NewEvent {
        sandbox: record.sandbox.clone(),
        account: record.account.clone(),
        run: String::new(),
        at,
        kind,
        data,
        once: None,
    }
}

/// A batch with the next record, preceded by a cost event if a stretch of running time ends. The cost event comes first because
/// the event of the change may be the sandbox's last one.
pub fn batch_with_cost(prices: &Prices, before: &SandboxRecord, next: &SandboxRecord, at: TimeMs) -> Batch {
    let batch = Batch::new().put(next.clone());
    match cost(prices, before, next) {
        Some(data) => batch.event(of_sandbox(next, at, EventKind::CostRuntime, data)),
        None => batch,
    }
}

/// The cost of the running time between two records; `None` if there is none or if everything is free.
pub fn cost(prices: &Prices, before: &SandboxRecord, after: &SandboxRecord) -> Option<Value> {
    let (from_ms, to_ms) = (before.lifecycle.finished_ms(), after.lifecycle.finished_ms());
    if prices.is_free() || to_ms <= from_ms {
        return None;
    }
    let resources = after.config.resources;
    let nanos = prices.between(resources, from_ms, to_ms);
    Some(json!({
        "runningMs": to_ms - from_ms,
        "totalRuntimeMs": to_ms,
        "cpu": resources.cpu,
        "memoryMb": resources.memory_mb,
        // For display. `amountNanos` is exact.
        "amount": nanos as f64 / 1e9,
        "amountNanos": nanos,
        "currency": prices.currency,
    }))
}
