//! `sandboxd openapi`: the interface as a document, to standard output.

use std::process::ExitCode;

use anyhow::Result;

pub fn run() -> Result<ExitCode> {
    crate::stdout::print(&native::document())?;
    Ok(ExitCode::SUCCESS)
}
