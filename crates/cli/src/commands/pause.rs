//! `sbx pause`: pauses sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{Form, ItemResult, for_each};

pub async fn pause(client: &Client, json: bool, ids: &[String]) -> Result<ExitCode> {
    for_each(ids, Form::of(json, ids.len()), async |id: &String| {
        let paused = client.sandbox(id)?.pause().await?;
        ItemResult::new(id, paused).map(Some)
    })
    .await
}
