//! Detached executions and terminals: their defaults and ranges, in addition to those of execute.

use api::bounds::{COLS, DETACHED_TIMEOUT_MS_MAX, READER_TIMEOUT_MS, ROWS};
use api::{DetachedBody, ExecuteBody, ExecuteRequest, TerminalBody, TerminalSize};

use crate::config::error::ConfigError;
use crate::config::{Integer, Range, integer};
use crate::execution::{ExecuteRefusal, ExecuteRules, execute_request};

/// A checked detached command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedCommand {
    /// `timeout_ms` of the request is unused.
    pub request: ExecuteRequest,
    /// `None`: it may run as long as its sandbox.
    pub timeout_ms: Option<u64>,
    /// How long it waits for a reader while its stored output is full and unread.
    pub reader_timeout_ms: u64,
    pub open_stdin: bool,
    pub terminal: Option<TerminalSize>,
}

/// Checks the body of an execute with `detached`; shared fields have the rules of execute.
pub fn detached_command(body: DetachedBody, rules: &ExecuteRules) -> Result<DetachedCommand, ExecuteRefusal> {
    let DetachedBody { command, cwd, env, user, stdin, open_stdin, auto_resume, .. } = body;
    let timeout_ms = timeout(body.timeout_ms)?;
    let reader_timeout_ms = integer("readerTimeoutMs", body.reader_timeout_ms, READER_TIMEOUT_MS)?;
    let body = ExecuteBody { command, cwd, env, user, stdin, auto_resume, ..ExecuteBody::default() };
    let request = execute_request(body, rules)?;
    let open_stdin = open_stdin.unwrap_or(false);
    Ok(DetachedCommand { request, timeout_ms, reader_timeout_ms, open_stdin, terminal: None })
}

/// Checks a body that opens a terminal. Without a command the terminal runs a shell.
pub fn terminal_command(body: TerminalBody, rules: &ExecuteRules) -> Result<DetachedCommand, ExecuteRefusal> {
    let TerminalBody { cols, rows, command, cwd, env, user, timeout_ms, auto_resume } = body;
    let size = TerminalSize { cols: integer("cols", cols, COLS)?, rows: integer("rows", rows, ROWS)? };
    let command = command.unwrap_or_default();
    let open_stdin = Some(true);
    let body = DetachedBody {
        command,
        cwd,
        env,
        user,
        timeout_ms,
        open_stdin,
        auto_resume,
        ..DetachedBody::default()
    };
    Ok(DetachedCommand { terminal: Some(size), ..detached_command(body, rules)? })
}

fn timeout(given: Option<Integer>) -> Result<Option<u64>, ConfigError> {
    let range = Range { min: 1, max: DETACHED_TIMEOUT_MS_MAX, default: DETACHED_TIMEOUT_MS_MAX };
    given.map(|given| integer("timeoutMs", Some(given), range)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(timeout_ms: Option<Integer>) -> DetachedBody {
        DetachedBody { command: "true".into(), timeout_ms, ..DetachedBody::default() }
    }

    #[test]
    fn a_detached_command_may_run_for_a_day_or_without_an_end() {
        let rules = ExecuteRules::default();
        let command = detached_command(body(None), &rules).unwrap();
        assert_eq!((command.timeout_ms, command.open_stdin, command.terminal), (None, false, None));
        let command =
            detached_command(DetachedBody { open_stdin: Some(true), ..body(Some(86_400_000)) }, &rules)
                .unwrap();
        assert_eq!((command.timeout_ms, command.open_stdin), (Some(86_400_000), true));
        for wrong in [0, -1, 86_400_001, Integer::MAX] {
            let refusal = detached_command(body(Some(wrong)), &rules).unwrap_err();
            assert!(
                matches!(refusal, ExecuteRefusal::Invalid(error) if error.field == "timeoutMs"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_detached_command_waits_two_minutes_for_a_reader_by_default() {
        let rules = ExecuteRules::default();
        let wait = |reader_timeout_ms| {
            let body = DetachedBody { reader_timeout_ms, ..body(None) };
            detached_command(body, &rules).map(|command| command.reader_timeout_ms)
        };
        assert_eq!(wait(None).unwrap(), 120_000);
        assert_eq!((wait(Some(0)).unwrap(), wait(Some(86_400_000)).unwrap()), (0, 86_400_000));
        for wrong in [-1, 86_400_001] {
            let refusal = wait(Some(wrong)).unwrap_err();
            assert!(
                matches!(refusal, ExecuteRefusal::Invalid(error) if error.field == "readerTimeoutMs"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_terminal_has_a_size() {
        let rules = ExecuteRules::default();
        let open =
            |cols, rows| terminal_command(TerminalBody { cols, rows, ..TerminalBody::default() }, &rules);
        let size = |cols, rows| Some(TerminalSize { cols, rows });
        assert_eq!(open(None, None).unwrap().terminal, size(80, 24));
        assert_eq!(open(Some(1), Some(1000)).unwrap().terminal, size(1, 1000));
        for (cols, rows, field) in
            [(Some(0), None, "cols"), (Some(1001), None, "cols"), (None, Some(65_536), "rows")]
        {
            let refusal = open(cols, rows).unwrap_err();
            assert!(matches!(refusal, ExecuteRefusal::Invalid(error) if error.field == field));
        }
        let long = TerminalBody { command: Some("x".repeat(65_537)), ..TerminalBody::default() };
        assert!(matches!(terminal_command(long, &rules), Err(ExecuteRefusal::CommandTooLong { .. })));
    }
}
