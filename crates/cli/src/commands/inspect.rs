//! `sbx inspect`: prints all details of sandboxes as a JSON array, and of templates and snapshots, whose names Docker's users take for images.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Code, SnapshotId, TemplateId};
use serde_json::Value;

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;

/// Prints what exists; a missing one is an error that does not stop the rest.
pub async fn inspect(client: &Client, ids: &[String]) -> Result<ExitCode> {
    for_each(ids, BatchForm::Array, async |id: &String| {
        ItemResult::new(id, details(client, id).await?).map(Some)
    })
    .await
}

/// The details of a sandbox, or else of the newest template or snapshot with the name.
async fn details(client: &Client, id: &str) -> Result<Value> {
    if id.starts_with(TemplateId::PREFIX) {
        return Ok(serde_json::to_value(client.template(id).await?)?);
    }
    if id.starts_with(SnapshotId::PREFIX) {
        return Ok(serde_json::to_value(client.snapshot(id).await?)?);
    }
    let found = async { find_sandbox(client, id).await?.refresh().await }.await;
    let error = match found {
        Ok(view) => return Ok(serde_json::to_value(view)?),
        Err(error) if matches!(error.code(), Code::SandboxNotFound | Code::InvalidArgument) => error,
        Err(error) => return Err(error.into()),
    };
    if let Some(template) = client.templates().name(id).page_size(1).page(0).await?.data.into_iter().next() {
        return Ok(serde_json::to_value(template)?);
    }
    match client.snapshots().name(id).page_size(1).page(0).await?.data.into_iter().next() {
        Some(snapshot) => Ok(serde_json::to_value(snapshot)?),
        None => Err(error.into()),
    }
}
