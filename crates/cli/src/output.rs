//! Standard output. A closed pipe (`sbx ls | head`) ends the program quietly.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

/// Prints text.
pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
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
