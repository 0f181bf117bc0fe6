//! `sbx timeout`: changes the timeout of sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::TimeoutArguments;
use crate::output::OutputFormat;

/// Sets the timeout of each sandbox and prints its id.
pub async fn timeout(
    client: &Client,
    format: OutputFormat,
    arguments: &TimeoutArguments,
) -> Result<ExitCode> {
    let TimeoutArguments { timeout, ids } = arguments;
    for_each(ids, BatchForm::of(format, ids.len()), async |id: &String| {
        let view = find_sandbox(client, id).await?.set_timeout(*timeout).await?;
        ItemResult::new(id, view).map(Some)
    })
    .await
}
