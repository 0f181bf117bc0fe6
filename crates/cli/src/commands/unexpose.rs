//! `sbx unexpose`: closes exposed ports.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::UnexposeArguments;
use crate::output::OutputFormat;

/// Closes each port and prints its number.
pub async fn unexpose(
    client: &Client,
    format: OutputFormat,
    arguments: &UnexposeArguments,
) -> Result<ExitCode> {
    let sandbox = find_sandbox(client, &arguments.id).await?;
    for_each(&arguments.ports, BatchForm::of(format, arguments.ports.len()), async |port: &u16| {
        let closed = sandbox.close_port(*port).await?;
        ItemResult::new(closed.port, &closed).map(Some)
    })
    .await
}
