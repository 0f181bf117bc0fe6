//! `sbx resume`.

use std::process::ExitCode;

use anyhow::Result;
use client::{Client, Sandbox};

use super::each::each;

pub async fn resume(client: &Client, json: bool, ids: &[String]) -> Result<ExitCode> {
    each(client, json, ids, async |sandbox: &Sandbox| Ok(serde_json::to_value(sandbox.resume().await?)?))
        .await
}
