//! `sbx rm`: terminates sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Code, SandboxState};
use serde_json::json;

use super::each::{Done, Form, each};
use super::lists::together;
use crate::cli::RmArguments;

pub async fn rm(client: &Client, json: bool, arguments: RmArguments) -> Result<ExitCode> {
    let ids = if arguments.all { live(client).await? } else { arguments.ids };
    let form = if json && arguments.all { Form::Array } else { Form::of(json, ids.len()) };
    each(&ids, form, async |id: &String| {
        let sandbox = client.sandbox(id)?;
        let end = match sandbox.terminate().await {
            // None is to be left, and this one has ended by itself before its turn.
            Err(error) if arguments.all && error.code() == Code::SandboxNotFound => return Ok(None),
            end => end?,
        };
        let said = json!({
            "id": id,
            "state": SandboxState::Terminated,
            "terminatedAt": end.terminated_at,
            "reason": end.reason,
            "totalRuntimeMs": end.total_runtime_ms,
        });
        Done::new(id, said).map(Some)
    })
    .await
}

/// All that are not terminated.
async fn live(client: &Client) -> Result<Vec<String>> {
    // Running ones again: one may be resumed before the paused ones are listed.
    let states = [SandboxState::Running, SandboxState::Paused, SandboxState::Running];
    let found = together(states.map(|state| client.list().state(state)), usize::MAX).await?;
    Ok(found.into_iter().map(|item| item.id.to_string()).collect())
}
