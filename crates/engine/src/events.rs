//! Events that the engine makes beside those of a sandbox's own life: of its commands and its cost.
//!
//! Those of a command are noted: no command waits for the disk, and what was noted outlives the daemon. A command that was let
//! in has one end among them, unless the daemon dies first.

use std::sync::Arc;

use api::{EventKind, ExecuteRequest, RunId};
use rules::{Outcome, Prices};
use serde_json::{Value, json};
use store::{NewEvent, SandboxRecord};

use crate::executions::fresh_id;
use crate::shared::Shared;

/// How its events say that nobody was told how it ended.
const UNHEARD: &str = "its client went away or the daemon stopped, which ended the command";

/// The events of one command.
pub struct ExecEvents {
    shared: Arc<Shared>,
    record: Arc<SandboxRecord>,
    run: Option<RunId>,
    id: String,
    /// As much of it as events show.
    command: String,
    is_cut: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub is_streamed: bool,
    is_over: bool,
}

impl ExecEvents {
    pub fn new(shared: &Arc<Shared>, record: &Arc<SandboxRecord>, request: &ExecuteRequest) -> Self {
        let (command, is_cut) = rules::shown_command(&request.command);
        Self {
            shared: Arc::clone(shared),
            record: Arc::clone(record),
            run: request.run_id.clone(),
            id: fresh_id().to_string(),
            command: command.to_owned(),
            is_cut,
            stdout_bytes: 0,
            stderr_bytes: 0,
            is_streamed: false,
            is_over: false,
        }
    }

    pub fn started(&self) {
        self.note(EventKind::ExecStarted, self.command());
    }

    /// It ended, and how is known. The first end counts.
    pub fn completed(&mut self, outcome: &Outcome, duration_ms: u64) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let (stdout, stderr) = (json!(self.stdout_bytes), json!(self.stderr_bytes));
        if self.is_streamed {
            let data = json!({ "executionId": self.id, "stdoutBytes": stdout, "stderrBytes": stderr });
            self.note(EventKind::ExecStreamed, data);
        }
        let mut data = self.command();
        data["durationMs"] = json!(duration_ms);
        data["exitCode"] = json!(outcome.exit_code);
        data["signal"] = json!(outcome.signal);
        data["stdoutBytes"] = stdout;
        data["stderrBytes"] = stderr;
        self.note(EventKind::ExecCompleted, data);
    }

    /// It did not start, or nobody knows how it ended.
    pub fn failed(&mut self, message: &str) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let mut data = self.command();
        data["message"] = json!(message);
        self.note(EventKind::ExecError, data);
    }

    fn command(&self) -> Value {
        let mut data = json!({ "executionId": self.id, "command": self.command });
        if self.is_cut {
            data["commandTruncated"] = json!(true);
        }
        data
    }

    fn note(&self, kind: EventKind, data: Value) {
        self.shared.note(NewEvent {
            sandbox: self.record.id.clone(),
            account: self.record.account.clone(),
            run: self.run.as_ref().map(RunId::as_str).unwrap_or_default().to_owned(),
            at: self.shared.clock.now(),
            kind: kind.to_string(),
            data,
            once: None,
        });
    }
}

impl Drop for ExecEvents {
    fn drop(&mut self) {
        self.failed(UNHEARD);
    }
}

/// What a stretch of running time cost that ends with the later record; nothing where none does, or where all is free.
pub fn cost(prices: &Prices, before: &SandboxRecord, after: &SandboxRecord) -> Option<Value> {
    let (from_ms, to_ms) = (before.accounting.finished_ms(), after.accounting.finished_ms());
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
        // For people; who adds amounts up takes the whole numbers.
        "amount": nanos as f64 / 1e9,
        "amountNanos": nanos,
        "currency": prices.currency,
    }))
}
