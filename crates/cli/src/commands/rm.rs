//! `sbx rm`: terminates sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use client::{Client, SandboxState};
use futures_util::TryStreamExt;
use serde_json::json;

use super::each::{Done, Form, each};
use crate::cli::RmArguments;

pub async fn rm(client: &Client, json: bool, arguments: RmArguments) -> Result<ExitCode> {
    let mut ids = arguments.ids;
    if arguments.all {
        for state in [SandboxState::Running, SandboxState::Paused] {
            let found: Vec<_> = client.list().state(state).stream().try_collect().await?;
            ids.extend(found.into_iter().map(|item| item.id.to_string()));
        }
    }
    let form = if json && arguments.all { Form::Array } else { Form::of(json, ids.len()) };
    each(&ids, form, async |id: &String| {
        let sandbox = client.sandbox(id)?;
        let end = sandbox.terminate().await?;
        let said = json!({"id": id, "reason": end.reason, "totalRuntimeMs": end.total_runtime_ms});
        Done::new(id, said).map(Some)
    })
    .await
}
