//! `sbx pause`.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::each::{Done, Form, each};

pub async fn pause(client: &Client, json: bool, ids: &[String]) -> Result<ExitCode> {
    each(ids, Form::of(json, ids.len()), async |id: &String| {
        let paused = client.sandbox(id)?.pause().await?;
        Done::new(id, paused).map(Some)
    })
    .await
}
