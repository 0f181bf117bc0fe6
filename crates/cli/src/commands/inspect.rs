//! `sbx inspect`: everything that the service says about sandboxes, as a JSON array.

use std::process::ExitCode;

use anyhow::Result;
use client::Client;

use crate::output;

pub async fn inspect(client: &Client, ids: &[String]) -> Result<ExitCode> {
    let mut views = Vec::with_capacity(ids.len());
    for id in ids {
        views.push(client.sandbox(id)?.refresh().await?);
    }
    output::json(&views)?;
    Ok(ExitCode::SUCCESS)
}
