//! Standard output and its formats. A closed pipe (`sbx ls | head`) ends the program quietly.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::style::Paint;

/// Clears a terminal, for the next refresh of a table.
pub const CLEAR: &str = "\x1b[H\x1b[2J";

/// How a command prints its result; `--json` selects JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text for people, and the output of a command as it wrote it.
    Plain,
    /// One document, or one line per event.
    Json,
}

impl OutputFormat {
    /// Prints a result: the value as JSON, or the text of it, which `render` paints for standard output.
    pub fn print(self, value: &impl Serialize, render: impl FnOnce(Paint) -> String) -> Result<ExitCode> {
        match self {
            Self::Plain => text(&render(Paint::of(&io::stdout())))?,
            Self::Json => json(value)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints a result whose text is its id, or another single word.
    pub fn print_id(self, value: &impl Serialize, id: &impl Display) -> Result<ExitCode> {
        self.print(value, |_| format!("{id}\n"))
    }

    /// Prints a list whose text is the ids of its items, one per line.
    pub fn print_ids<T: Serialize>(self, items: &[T], id: impl Fn(&T) -> String) -> Result<ExitCode> {
        self.print(&items, |_| items.iter().map(|item| id(item) + "\n").collect())
    }
}

/// Prints text.
pub fn text(text: &str) -> Result<()> {
    bytes(text.as_bytes())
}

/// Prints bytes as they are.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Prints JSON: on one line, or indented on a terminal.
pub fn json(value: &impl Serialize) -> Result<()> {
    let out = io::stdout();
    let mut line =
        if out.is_terminal() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }?;
    line.push('\n');
    text(&line)
}

/// Prints a line to standard error.
pub fn note(line: &str) {
    // A closed standard error is not a failure.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether the error is a closed standard output.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_a_closed_output() {
        let of = |kind: ErrorKind| anyhow::Error::new(io::Error::from(kind));
        assert!(is_closed(&of(ErrorKind::BrokenPipe)));
        assert!(is_closed(&of(ErrorKind::BrokenPipe).context("printing the list")));
        assert!(!is_closed(&of(ErrorKind::StorageFull)) && !is_closed(&anyhow::anyhow!("broken pipe")));
    }
}
