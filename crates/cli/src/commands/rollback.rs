//! `sbx rollback`: replaces the disk of a sandbox by that of one of its snapshots.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::named_sandbox::find_sandbox;
use super::snapshot_names::snapshot_of;
use crate::cli::RollbackArguments;
use crate::output::OutputFormat;

/// Prints the id of the sandbox after its disk was replaced.
pub async fn rollback(
    client: &Client,
    format: OutputFormat,
    arguments: &RollbackArguments,
) -> Result<ExitCode> {
    let sandbox = find_sandbox(client, &arguments.id).await?;
    let snapshot = snapshot_of(client, &sandbox, &arguments.snapshot).await?;
    let view = sandbox.rollback(&snapshot).await?;
    format.print_id(&view, &view.id)
}
