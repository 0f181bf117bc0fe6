//! `sbx inspect`: prints all details of sandboxes as a JSON array.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{BatchForm, ItemResult, for_each};

/// Prints the sandboxes that exist; a missing one is an error that does not stop the rest.
pub async fn inspect(client: &Client, ids: &[String]) -> Result<ExitCode> {
    for_each(ids, BatchForm::Array, async |id: &String| {
        let view = client.find(id).await?.refresh().await?;
        ItemResult::new(id, view).map(Some)
    })
    .await
}
