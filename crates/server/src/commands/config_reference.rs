//! `sandboxd config reference`: `docs/configuration.md`, to standard output.

use std::process::ExitCode;

use anyhow::Result;

pub fn run() -> Result<ExitCode> {
    print!("{}", crate::config::reference()?);
    Ok(ExitCode::SUCCESS)
}
