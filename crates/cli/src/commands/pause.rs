//! `sbx pause`.

use std::process::ExitCode;

use anyhow::Result;
use client::{Client, Sandbox};

use super::each::each;

pub async fn pause(client: &Client, json: bool, ids: &[String]) -> Result<ExitCode> {
    each(client, json, ids, async |sandbox: &Sandbox| Ok(serde_json::to_value(sandbox.pause().await?)?)).await
}
