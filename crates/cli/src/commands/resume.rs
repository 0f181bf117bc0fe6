//! `sbx resume`: resumes paused sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::ResumeArguments;
use crate::output::OutputFormat;

/// Resumes each sandbox and prints its id.
pub async fn resume(client: &Client, format: OutputFormat, arguments: &ResumeArguments) -> Result<ExitCode> {
    let ids = &arguments.sandboxes.ids;
    for_each(ids, BatchForm::of(format, ids.len()), async |id: &String| {
        let sandbox = find_sandbox(client, id).await?;
        let resumed = if arguments.cold { sandbox.resume_cold().await? } else { sandbox.resume().await? };
        ItemResult::new(id, resumed).map(Some)
    })
    .await
}
