//! Converts the engine's status of an execution to types of the API.

use api::{ExecutionState, ExecutionView, SandboxId, TerminalSize};
use engine::ExecutionStatus;

/// An execution for start, get and list.
pub fn execution_view(sandbox: &SandboxId, status: ExecutionStatus) -> ExecutionView {
    ExecutionView {
        execution_id: status.id,
        sandbox_id: sandbox.clone(),
        state: execution_state(status.state),
        command: rules::shown_command(&status.command).0.to_owned(),
        cwd: status.cwd,
        terminal: status.terminal.map(|size| TerminalSize { cols: size.columns, rows: size.rows }),
        run_id: status.run_id.map(String::from).unwrap_or_default(),
        timeout_ms: status.timeout_ms,
        stdin_open: status.open_stdin,
        started_at: status.started_at.into(),
        ended_at: status.ended_at.map(Into::into),
        exit_code: status.exit_code,
        signal: status.signal,
        duration_ms: status.duration_ms,
        reason: status.reason,
        message: status.message,
        output_end: status.output.to_string(),
        output_start: status.oldest.to_string(),
    }
}

pub fn execution_state(state: engine::ExecutionState) -> ExecutionState {
    match state {
        engine::ExecutionState::Running => ExecutionState::Running,
        engine::ExecutionState::Exited => ExecutionState::Exited,
        engine::ExecutionState::Lost => ExecutionState::Lost,
    }
}
