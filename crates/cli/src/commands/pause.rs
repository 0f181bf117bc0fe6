//! `sbx pause`: pauses sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::PauseArguments;
use crate::output::OutputFormat;

/// Pauses each sandbox and prints its id.
pub async fn pause(client: &Client, format: OutputFormat, arguments: &PauseArguments) -> Result<ExitCode> {
    let ids = &arguments.sandboxes.ids;
    for_each(ids, BatchForm::of(format, ids.len()), async |id: &String| {
        let sandbox = find_sandbox(client, id).await?;
        let paused = if arguments.hibernate { sandbox.hibernate().await? } else { sandbox.pause().await? };
        ItemResult::new(id, paused).map(Some)
    })
    .await
}
