//! `sbx man DIR`: writes a manual page for the program and each command, for packages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::Cli;

/// Writes a page for each command, over existing files.
pub fn man(dir: &Path) -> Result<ExitCode> {
    let context = || format!("writing manual pages into {}", dir.display());
    std::fs::create_dir_all(dir).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(context)?;
    Ok(ExitCode::SUCCESS)
}
