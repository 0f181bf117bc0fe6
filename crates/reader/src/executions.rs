//! Detached executions and terminals: their bodies, and the queries and headers about their output.

use api::ExecuteRequest;
use rules::{ConfigError, DetachedCommand, ExecuteInput, ExecuteRules, OutputPosition, QueryError, shown};

use crate::bodies::{EXECUTE, execute_input, refused};
use crate::fields::Fields;
use crate::{FileQuery, Refusal, file_query};

const DETACHED: &[&str] =
    &["command", "cwd", "env", "timeoutMs", "stdin", "autoResume", "detached", "openStdin"];
const TERMINAL: &[&str] = &["cols", "rows", "command", "cwd", "env", "timeoutMs", "autoResume"];
const SIGNAL: &[&str] = &["signal"];
const PLACE: &str = "the id of an event of the output, such as '512.0', or 'end'";

/// A body of execute: for an answer at the command's end, or at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Attached(ExecuteRequest),
    Detached(DetachedCommand),
}

/// Reads a body of execute and puts the defaults in.
pub fn ask(body: &[u8], rules: &ExecuteRules) -> Result<Ask, Refusal> {
    const { assert!(EXECUTE.len() + 2 == DETACHED.len()) };
    let fields = Fields::of_body(body, DETACHED)?;
    let input = execute_input(&fields, fields.required_text("command")?)?;
    if !fields.boolean("detached")?.unwrap_or(false) {
        return rules::execute_request(input, rules).map(Ask::Attached).map_err(refused);
    }
    let open_stdin = fields.boolean("openStdin")?;
    rules::detached_command(input, open_stdin, rules).map(Ask::Detached).map_err(refused)
}

/// Reads a body that opens a terminal.
pub fn terminal(body: &[u8], rules: &ExecuteRules) -> Result<DetachedCommand, Refusal> {
    let fields = Fields::of_body(body, TERMINAL)?;
    let (cols, rows) = (fields.integer("cols")?, fields.integer("rows")?);
    let command = fields.text("command")?.unwrap_or_default();
    let input = ExecuteInput { stdin: None, ..execute_input(&fields, command)? };
    rules::terminal_command(input, cols, rows, rules).map_err(refused)
}

/// Reads a body that names a signal.
pub fn signal(body: &[u8]) -> Result<i32, Refusal> {
    let name = Fields::of_body(body, SIGNAL)?.required_text("signal")?;
    signal_number(&name).ok_or_else(|| {
        let names: Vec<&str> = api::SIGNALS.iter().map(|(name, _)| *name).collect();
        let allowed = format!("one of {}", names.join(", "));
        ConfigError { field: "signal".to_owned(), got: shown(&name), allowed }.into()
    })
}

/// Of a signal that can be sent.
pub fn signal_number(name: &str) -> Option<i32> {
    api::SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| i32::from(*number))
}

/// The offset and the limit of a page of executions.
pub fn page(query: Option<&str>) -> Result<(u64, u32), Refusal> {
    file_query(query)?.page()
}

/// Where output is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    At(OutputPosition),
    /// Behind the last event.
    End,
}

/// Reads a place as events have it for their id; a number alone is one of stdout.
pub fn place(text: &str, field: &str) -> Result<Place, Refusal> {
    let fault = || QueryError { field: field.to_owned(), got: shown(text), allowed: PLACE.to_owned() };
    if text == "end" {
        return Ok(Place::End);
    }
    let whole = if text.contains('.') { text.to_owned() } else { format!("{text}.0") };
    whole.parse().map(Place::At).map_err(|_| fault().into())
}

/// What a query asks of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionQuery {
    pub after: Option<Place>,
    /// End the standard input with what is written.
    pub close: bool,
    pub auto_resume: bool,
    pub line_ends: bool,
}

/// Whether the events of a stream are to tell how lines end.
pub fn line_ends(query: Option<&str>) -> Result<bool, Refusal> {
    file_query(query)?.flag("lineEnds", false)
}

/// Reads the query of output, of attaching and of writing.
pub fn execution_query(query: Option<&str>) -> Result<ExecutionQuery, Refusal> {
    let query: FileQuery = file_query(query)?;
    let after = query.text("after", PLACE)?.map(|text| place(text, "after")).transpose()?;
    let (close, auto_resume) = (query.flag("close", false)?, query.flag("autoResume", true)?);
    Ok(ExecutionQuery { after, close, auto_resume, line_ends: query.flag("lineEnds", false)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detached(body: &str) -> Result<Ask, Refusal> {
        ask(body.as_bytes(), &ExecuteRules::default())
    }

    #[test]
    fn a_command_is_detached_when_it_says_so() {
        let body = r#"{"command":"true","timeoutMs":400000,"detached":true,"openStdin":true}"#;
        let Ok(Ask::Detached(command)) = detached(body) else { panic!() };
        assert_eq!((command.timeout_ms, command.open_stdin), (Some(400_000), true));
        for attached in [r#"{"command":"true"}"#, r#"{"command":"true","detached":false,"openStdin":7}"#] {
            assert!(matches!(detached(attached), Ok(Ask::Attached(_))), "{attached}");
        }
        for wrong in [
            r#"{"detached":true}"#,
            r#"{"command":"true","detached":1}"#,
            r#"{"command":"true","detached":null}"#,
            r#"{"command":"true","detached":true,"openStdin":"yes"}"#,
            r#"{"command":"true","detached":true,"timeoutMs":0}"#,
            r#"{"command":"true","timeoutMs":400000}"#,
        ] {
            assert!(detached(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_terminal_needs_nothing_and_takes_no_stdin() {
        let rules = ExecuteRules::default();
        let command = terminal(br#"{"stdin":"x"}"#, &rules).unwrap();
        assert_eq!((command.request.command.as_str(), command.request.stdin), ("", None));
        assert!(terminal(br#"{"cols":0}"#, &rules).is_err() && terminal(b"[]", &rules).is_err());
    }

    #[test]
    fn places_and_signals_are_read_strictly() {
        let at = |stdout, stderr| Place::At(OutputPosition { stdout, stderr });
        for (text, read) in [("0", at(0, 0)), ("512", at(512, 0)), ("7.9", at(7, 9)), ("end", Place::End)] {
            assert_eq!(place(text, "after"), Ok(read));
        }
        for text in ["", "-1", "1.", "01", "1.2.3", "END", "99999999999999999999", "1e3", " 1"] {
            assert!(place(text, "after").is_err(), "{text:?}");
        }
        assert_eq!(signal(br#"{"signal":"SIGINT"}"#), Ok(2));
        for body in [r#"{"signal":"INT"}"#, r#"{"signal":2}"#, r#"{}"#, r#"{"signal":"SIGRTMIN"}"#] {
            assert!(signal(body.as_bytes()).is_err(), "{body}");
        }
        let query = execution_query(Some("after=5&close=true")).unwrap();
        assert_eq!((query.after, query.close, query.auto_resume), (Some(at(5, 0)), true, true));
        assert!(
            execution_query(Some("after=1&after=2")).is_err() && execution_query(Some("close=1")).is_err()
        );
        assert_eq!(page(Some("limit=3&offset=4")), Ok((4, 3)));
        assert_eq!(page(None), Ok((0, 20)));
    }
}
