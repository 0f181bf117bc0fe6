//! `sbx cp`: copies files and directories to, from and between sandboxes.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use sandboxd_client::Client;
use serde_json::json;

use super::transfer::{CopySource, Location};
use crate::cli::CpArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat};
use crate::progress::ProgressLine;

/// Copies, with a progress line, and stops at a signal. What was copied before a failure stays.
pub async fn cp(client: &Client, format: OutputFormat, arguments: &CpArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let (from, to) =
        (Location::find(client, &arguments.from).await?, Location::find(client, &arguments.to).await?);
    let is_inside = |location: &Location| matches!(location, Location::Inside(..));
    ensure!(
        is_inside(&from) || is_inside(&to),
        "neither '{}' nor '{}' is a path in a sandbox; write SANDBOX:PATH",
        arguments.from.display(),
        arguments.to.display()
    );
    let to_stdout = matches!(to, Location::Stream);
    let work = async {
        let source = CopySource::find(from).await?;
        let (name, size) = source.name_and_size();
        let progress = if arguments.quiet { ProgressLine::none() } else { ProgressLine::new(&name, size) };
        let copied = source.copy(to, arguments.chown.as_deref(), &progress).await;
        progress.done();
        copied
    };
    let copied = tokio::select! {
        copied = work => copied?,
        code = interrupt.first() => {
            if !to_stdout {
                output::note(&format!("sbx: interrupted; the copy at {} may be missing or incomplete", arguments.to.display()));
            }
            return Ok(ExitCode::from(code));
        }
    };
    if format == OutputFormat::Json && !to_stdout {
        output::json(&json!({
            "from": arguments.from.to_string_lossy(), "to": arguments.to.to_string_lossy(), "files": copied.files, "bytes": copied.bytes,
        }))?;
    }
    Ok(ExitCode::SUCCESS)
}
