//! `sandboxd config reference`: `docs/configuration.md`, to standard output.

use std::process::ExitCode;

use anyhow::Result;

pub fn run() -> Result<ExitCode> {
    crate::stdout::print(&crate::config::reference()?)?;
    Ok(ExitCode::SUCCESS)
}
