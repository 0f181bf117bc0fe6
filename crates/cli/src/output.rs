//! Standard output. That its reader has gone (`sbx ls | head`) ends the program quietly.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

/// Text as it stands.
pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// JSON for programs: one line, or readable where a person looks.
pub fn json(value: &impl Serialize) -> Result<()> {
    let out = io::stdout();
    let mut line =
        if out.is_terminal() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }?;
    line.push('\n');
    text(&line)
}

/// For people, beside the output.
pub fn note(line: &str) {
    // Nobody there to read it is no reason to fail.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether the failure is that nobody reads our output any more.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
