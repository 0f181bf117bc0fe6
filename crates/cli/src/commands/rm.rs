//! `sbx rm`: terminates sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use client::{Client, Sandbox, SandboxState};
use futures_util::TryStreamExt;
use serde_json::json;

use super::each::each;
use crate::cli::RmArguments;

pub async fn rm(client: &Client, json: bool, arguments: RmArguments) -> Result<ExitCode> {
    let mut ids = arguments.ids;
    if arguments.all {
        for state in [SandboxState::Running, SandboxState::Paused] {
            let found: Vec<_> = client.list().state(state).stream().try_collect().await?;
            ids.extend(found.into_iter().map(|item| item.id.to_string()));
        }
    }
    each(client, json, &ids, async |sandbox: &Sandbox| {
        let end = sandbox.terminate().await?;
        Ok(json!({"id": sandbox.id(), "reason": end.reason, "totalRuntimeMs": end.total_runtime_ms}))
    })
    .await
}
