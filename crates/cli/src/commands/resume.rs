//! `sbx resume`: resumes paused sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{Form, ItemResult, for_each};

pub async fn resume(client: &Client, json: bool, ids: &[String]) -> Result<ExitCode> {
    for_each(ids, Form::of(json, ids.len()), async |id: &String| {
        let resumed = client.sandbox(id)?.resume().await?;
        ItemResult::new(id, resumed).map(Some)
    })
    .await
}
