//! Runs the program `nft`, which parses rules. Only for whole tables: at the start, and to restore them.

use std::io::{self, Write};
use std::process::{Command, Stdio};

#[derive(Debug, thiserror::Error)]
#[error("nft cannot be started: {0}")]
struct CannotStart(#[source] io::Error);

/// Applies commands as one transaction. Blocks.
pub fn run(text: &str) -> io::Result<()> {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), CannotStart(error)))?;
    if let Some(mut stdin) = nft.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = nft.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(stderr.lines().take(3).collect::<Vec<_>>().join("; ")))
}
